//! Compiles the extension for the workers of our own (embed/) against every PHP whose headers are installed.
//!
//! The extension goes into the program, for each version of PHP one: a PHP of another version is run as php-cgi.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Names of the program that tells where the headers of a PHP are.
const PROGRAMS: [&str; 6] = [
    "php-config8.1",
    "php-config8.2",
    "php-config8.3",
    "php-config8.4",
    "php-config8.5",
    "php-config",
];

fn main() {
    println!("cargo::rerun-if-changed=embed");
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rerun-if-changed=/usr/bin"); // a PHP whose headers are installed later
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut built: Vec<(String, PathBuf)> = Vec::new();
    for program in PROGRAMS {
        let Some(version) = version_of(program).filter(|version| built.iter().all(|(known, _)| known != version))
        else {
            continue;
        };
        let file = out.join(format!("haulier-{version}.so"));
        match compile(program, &file) {
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

/// The program's output for one option; `None` if it is not installed or fails.
fn asked(program: &str, question: &str) -> Option<String> {
    let output = Command::new(program).arg(question).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Such as `8.2`.
fn version_of(program: &str) -> Option<String> {
    let version = asked(program, "--version")?;
    let mut numbers = version.splitn(3, '.');
    Some(format!("{}.{}", numbers.next()?, numbers.next()?))
}

fn compile(program: &str, file: &Path) -> Result<(), String> {
    let includes = asked(program, "--includes").ok_or("php-config does not tell where the headers are")?;
    let mut sources: Vec<PathBuf> = fs::read_dir("embed")
        .map_err(|error| error.to_string())?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let mut command = cc::Build::new().opt_level(2).get_compiler().to_command();
    command
        .args([
            "-shared",
            "-fPIC",
            "-O2",
            "-g0",
            "-s",
            "-fvisibility=hidden",
            "-Wall",
            "-Wextra",
        ])
        .arg("-Wno-unused-parameter")
        .args(includes.split_whitespace())
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
