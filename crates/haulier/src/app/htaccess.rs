//! Apache's `.htaccess`, which haulier does not obey: a note tells its user so.

use std::fs;
use std::path::{Path, PathBuf};

use super::App;

/// Directives that are named; the others are counted.
const NAMED: usize = 3;
/// Most bytes that are read of such a file.
const MOST: usize = 256 * 1024;

/// The note about the `.htaccess` that Apache would apply to all pages of the project.
pub(crate) fn remark(app: &App, project: &Path) -> Option<String> {
    let (file, directives) = find(&app.root).or_else(|| find(project))?;
    let named: Vec<&str> = directives.iter().take(NAMED).map(String::as_str).collect();
    let others = directives.len() - named.len();
    let more = if others > 0 {
        format!(" and {others} more")
    } else {
        String::new()
    };
    let what = match app.preset.name {
        "plain" | "static" | "front" => "its rules have to be written in haulier.toml".to_owned(),
        _ => format!(
            "the rules that {} ships are built in, others have to be written in haulier.toml",
            app.preset.title
        ),
    };
    Some(format!(
        "{} is not read ({}{more}): {what}; see docs/from-apache.md",
        file.display(),
        named.join(", ")
    ))
}

/// The file in this directory with the names of its directives, each once; `None` if it has none.
fn find(directory: &Path) -> Option<(PathBuf, Vec<String>)> {
    let path = directory.join(".htaccess");
    let text = fs::read(&path).ok()?;
    let text = String::from_utf8_lossy(&text[..text.len().min(MOST)]);
    let mut directives: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        let word = line.split_whitespace().next().unwrap_or_default();
        // `<IfModule …>` and similar sections only hold other directives.
        let is_directive = word.starts_with(|first: char| first.is_ascii_alphabetic());
        if is_directive && !directives.iter().any(|known| known.eq_ignore_ascii_case(word)) {
            directives.push(word.chars().filter(|letter| letter.is_ascii_alphanumeric()).collect());
        }
    }
    (!directives.is_empty()).then_some((path, directives))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::{AUTO, detect};

    fn said(names: &[(&str, &str)]) -> Option<String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, content) in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
            fs::write(path, content).expect("a file");
        }
        let app = detect(folder.path(), AUTO).expect("looking never fails");
        let said = remark(&app, folder.path())?;
        Some(said.replace(&folder.path().display().to_string(), "."))
    }

    #[test]
    fn one_with_directives_is_mentioned_with_what_to_do() {
        let rules = "# BEGIN\n<IfModule mod_rewrite.c>\nRewriteEngine On\nRewriteRule . /a\nRewriteRule ^b /c\n\
                     Header set A b\nRequire all granted\n</IfModule>\n";
        assert_eq!(
            said(&[("index.php", ""), (".htaccess", rules)]).as_deref(),
            Some(
                "./.htaccess is not read (RewriteEngine, RewriteRule, Header and 1 more): its rules have to be written in \
                 haulier.toml; see docs/from-apache.md"
            )
        );
        let symfony = [
            ("public/index.php", ""),
            ("src/Kernel.php", ""),
            ("public/.htaccess", "FallbackResource /index.php\n"),
        ];
        let told = said(&symfony).expect("it is mentioned");
        assert!(
            told.starts_with(
                "./public/.htaccess is not read (FallbackResource): the rules that Symfony ships are built in"
            ),
            "{told}"
        );
    }

    #[test]
    fn one_that_says_nothing_is_not_mentioned() {
        assert_eq!(said(&[("index.php", "")]), None);
        assert_eq!(
            said(&[
                ("index.php", ""),
                (".htaccess", "# nothing\n\n<IfModule a>\n</IfModule>\n")
            ]),
            None
        );
    }
}
