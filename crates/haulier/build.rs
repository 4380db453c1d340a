//! Tells the program its commit and features for `--version`.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!(
        "cargo:rustc-env=HAULIER_COMMIT={}",
        commit().map_or_else(String::new, |commit| format!(" ({commit})"))
    );
    println!("cargo:rustc-env=HAULIER_FEATURES={}", features());
}

/// The commit of a release build from git. A debug build would be linked anew after every commit.
fn commit() -> Option<String> {
    if env::var("PROFILE").as_deref() != Ok("release") {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    println!(
        "cargo:rerun-if-changed={}",
        git(&["rev-parse", "--git-path", "logs/HEAD"])?
    );
    git(&["rev-parse", "--short=9", "HEAD"])
}

fn features() -> String {
    let names = ["avif", "mimalloc", "turbo"];
    let enabled = names
        .iter()
        .filter(|name| env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some());
    enabled.map(|name| format!(" +{name}")).collect()
}
