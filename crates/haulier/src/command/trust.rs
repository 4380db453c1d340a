//! `haulier trust`: installs the authority of `serve --https` in the trust stores of this machine, and prints the result
//! for each.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::certificates::local::LocalAuthority;
use crate::certificates::state_directory;
use crate::cli::{Console, TrustArgs};
use crate::error_chain::with_sources;
use crate::outcome::CommandOutcome;

/// Its name in lists, and the name of its file.
const NAME: &str = "haulier-local-authority";

/// Directories for added authorities by distribution, each with the program that updates its trust store.
const SYSTEM_STORES: [(&str, &str, &[&str]); 3] = [
    ("/usr/local/share/ca-certificates", "crt", &["update-ca-certificates"]),
    (
        "/etc/pki/ca-trust/source/anchors",
        "pem",
        &["update-ca-trust", "extract"],
    ),
    (
        "/etc/ca-certificates/trust-source/anchors",
        "crt",
        &["trust", "extract-compat"],
    ),
];

pub(super) fn run(arguments: &TrustArgs, console: &Console) -> CommandOutcome {
    let state = arguments.state.clone().unwrap_or_else(state_directory);
    let authority = match LocalAuthority::open(&state) {
        Ok(authority) => authority,
        Err(error) => {
            eprintln!("error: {}", with_sources(&error));
            return CommandOutcome::Failed;
        }
    };
    let file = authority.certificate_file();
    let mut said = StoreResults::new(console.quiet);
    if !arguments.undo {
        said.line(&format!("the authority of `haulier serve --https`: {}", file.display()));
        said.line("keep its key private: with it one can impersonate any site to this machine's browsers");
    }
    let system = system_store(file, arguments.undo);
    said.result("the system", &system);
    let browsers: Vec<_> = browser_stores()
        .into_iter()
        .map(|store| {
            let result = browser_store(&store, file, arguments.undo);
            said.result(&store.display().to_string(), &result);
            result
        })
        .collect();
    if browsers.is_empty() {
        said.line("browsers: none keeps a store of its own for this account");
    }
    let failed = [&system].into_iter().chain(&browsers).any(|result| result.is_err());
    if failed {
        CommandOutcome::Failed
    } else {
        CommandOutcome::Done
    }
}

/// The result for one trust store: what was done, or what to do.
type Result = std::result::Result<&'static str, String>;

struct StoreResults {
    quiet: bool,
}

impl StoreResults {
    fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// A closed standard output is not a failure.
    fn line(&mut self, text: &str) {
        if !self.quiet {
            let _ = writeln!(io::stdout(), "{text}");
        }
    }

    fn result(&mut self, place: &str, result: &Result) {
        match result {
            Ok(done) => self.line(&format!("{place}: {done}")),
            Err(why) => eprintln!("{place}: {why}"),
        }
    }
}

/// The store that curl, PHP and most programs use.
fn system_store(certificate: &Path, undo: bool) -> Result {
    let Some((directory, extension, update)) = SYSTEM_STORES
        .iter()
        .find(|(directory, ..)| Path::new(directory).is_dir())
    else {
        let why = "it has none of the stores haulier knows; import the file above by hand";
        return Err(why.to_owned());
    };
    let path = Path::new(directory).join(format!("{NAME}.{extension}"));
    let done = if undo {
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok("did not trust it"),
            removed => removed.map(|()| "trusts it no longer"),
        }
    } else {
        let same = fs::read(&path).ok() == fs::read(certificate).ok();
        if path.exists() && same {
            return Ok("trusts it already");
        }
        // A certificate is public; the key is not copied.
        fs::read(certificate)
            .and_then(|content| fs::write(&path, content))
            .map(|()| "trusts it now")
    };
    let done = done.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!(
                "only root may change {directory}: sudo haulier trust --state {}",
                state_of(certificate).display()
            )
        }
        _ => format!("{}: {error}", path.display()),
    })?;
    run_program(update[0], &update[1..])?;
    Ok(done)
}

/// The state directory of a certificate of ours.
fn state_of(certificate: &Path) -> &Path {
    certificate.ancestors().nth(2).unwrap_or(certificate)
}

/// The trust stores of browsers for this account: Chromium's, and one in each profile of Firefox.
fn browser_stores() -> Vec<PathBuf> {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else {
        return Vec::new();
    };
    let profiles = [
        ".mozilla/firefox",
        "snap/firefox/common/.mozilla/firefox",
        ".var/app/org.mozilla.firefox/.mozilla/firefox",
    ];
    let of_firefox = profiles
        .iter()
        .filter_map(|profiles| fs::read_dir(home.join(profiles)).ok())
        .flatten()
        .filter_map(|profile| Some(profile.ok()?.path()));
    let shared = [home.join(".pki/nssdb"), home.join("snap/chromium/current/.pki/nssdb")];
    let all = shared.into_iter().chain(of_firefox);
    all.filter(|store| store.join("cert9.db").is_file()).collect()
}

/// Changes a store of NSS by its own tool.
fn browser_store(store: &Path, certificate: &Path, undo: bool) -> Result {
    let mut database = std::ffi::OsString::from("sql:");
    database.push(store);
    let database = database.as_os_str();
    let known = [
        OsStr::new("-L"),
        OsStr::new("-d"),
        database,
        OsStr::new("-n"),
        OsStr::new(NAME),
    ];
    let is_known = match quietly("certutil", &known).status() {
        Ok(status) => status.success(),
        Err(_) => return Err("certutil is missing: apt install libnss3-tools".to_owned()),
    };
    if is_known {
        run_program(
            "certutil",
            &[
                OsStr::new("-D"),
                OsStr::new("-d"),
                database,
                OsStr::new("-n"),
                OsStr::new(NAME),
            ],
        )?;
    }
    if undo {
        return Ok(if is_known {
            "trusts it no longer"
        } else {
            "did not trust it"
        });
    }
    let add = ["-A", "-t", "C,,", "-n", NAME, "-i"].map(OsStr::new);
    let add: Vec<&OsStr> = add
        .into_iter()
        .chain([certificate.as_os_str(), OsStr::new("-d"), database])
        .collect();
    run_program("certutil", &add)?;
    Ok(if is_known { "trusts it already" } else { "trusts it now" })
}

fn quietly(program: &str, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn run_program(program: &str, arguments: &[impl AsRef<OsStr>]) -> std::result::Result<(), String> {
    let output = quietly(program, arguments).stderr(Stdio::piped()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} failed: {}", said.trim()))
}
