//! The modules of a crate, and the imports between them, read from its sources.
//!
//! A module is a file. An import is a path that begins with `crate`, `self`, `super` or the name of a child. Code for
//! tests does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The segments of a path, from the root of the crate.
pub(crate) type ModulePath = Vec<String>;

/// All modules of one crate.
#[derive(Debug, Default)]
pub(crate) struct Modules(BTreeMap<ModulePath, Module>);

/// One module.
#[derive(Debug)]
struct Module {
    file: PathBuf,
    code: String,
    /// Names that `use` brings into it, for its children and, if it re-exports them, for others.
    names: BTreeMap<String, ModulePath>,
}

/// An import of one module by another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: ModulePath,
    pub(crate) to: ModulePath,
    /// `pub use`: the import belongs to the module that uses the name.
    pub(crate) is_reexport: bool,
    /// File and line, for messages.
    pub(crate) place: String,
}

/// A path in the code of a module.
struct Mention {
    offset: usize,
    segments: ModulePath,
    is_reexport: bool,
}

impl Modules {
    /// Reads the sources below a `src` folder.
    pub(crate) fn read(source: &Path) -> Self {
        let mut modules = Self::default();
        modules.read_folder(source, source);
        modules.note_names();
        modules
    }

    fn read_folder(&mut self, source: &Path, folder: &Path) {
        for entry in fs::read_dir(folder).expect("a folder of sources").flatten() {
            let path = entry.path();
            let name = entry.file_name().into_string().expect("a plain name");
            if path.is_dir() && name != "tests" {
                self.read_folder(source, &path);
            } else if name.ends_with(".rs") && !["tests.rs", "fixture.rs"].contains(&&*name) {
                let inside = path
                    .strip_prefix(source)
                    .expect("a file of the crate")
                    .with_extension("");
                let module = inside.iter().map(|segment| segment.to_string_lossy().into_owned());
                let text = fs::read_to_string(&path).expect("a source is text");
                self.add(module.collect(), path, &text);
            }
        }
    }

    fn add(&mut self, mut module: ModulePath, file: PathBuf, text: &str) {
        let is_folder = module.last().is_some_and(|last| last == "mod");
        let is_root = module.len() == 1 && ["lib", "main"].contains(&&*module[0]);
        if is_folder || is_root {
            module.pop();
        }
        let code = without_tests(text);
        let names = BTreeMap::new();
        self.0.insert(module, Module { file, code, names });
    }

    fn note_names(&mut self) {
        let paths: Vec<ModulePath> = self.0.keys().cloned().collect();
        for path in paths {
            let mut names = BTreeMap::new();
            for (segments, name) in uses(&self.0[&path].code).flat_map(|(_, tree, _)| expand(tree, &[])) {
                if let Some(target) = self.absolute(&path, &segments) {
                    names.insert(name, target);
                }
            }
            self.0.get_mut(&path).expect("it is there").names = names;
        }
    }

    /// The folders and files at the top of the crate; the root itself is empty.
    pub(crate) fn units(&self) -> BTreeSet<String> {
        self.0.keys().filter_map(|path| path.first().cloned()).collect()
    }

    /// Imports between modules, each with its first place.
    pub(crate) fn imports(&self) -> Vec<Import> {
        let mut imports = BTreeMap::new();
        for (from, module) in &self.0 {
            for mention in self.mentions(from, module) {
                let target = self.absolute(from, &mention.segments);
                let Some(to) = target.and_then(|target| self.definition(&target, 0)) else {
                    continue;
                };
                if to != *from {
                    let line = module.code[..mention.offset].lines().count().max(1);
                    let place = format!("{}:{line}", module.file.display());
                    let key = (from.clone(), to, mention.is_reexport);
                    imports.entry(key).or_insert(place);
                }
            }
        }
        let import = |((from, to, is_reexport), place)| Import {
            from,
            to,
            is_reexport,
            place,
        };
        imports.into_iter().map(import).collect()
    }

    /// The paths in a module: those of `use`, and those in its code.
    fn mentions(&self, path: &ModulePath, module: &Module) -> Vec<Mention> {
        let mut mentions = Vec::new();
        let mut code = module.code.clone().into_bytes();
        for (offset, tree, is_reexport) in uses(&module.code) {
            code[offset..offset + tree.len()].fill(b' ');
            mentions.extend(expand(tree, &[]).into_iter().map(|(segments, _)| Mention {
                offset,
                segments,
                is_reexport,
            }));
        }
        let code = String::from_utf8(code).expect("spaces in the place of whole declarations");
        for (offset, segments) in paths(&code) {
            let is_path =
                ["crate", "self", "super"].contains(&&*segments[0]) || self.0.contains_key(&child(path, &segments[0]));
            if is_path {
                mentions.push(Mention {
                    offset,
                    segments,
                    is_reexport: false,
                });
            }
        }
        mentions
    }

    /// A path from the root of the crate; `None` if it leads out of the crate.
    fn absolute(&self, module: &ModulePath, segments: &[String]) -> Option<ModulePath> {
        let mut path = match segments.first()?.as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            first => {
                return self
                    .0
                    .contains_key(&child(module, first))
                    .then(|| [module, segments].concat());
            }
        };
        for segment in &segments[1..] {
            match segment.as_str() {
                "super" => _ = path.pop()?,
                segment => path.push(segment.to_owned()),
            }
        }
        Some(path)
    }

    /// The module that defines what a path names; names that another module brings in are followed.
    fn definition(&self, path: &[String], followed: usize) -> Option<ModulePath> {
        let length = (0..=path.len())
            .rev()
            .find(|&length| self.0.contains_key(&path[..length]))?;
        let (module, rest) = path.split_at(length);
        let known = rest.first().and_then(|name| self.0[module].names.get(name));
        match known {
            Some(target) if followed < 8 => self.definition(&[target, &rest[1..]].concat(), followed + 1),
            _ => Some(module.to_vec()),
        }
    }
}

fn child(module: &ModulePath, name: &str) -> ModulePath {
    let mut path = module.clone();
    path.push(name.to_owned());
    path
}

/// The code with its lines in place, without comments, texts and the modules of tests.
fn without_tests(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let (mut is_for_tests, mut is_in_tests) = (false, false);
    for line in text.lines() {
        let trimmed = line.trim();
        if is_in_tests {
            is_in_tests = line != "}";
        } else if is_for_tests && trimmed.contains("mod ") {
            is_in_tests = trimmed.ends_with('{');
            is_for_tests = false;
        } else if !trimmed.starts_with("//") {
            is_for_tests = trimmed.starts_with("#[cfg(") && trimmed.contains("test");
            code.push_str(&without_texts(line));
        }
        code.push('\n');
    }
    code
}

/// A line without what stands between double quotes, or in a comment at its end.
fn without_texts(line: &str) -> String {
    let line = line.split(" // ").next().unwrap_or_default();
    let mut parts = line.split('"').step_by(2);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |code, part| code + "\"\"" + part)
}

/// The `use` declarations: offset and text of the tree, and whether it is re-exported.
fn uses(code: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut offset = 0;
    code.split_inclusive('\n').filter_map(move |line| {
        let begin = offset;
        offset += line.len();
        let is_use = line.trim_start().starts_with("use ");
        let is_reexport = line.trim_start().starts_with("pub") && line.contains(" use ") && !line.contains('=');
        if !is_use && !is_reexport {
            return None;
        }
        let begin = begin + line.find("use ")? + 4;
        let tree = code[begin..].split(';').next()?;
        Some((begin, tree, is_reexport))
    })
}

/// The paths of a tree of `use`, each with the name that it brings in.
fn expand(tree: &str, before: &[String]) -> Vec<(ModulePath, String)> {
    let tree = tree.trim();
    let segments = |text: &str| {
        let named = text.split("::").map(str::trim).filter(|segment| !segment.is_empty());
        before
            .iter()
            .cloned()
            .chain(named.map(str::to_owned))
            .collect::<ModulePath>()
    };
    if let Some((head, group)) = tree.split_once('{') {
        let head = segments(head);
        let members = members(group.trim_end().trim_end_matches('}'));
        return members.into_iter().flat_map(|member| expand(member, &head)).collect();
    }
    let (path, alias) = tree
        .split_once(" as ")
        .map_or((tree, None), |(path, alias)| (path, Some(alias)));
    let mut path = segments(path);
    path.pop_if(|last| last == "self");
    let name = alias.map(str::to_owned).or_else(|| path.last().cloned());
    name.map(|name| (path, name)).into_iter().collect()
}

/// The members of a group, which may hold groups.
fn members(group: &str) -> Vec<&str> {
    let (mut members, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (offset, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                members.push(&group[begin..offset]);
                begin = offset + 1;
            }
            _ => {}
        }
    }
    members.push(&group[begin..]);
    members.retain(|member| !member.trim().is_empty());
    members
}

/// Paths of two segments or more, with their offsets.
fn paths(code: &str) -> Vec<(usize, ModulePath)> {
    let is_part = |letter: char| letter == '_' || letter == ':' || letter.is_alphanumeric();
    let mut paths = Vec::new();
    let mut offset = 0;
    while let Some(begin) = code[offset..].find(is_part).map(|found| offset + found) {
        let end = code[begin..]
            .find(|letter| !is_part(letter))
            .map_or(code.len(), |found| begin + found);
        let path = &code[begin..end];
        let is_method = code[..begin].ends_with('.');
        let is_visibility = code[..begin].ends_with("in ");
        if path.contains("::") && !path.starts_with(':') && !is_method && !is_visibility {
            let segments = path.split("::").filter(|segment| !segment.is_empty());
            paths.push((begin, segments.map(str::to_owned).collect()));
        }
        offset = end;
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let mut modules = Modules::default();
        for (name, text) in files {
            let path = name.split('/').map(str::to_owned).collect();
            modules.add(path, PathBuf::from(name), text);
        }
        modules.note_names();
        modules
    }

    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let name = |path: &ModulePath| path.join("::");
        let imports = modules(files).imports().into_iter();
        let imports = imports.filter(|import| !import.is_reexport);
        imports
            .map(|import| format!("{} -> {}", name(&import.from), name(&import.to)))
            .collect()
    }

    #[test]
    fn imports_are_found_in_every_form() {
        let files = [
            ("lib", "mod a;\npub use b::mod_c::Thing;\n"),
            ("a", "use crate::b::{\n    other,\n    mod_c::{self, Thing},\n};\n"),
            ("b/mod", "pub mod mod_c;\nfn call() {\n    mod_c::run();\n}\n"),
            (
                "b/mod_c",
                "/// See [`crate::a`].\nfn run() {\n    let _ = (\"crate::a\", super::call());\n}\n",
            ),
        ];
        assert_eq!(
            imports(&files),
            ["a -> b", "a -> b::mod_c", "b -> b::mod_c", "b::mod_c -> b"]
        );
    }

    #[test]
    fn a_name_that_is_brought_in_leads_to_its_definition() {
        let files = [
            ("a/mod", "mod b;\npub use self::b::Thing;\n"),
            ("a/b", "pub struct Thing;\n"),
            ("a/c", "use crate::a::Thing;\n"),
            (
                "d",
                "use super::a::Thing as Other;\n#[cfg(test)]\nmod tests {\n    use crate::e;\n}\n",
            ),
            ("e", ""),
        ];
        assert_eq!(imports(&files), ["a::c -> a::b", "d -> a::b"]);
    }
}
