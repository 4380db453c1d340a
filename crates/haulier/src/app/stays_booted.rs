//! Finds the script of a project that is made to stay booted: worker mode without a setting.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::App;

/// The function that such a script calls for its next request.
const HANDLE: &str = "frankenphp_handle_request";
/// The file that Symfony's front controller includes where the runtime component runs it.
const AUTOLOAD_RUNTIME: &str = "autoload_runtime.php";
/// The runtime class of `runtime/frankenphp-symfony`.
const RUNTIME: &str = r"Runtime\FrankenPhpSymfony\Runtime";
/// The runtime class of `symfony/runtime`, which has a runner for workers since 7.4.
const SYMFONY_RUNTIME: &str = r"Symfony\Component\Runtime\SymfonyRuntime";
/// Longest script that is searched, bytes.
const LONGEST_SCRIPT: u64 = 256 << 10;
/// Longest list of packages that is read, bytes.
const LONGEST_LIST: u64 = 32 << 20;

/// A script that is made to stay booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BootableScript {
    pub(crate) file: PathBuf,
    /// The package or function by which it was recognised.
    pub(crate) by: String,
    /// A variable that its boot needs.
    pub(crate) env: Option<(String, String)>,
}

/// Looks for the script in `project`, whose application is `app`. `runtime` is the value of `APP_RUNTIME`, if it is set.
pub(crate) fn find(project: &Path, app: &App, runtime: Option<&str>) -> Option<BootableScript> {
    let front = app
        .front
        .as_ref()
        .map(|front| app.root.join(front.trim_start_matches('/')));
    written_for_it(app, front.as_deref())
        .or_else(|| octane(project, app))
        .or_else(|| symfony(project, &front?, runtime))
}

/// `worker.php` in the document root, or the front controller, where it calls the function itself.
fn written_for_it(app: &App, front: Option<&Path>) -> Option<BootableScript> {
    let worker = app.root.join("worker.php");
    let file = [Some(worker.as_path()), front]
        .into_iter()
        .flatten()
        .find(|file| mentions(file, HANDLE))?;
    Some(BootableScript {
        file: file.to_owned(),
        by: format!("{HANDLE}()"),
        env: None,
    })
}

/// The worker script that Laravel Octane puts into the document root.
fn octane(project: &Path, app: &App) -> Option<BootableScript> {
    let file = app.root.join("frankenphp-worker.php");
    let is_installed = file.is_file() && Packages::of(project)?.version("laravel/octane").is_some();
    is_installed.then(|| BootableScript {
        file,
        by: "laravel/octane".to_owned(),
        env: None,
    })
}

/// The front controller of Symfony, if its runtime has a runner for workers.
fn symfony(project: &Path, front: &Path, runtime: Option<&str>) -> Option<BootableScript> {
    if !mentions(front, AUTOLOAD_RUNTIME) {
        return None;
    }
    let packages = Packages::of(project)?;
    let named = runtime.map(str::to_owned).or_else(|| runtime_of_composer(project));
    let named = named.as_deref().map(|class| class.trim_start_matches('\\'));
    let found = |by: String, env| {
        Some(BootableScript {
            file: front.to_owned(),
            by,
            env,
        })
    };
    if packages.version("runtime/frankenphp-symfony").is_some() && named.is_none_or(|class| class == RUNTIME) {
        // Without a name, Symfony would take its own runtime.
        let env = named.is_none().then(|| ("APP_RUNTIME".to_owned(), RUNTIME.to_owned()));
        return found("runtime/frankenphp-symfony".to_owned(), env);
    }
    let version = packages.version("symfony/runtime")?;
    let has_runner = release(&version) >= Some((7, 4));
    if has_runner && named.is_none_or(|class| class == SYMFONY_RUNTIME) {
        return found(format!("symfony/runtime {}", version.trim_start_matches('v')), None);
    }
    None
}

/// `extra.runtime.class` of composer.json, which the generated `autoload_runtime.php` uses.
fn runtime_of_composer(project: &Path) -> Option<String> {
    let file = json(&project.join("composer.json"))?;
    file.pointer("/extra/runtime/class")?.as_str().map(str::to_owned)
}

/// The packages of a project.
struct Packages(Value);

impl Packages {
    /// Those that Composer has installed, else those that it is to install.
    fn of(project: &Path) -> Option<Self> {
        let lists = ["vendor/composer/installed.json", "composer.lock"];
        lists.iter().find_map(|list| json(&project.join(list))).map(Self)
    }

    fn version(&self, name: &str) -> Option<String> {
        // Composer 1 wrote the list alone.
        let list = self.0.get("packages").unwrap_or(&self.0).as_array()?;
        let package = list.iter().find(|package| package["name"] == name)?;
        package["version"].as_str().map(str::to_owned)
    }
}

/// Major and minor number of a version such as `v7.4.1` or `7.4.x-dev`; `None` for a branch.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn json(file: &Path) -> Option<Value> {
    serde_json::from_slice(&read(file, LONGEST_LIST).ok()?).ok()
}

fn mentions(file: &Path, word: &str) -> bool {
    read(file, LONGEST_SCRIPT).is_ok_and(|text| text.windows(word.len()).any(|part| part == word.as_bytes()))
}

/// The file up to a length.
fn read(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(file)?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut text = Vec::new();
    File::open(file)?.take(most).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::{AUTO, detect};

    /// Looks into a project of these files.
    fn look(files: &[(&str, &str)], runtime: Option<&str>) -> Option<(String, BootableScript)> {
        let place = tempfile::tempdir().expect("a directory");
        for (name, content) in files {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().expect("below the project")).expect("the directory is ours");
            fs::write(path, content).expect("the directory is ours");
        }
        let app = detect(place.path(), AUTO).expect("it looks");
        let found = find(place.path(), &app, runtime)?;
        let name = found
            .file
            .strip_prefix(place.path())
            .expect("inside")
            .display()
            .to_string();
        Some((name, found))
    }

    fn installed(packages: &[(&str, &str)]) -> String {
        let list = packages
            .iter()
            .map(|(name, version)| serde_json::json!({"name": name, "version": version}));
        serde_json::json!({"packages": list.collect::<Vec<_>>()}).to_string()
    }

    const FRONT: (&str, &str) = (
        "public/index.php",
        "<?php require_once dirname(__DIR__).'/vendor/autoload_runtime.php';",
    );
    const KERNEL: (&str, &str) = ("src/Kernel.php", "<?php");
    const LIST: &str = "vendor/composer/installed.json";

    #[test]
    fn symfony_stays_booted_where_its_runtime_has_a_runner() {
        let with = |packages: &[(&str, &str)], runtime, composer: &str| {
            let list = installed(packages);
            look(&[FRONT, KERNEL, (LIST, &list), ("composer.json", composer)], runtime)
        };
        let by = |found: Option<(String, BootableScript)>| {
            found.map(|(name, script)| (name, script.by, script.env.is_some()))
        };
        let index = |by: &str, sets| Some(("public/index.php".to_owned(), by.to_owned(), sets));
        let (new, old) = (("symfony/runtime", "v7.4.0"), ("symfony/runtime", "v7.3.4"));
        let of_frankenphp = ("runtime/frankenphp-symfony", "0.2.0");
        assert_eq!(by(with(&[new], None, "{}")), index("symfony/runtime 7.4.0", false));
        assert_eq!(by(with(&[old], None, "{}")), None);
        assert_eq!(by(with(&[("symfony/runtime", "dev-main")], None, "{}")), None);
        assert_eq!(
            by(with(&[old, of_frankenphp], None, "{}")),
            index("runtime/frankenphp-symfony", true)
        );
        let class = r#"{"extra": {"runtime": {"class": "Runtime\\FrankenPhpSymfony\\Runtime"}}}"#;
        assert_eq!(
            by(with(&[old, of_frankenphp], None, class)),
            index("runtime/frankenphp-symfony", false)
        );
        let other = Some(r"Runtime\Swoole\Runtime");
        assert_eq!(by(with(&[new, of_frankenphp], other, "{}")), None, "it runs elsewhere");
        assert_eq!(
            by(with(&[new, of_frankenphp], Some(SYMFONY_RUNTIME), "{}")),
            index("symfony/runtime 7.4.0", false)
        );
        let plain = ("public/index.php", "<?php require '../vendor/autoload.php';");
        assert_eq!(
            look(&[plain, KERNEL, (LIST, &installed(&[new]))], None),
            None,
            "another front controller"
        );
    }

    #[test]
    fn octane_and_scripts_that_ask_for_requests_are_found() {
        let files = [
            ("artisan", "<?php"),
            ("public/index.php", "<?php"),
            ("public/frankenphp-worker.php", "<?php require 'x';"),
        ];
        let lock = installed(&[("laravel/octane", "v2.12.0")]);
        let found = look(&[&files[..], &[("composer.lock", lock.as_str())]].concat(), None);
        assert_eq!(found.expect("Octane is installed").0, "public/frankenphp-worker.php");
        assert_eq!(look(&files, None), None, "the file alone may be a remainder");
        let worker = ("worker.php", "<?php while (frankenphp_handle_request($handle));");
        let (name, found) = look(&[("index.php", "<?php"), worker], None).expect("it calls the function");
        assert_eq!(
            (name.as_str(), found.by.as_str()),
            ("worker.php", "frankenphp_handle_request()")
        );
        assert_eq!(
            look(&[("index.php", "<?php"), ("worker.php", "<?php // a queue")], None),
            None
        );
    }
}
