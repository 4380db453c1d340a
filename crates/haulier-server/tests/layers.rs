//! Imports point downwards: the folders and files of a crate form layers, and none imports from a layer above it.

use std::fs;
use std::path::Path;

/// The layers of each crate, uppermost first. ARCHITECTURE.md draws those of the server.
const CRATES: [(&str, &[&str]); 1] = [(
    "haulier-server",
    &[
        "lib",
        "runtime",
        "listen",
        "protocol",
        "pipeline",
        "handler",
        "relay",
        "filter",
        "context",
        "answer",
        "thread",
        "metrics",
        "settings",
        "site",
        "images",
        "files",
        "compress",
        "body",
        "access_log",
        "forwarded",
        "io",
        "tls",
        "password",
        "rate_limiter",
        "pattern",
        "log_throttle",
        "local_time",
        "lock",
        "clock",
    ],
)];

#[test]
fn imports_run_downwards() {
    let mut wrong = Vec::new();
    for (name, layers) in CRATES {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        check(&source, &source, layers, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check(source: &Path, folder: &Path, layers: &[&str], wrong: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            check(source, &path, layers, wrong);
        } else if !["tests.rs", "fixture.rs"].iter().any(|name| path.ends_with(name)) {
            check_file(source, &path, layers, wrong);
        }
    }
}

fn check_file(source: &Path, path: &Path, layers: &[&str], wrong: &mut Vec<String>) {
    let layer_of = |unit: &str| layers.iter().position(|layer| *layer == unit);
    let inside = path
        .strip_prefix(source)
        .expect("a file of the crate")
        .with_extension("");
    let unit = inside.iter().next().expect("a name").to_string_lossy();
    let Some(own) = layer_of(&unit) else {
        return wrong.push(format!("{}: `{unit}` has no layer", path.display()));
    };
    let text = fs::read_to_string(path).expect("a source is text");
    let code = text
        .lines()
        .take_while(|line| line.trim() != "#[cfg(test)]" || !text.contains("mod tests {"));
    for (number, line) in code
        .enumerate()
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
    {
        for import in line.split("crate::").skip(1) {
            let unit: String = import
                .chars()
                .take_while(|&letter| letter == '_' || letter.is_alphanumeric())
                .collect();
            if layer_of(&unit).is_some_and(|layer| layer < own) {
                wrong.push(format!(
                    "{}:{}: imports `{unit}` from above",
                    path.display(),
                    number + 1
                ));
            }
        }
    }
}
