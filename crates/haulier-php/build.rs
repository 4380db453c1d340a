//! Compiles the extension for the workers of our own (embed/) against every PHP whose headers are installed.
//!
//! The extension goes into the program, for each version of PHP one: a PHP of another version is run as php-cgi. Headers
//! of other systems count too: `HAULIER_PHP_ROOTS` names their root directories, separated by colons.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The variable that names roots of other systems.
const ROOTS: &str = "HAULIER_PHP_ROOTS";

/// Names of the program that tells where the headers of a PHP are.
const PROGRAMS: [&str; 6] = [
    "php-config8.1",
    "php-config8.2",
    "php-config8.3",
    "php-config8.4",
    "php-config8.5",
    "php-config",
];

/// Set by tests/sanitizer/run.sh: the extension is compiled for AddressSanitizer and UndefinedBehaviorSanitizer.
const SANITIZER: &str = "HAULIER_SANITIZER";

fn main() {
    println!("cargo::rerun-if-changed=embed");
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rerun-if-env-changed={ROOTS}");
    println!("cargo::rerun-if-env-changed={SANITIZER}");
    println!("cargo::rerun-if-changed=/usr/bin"); // a PHP whose headers are installed later
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut built: Vec<(String, PathBuf)> = Vec::new();
    for config in configs() {
        let Some(version) = config
            .version()
            .filter(|version| built.iter().all(|(known, _)| known != version))
        else {
            continue;
        };
        let file = out.join(format!("haulier-{version}.so"));
        match compile(&config, &file) {
            Ok(()) => built.push((version, file)),
            Err(why) => println!("cargo::warning=PHP {version} has no workers of haulier's own: {why}"),
        }
    }
    if built.is_empty() {
        println!("cargo::warning=no headers of PHP (php-dev) are installed: haulier runs php-cgi alone");
    }
    let rows: String = built
        .iter()
        .map(|(version, file)| format!("    ({version:?}, include_bytes!({:?})),\n", file.display().to_string()))
        .collect();
    let text = format!("static EXTENSIONS: &[(&str, &[u8])] = &[\n{rows}];\n");
    fs::write(out.join("extensions.rs"), text).expect("cargo gives a directory to write in");
}

/// A `php-config`.
struct Config {
    program: PathBuf,
    /// Where its paths begin: empty for those of this system.
    root: PathBuf,
}

/// Those of this system first.
fn configs() -> Vec<Config> {
    let here = PROGRAMS.map(|name| Config {
        program: name.into(),
        root: PathBuf::new(),
    });
    let roots = env::var_os(ROOTS).unwrap_or_default();
    let elsewhere = env::split_paths(&roots).filter(|root| root.is_dir()).flat_map(|root| {
        println!("cargo::rerun-if-changed={}", root.join("usr/include/php").display());
        PROGRAMS.map(|name| Config {
            program: root.join("usr/bin").join(name),
            root: root.clone(),
        })
    });
    here.into_iter().chain(elsewhere).collect()
}

impl Config {
    /// The program's output for one option; `None` if it is not installed or fails.
    fn asked(&self, question: &str) -> Option<String> {
        let output = Command::new(&self.program).arg(question).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Such as `8.2`.
    fn version(&self) -> Option<String> {
        let version = self.asked("--version")?;
        let mut numbers = version.splitn(3, '.');
        Some(format!("{}.{}", numbers.next()?, numbers.next()?))
    }

    /// The compiler's options that name the directories of the headers.
    fn includes(&self) -> Option<Vec<String>> {
        let told = self.asked("--includes")?;
        let directories = told.split_whitespace().map(|option| match option.strip_prefix("-I") {
            Some(directory) => format!("-I{}{directory}", self.root.display()),
            None => option.to_owned(),
        });
        Some(directories.collect())
    }
}

fn compile(config: &Config, file: &Path) -> Result<(), String> {
    let includes = config
        .includes()
        .ok_or("php-config does not tell where the headers are")?;
    let mut sources: Vec<PathBuf> = fs::read_dir("embed")
        .map_err(|error| error.to_string())?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let mut command = cc::Build::new().opt_level(2).get_compiler().to_command();
    command
        .args(["-shared", "-fPIC", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra"])
        .arg("-Wno-unused-parameter")
        .args(match env::var_os(SANITIZER) {
            None => ["-g0", "-s"],
            Some(_) => ["-g", "-fsanitize=address,undefined"],
        })
        .args(includes)
        .args(&sources)
        .arg("-o")
        .arg(file);
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr)
            .lines()
            .take(8)
            .collect::<Vec<_>>()
            .join(" | "))
    }
}
