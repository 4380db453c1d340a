//! `haulier bench run`: plans with real servers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{Ended, Place};

/// Two hauliers with different pages, one that cannot start, and a script.
const PLAN: &str = r#"
[plan]
title = "Two pages"
about = "Which is larger?"
prepare = ["mkdir '@PLACE@/root'", "cp '@PLAN@/small.html' '@PLAN@/large.html' '@PLACE@/root'"]
env = { GREETING = "hello" }

[values]
ROOT_DIR = "@PLACE@/root"

[server.one]
about = "the first"
run = "'@HAULIER@' run -c '@RUN@/haulier.toml'"
files = { "haulier.toml" = "haulier.conf" }
ready = "/small.html"
version = "'@HAULIER@' --version"

[server.two]
about = "the second"
like = "one"
append = { "haulier.toml" = "more.conf" }

[server.absent]
run = "a-program-that-nobody-has --port @PORT@"

[[table]]
title = "small against large"
flags = "-n 20 -c 2 --rounds 3 --warmup 0 --no-keepalive"
targets = { small = "one/small.html", large = "two/large.html", nobody = "absent/" }

[[script]]
title = "what a script sees"
run = "sh '@PLAN@/script.sh'"
servers = ["one", "two"]
"#;

const CONFIGURATION: &str = r#"
[server]
http = "127.0.0.1:@PORT@"
admin = "off"
control = "@RUN@/control"
[log]
access = "off"
[site.pages]
root = "@ROOT_DIR@"
app = "static"
"#;

const SCRIPT: &str = r#"
read -r asked
servers=$(printf '%s' "$asked" | tr ',' '\n' | grep -c '"port"')
printf '{"sentences": ["%s servers, %s"], "tables": [{"title": "seen", "columns": [{"name": "s", "unit": "time"}],' "$servers" "$GREETING"
printf '"rows": [{"name": "a", "cells": [1500]}, {"name": "b", "cells": [null]}]}]}'
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place.write("haulier.conf", CONFIGURATION);
    place.write("more.conf", "[limits]\nheader = \"32KiB\"\n");
    place.write("script.sh", SCRIPT);
    place.write("small.html", "small");
    place.write("large.html", &"large ".repeat(2000));
    place
}

fn run(place: &Place, more: &[&str]) -> Ended {
    place.bench(&[&["run", "plan.toml"], more].concat())
}

fn book(place: &Place) -> Value {
    let text = fs::read_to_string(place.path("book.json")).expect("written");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_plan_starts_measures_and_ends_its_servers() {
    let place = place();
    let ended = run(&place, &["-o", "book.json", "-o", "page.html", "-o", "page.md"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let book = book(&place);
    let page = &book["pages"][0];
    assert_eq!(page["title"], "Two pages");
    assert_eq!(page["left_out"][0][1], "a-program-that-nobody-has is not installed");
    let versions = page["versions"].as_array().expect("versions");
    assert_eq!(versions.len(), 1, "one program: {versions:?}");
    assert_eq!(versions[0][0], "the first, the second");

    let table = &page["parts"][0]["run"];
    let names: Vec<&str> = table["targets"]
        .as_array()
        .expect("targets")
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["small", "large"]);
    assert_eq!(table["targets"][0]["answer"]["body_bytes"], 5);
    assert_eq!(table["points"][0]["total"]["requests"], 60, "3 rounds of 20");
    assert!(
        table["points"][1]["total"]["server"]["pss_bytes"]
            .as_u64()
            .expect("sampled by pid")
            > 100_000
    );
    let command = table["command"].as_array().expect("a command");
    assert!(command.iter().any(|word| word == "small=one/small.html"), "{command:?}");

    let outcome = &page["parts"][1]["outcome"];
    assert_eq!(outcome["sentences"][0], "2 servers, hello");
    assert!(ended.stdout.contains("1.50 ms"), "{}", ended.stdout);
    for file in ["page.html", "page.md"] {
        let text = fs::read_to_string(place.path(file)).expect("written");
        assert!(
            text.contains("small against large") && text.contains("2 servers, hello"),
            "{file}"
        );
    }

    for stored in ["book.json", "page.html"] {
        let again = place.bench(&["report", stored, "-o", "again.json"]);
        assert_eq!(again.code, Some(0), "{stored}: {again:?}");
        let text = fs::read_to_string(place.path("again.json")).expect("written");
        let read: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read["pages"], book["pages"], "{stored}");
    }
}

#[test]
fn only_the_wanted_parts_run() {
    let place = place();
    let ended = run(&place, &["--only", "SCRIPT", "-o", "book.json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let parts = book(&place)["pages"][0]["parts"].as_array().expect("parts").len();
    assert_eq!(parts, 1);
    let none = run(&place, &["--only", "nothing of that name"]);
    assert_eq!(none.code, Some(1));
    assert!(
        none.stderr.contains("no part has a title with nothing of that name"),
        "{}",
        none.stderr
    );
}

#[test]
fn a_text_that_is_a_title_means_that_part_alone() {
    let place = place();
    place.write("plan.toml", &PLAN.replace("what a script sees", "large"));
    let ended = run(&place, &["--only", "large", "-o", "book.json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = book(&place);
    let parts = report["pages"][0]["parts"].as_array().expect("parts");
    assert_eq!((parts.len(), &parts[0]["title"]), (1, &Value::from("large")));
}

#[test]
fn parts_that_are_not_measured_again_are_kept_and_goals_are_judged() {
    let place = place();
    let table = "flags = \"-n 20 -c 2 --warmup 0\"\nbody = \"@PLAN@/small.html\"\nshow = [\"requests/s\", \"failed\"]\n\
                 goals = [\"failed <= 0\", \"requests/s >= 1_000_000_000\"]\n#";
    place.write("plan.toml", &PLAN.replacen("flags = ", table, 1));
    let first = run(&place, &["--rounds", "2", "--keep", "kept.json", "-o", "page.md"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(
        first.stdout.contains("MISSED: requests/s >= 1_000_000_000"),
        "{}",
        first.stdout
    );
    assert!(
        first
            .stderr
            .contains("left out: large (small against large: its 12000 bytes differ from"),
        "{}",
        first.stderr
    );
    let kept = || -> Value {
        let text = fs::read_to_string(place.path("kept.json")).expect("written");
        serde_json::from_str(&text).expect("JSON")
    };
    let before = kept();
    let table = &before["pages"][0]["parts"][0];
    assert_eq!(table["run"]["load"]["rounds"], 2);
    let reached: Vec<&Value> = (0..2).map(|goal| &table["goals"][goal]["is_reached"]).collect();
    assert_eq!(reached, [true, false]);
    let page = fs::read_to_string(place.path("page.md")).expect("written");
    assert!(page.contains("| 2 connections | requests/s | failed |"), "{page}");
    assert!(page.contains("| **MISSED** |"), "{page}");
    let again = run(&place, &["--only", "script", "--keep", "kept.json"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    let after = kept();
    assert_eq!(after["pages"][0]["parts"][0], *table);
    assert_ne!(
        after["pages"][0]["parts"][1]["measured"],
        Value::Null,
        "measured now: {after}"
    );
}

#[test]
fn a_part_that_cannot_be_measured_is_reported_and_the_others_are_measured() {
    let place = place();
    let failing = PLAN
        .replace("sh '@PLAN@/script.sh'", "sh -c 'echo the reason >&2; exit 3'")
        .replace("[[script]]\n", "[[script]]\npatience = \"20s\"\n");
    place.write("plan.toml", &failing);
    let ended = run(&place, &["-o", "book.json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let parts = &book(&place)["pages"][0]["parts"];
    assert_eq!(parts[0]["part"], "run");
    assert_eq!(parts[1]["part"], "failed");
    let why = parts[1]["why"].as_str().expect("words");
    assert!(why.contains("exit status: 3") && why.contains("the reason"), "{why}");

    place.write(
        "plan.toml",
        &PLAN.replace("flags = ", "expect = \"no such text\"\nflags = "),
    );
    run(&place, &["-o", "book.json", "--only", "small"]);
    let why = book(&place)["pages"][0]["parts"][0]["why"].to_string();
    assert!(why.contains("small did not answer as expected"), "{why}");
}

#[test]
fn an_interrupted_plan_leaves_no_process_and_no_directory() {
    let place = place();
    let slow = PLAN.replace("-n 20 -c 2 --rounds 3", "-c 2 --duration 60s --rounds 1");
    place.write("plan.toml", &slow);
    let temporary = place.path("tmp");
    fs::create_dir(&temporary).expect("ours");
    let mut child = place
        .command(&["run", "plan.toml", "--only", "small"])
        .env("TMPDIR", &temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let inside = temporary.display().to_string();
    let deadline = Instant::now() + Duration::from_secs(60);
    while processes_with(&inside).len() < 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let running = processes_with(&inside);
    assert!(running.len() >= 3, "two servers and the generator: {running:?}");
    Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .expect("kill");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    while !processes_with(&inside).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(processes_with(&inside), Vec::<String>::new());
    let left: Vec<_> = fs::read_dir(&temporary).expect("ours").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Processes whose command line names this directory.
fn processes_with(directory: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").expect("Linux");
    let pids = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names = |pid: &String| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(directory)
    };
    pids.filter(names).collect()
}

#[test]
fn every_broken_plan_is_explained_at_its_place() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bench/plans");
    let mut plans: Vec<_> = fs::read_dir(&cases)
        .expect("cases")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    plans.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    plans.sort();
    assert!(plans.len() >= 12, "only {} cases", plans.len());
    let mut wrong = Vec::new();
    for path in plans {
        let output = Command::new(env!("CARGO_BIN_EXE_haulier"))
            .args(["bench", "run", "--check"])
            .arg(path.file_name().expect("a name"))
            .current_dir(&cases)
            .env_remove("HAULIER_UNSET")
            .output()
            .expect("the program starts");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{}: {said}", path.display());
        let expected = path.with_extension("expected");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&expected, &said).expect("expectations can be written");
        }
        if fs::read_to_string(&expected).unwrap_or_default() != said {
            wrong.push(format!("== {}\n{said}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_plans_of_benchmarks_and_experiments_are_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["bench", "experiments"].map(|name| root.join(name));
    let inside = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let inside = inside.map(|entry| entry.expect("an entry").path());
    let mut plans = 0;
    for plan in inside
        .chain(folders.iter().cloned())
        .map(|folder| folder.join("plan.toml"))
        .filter(|plan| plan.exists())
    {
        plans += 1;
        let checked = Place::new().bench(&["run", "--check", &plan.display().to_string()]);
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    }
    assert!(plans >= 7, "{plans} plans");
}

#[test]
fn the_plan_of_the_documentation_is_right() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plans.md");
    let page = fs::read_to_string(docs).expect("the page");
    let rest = page.split("```toml plan\n").skip(1);
    let blocks: Vec<&str> = rest.filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        let place = Place::new();
        place.write("plan.toml", block);
        place.write("haulier.conf", "root @DOCROOT@");
        place.write("nginx.conf", "listen @PORT@; root @DOCROOT@;");
        let checked = run(&place, &["--check"]);
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    }
}
