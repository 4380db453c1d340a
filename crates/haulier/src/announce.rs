//! The start message: a few lines on a terminal, one JSON line otherwise.

use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use haulier_server::Address;
use serde_json::{Value, json};

use crate::admin::Admin;
use crate::cli::Console;
use crate::config::settings::{Mode, Pool, Settings, Site};
use crate::log::{Format, json_line, seconds};
use crate::quantity::plural;

/// The message for one start; the addresses are filled in when they are bound.
#[derive(Debug)]
pub(crate) struct Announcement {
    mode: Mode,
    /// `Symfony in ./public (public/index.php) · PHP 8.2.36 · 4 haulier workers`
    what: String,
    /// A line below, if there is something to know.
    remark: Option<String>,
    /// A line about the project's own configuration.
    config_note: Option<String>,
    /// Lines of the log, written once.
    notes: Vec<String>,
    /// The same as JSON fields.
    fields: Vec<(&'static str, Value)>,
    public: bool,
    open: bool,
    format: Format,
}

impl Announcement {
    /// For `run`.
    pub(crate) fn of_run(settings: &Settings, config: &Path) -> Self {
        let mut fields = fields(settings);
        fields.push(("config", json!(config)));
        let users: Vec<String> = settings.pools.iter().filter_map(run_as).collect();
        let remark = (!users.is_empty()).then(|| users.join("; "));
        let what = format!("{} from {}", what(settings, None), config.display());
        Self {
            mode: Mode::Run,
            what,
            remark,
            config_note: None,
            notes: booted_remarks(settings, Mode::Run)
                .chain(settings.pools.iter().filter_map(Pool::remark))
                .collect(),
            fields,
            public: false,
            open: false,
            format: settings.log.format,
        }
    }

    /// For `serve`; `config` is the project's own configuration, `config_note` a line about it.
    pub(crate) fn of_serve(
        settings: &Settings,
        directory: &Path,
        config: Option<&Path>,
        config_note: Option<String>,
        public: bool,
        open: bool,
    ) -> Self {
        let mut what = what(settings, Some(directory));
        let remark = remark(settings);
        let mut fields = fields(settings);
        if let Some(config) = config {
            what.push_str(&format!(" · as {} says", config.display()));
            fields.push(("config", json!(config)));
        }
        fields.extend(config_note.as_ref().map(|note| ("note", json!(note))));
        let booted: Vec<String> = booted_remarks(settings, Mode::Serve).collect();
        if !booted.is_empty() {
            fields.push(("booted", json!(booted)));
        }
        let remarks = settings.sites.iter().filter_map(|site| site.htaccess.clone());
        Self {
            mode: Mode::Serve,
            what,
            remark,
            config_note: Some(booted.into_iter().chain(config_note).collect::<Vec<_>>().join("\n  ")),
            notes: remarks.chain(settings.pools.iter().filter_map(Pool::remark)).collect(),
            fields,
            public,
            open,
            format: settings.log.format,
        }
    }

    /// Prints it on standard error, like all messages of a server. A closed standard error is not a failure.
    pub(crate) fn print(&self, addresses: &[Address], secure: &[Address], admin: &Admin, console: &Console) {
        if self.open
            && let Some(first) = addresses.iter().find(|address| address.internet().is_some())
        {
            open_browser(&shown(first, secure));
        }
        if console.quiet {
            return;
        }
        let text = match self.format {
            Format::Text => true,
            Format::Json => false,
            Format::Auto | Format::Combined => io::stderr().is_terminal(),
        };
        let answer = if text {
            self.text(addresses, secure, admin, console.colors_stderr())
        } else {
            self.json(addresses, secure, admin)
        };
        let mut output = io::stderr().lock();
        let _ = output.write_all(answer.as_bytes()).and_then(|()| output.flush());
        drop(output);
        for note in &self.notes {
            tracing::info!("{note}");
        }
    }

    fn text(&self, addresses: &[Address], secure: &[Address], admin: &Admin, color: bool) -> String {
        let mut text = format!("haulier {} · {}\n\n", env!("CARGO_PKG_VERSION"), self.what);
        let urls: Vec<String> = addresses.iter().map(|address| shown(address, secure)).collect();
        text.push_str(&format!("  {}", urls.join("  ")));
        if self.public {
            let (on, off) = if color { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
            text.push_str(&format!("   {on}open to the whole network{off}"));
        }
        if let Some(address) = admin.internet() {
            text.push_str(&format!("   dashboard  {}", url("http", address)));
        }
        text.push_str("\n\n");
        let remark = self
            .remark
            .as_deref()
            .unwrap_or("files are sent by haulier, PHP answers the rest.");
        let end = if self.mode == Mode::Serve {
            "  Ctrl-C stops."
        } else {
            ""
        };
        text.push_str(&format!("  {remark}{end}\n"));
        if let Some(note) = self.config_note.as_ref().filter(|note| !note.is_empty()) {
            text.push_str(&format!("  {note}\n"));
        }
        text
    }

    fn json(&self, addresses: &[Address], secure: &[Address], admin: &Admin) -> String {
        let all = |addresses: &[Address]| -> Vec<String> { addresses.iter().map(Address::to_string).collect() };
        let first = [
            ("ts", json!(seconds(SystemTime::now()))),
            ("level", json!("info")),
            ("msg", json!("listening")),
            ("listen", json!(all(addresses))),
            ("https", json!(all(secure))),
            ("admin", json!(admin.address())),
            ("probes", json!(admin.probes())),
            ("control", json!(admin.control_path())),
        ];
        json_line(first.into_iter().chain(self.fields.iter().cloned()))
    }
}

/// The sites and pools that are served, for people.
pub(crate) fn what(settings: &Settings, directory: Option<&Path>) -> String {
    let mut parts = Vec::new();
    match &settings.sites[..] {
        [site] => parts.push(describe(site, directory)),
        sites => parts.push(format!("{} sites", sites.len())),
    }
    for pool in &settings.pools {
        let php = pool.php.as_ref().filter(|_| !pool.boots_script());
        parts.extend(php.map(|php| format!("PHP {}", php.version)));
        parts.push(plural(pool.workers(), pool.worker_kind()));
    }
    parts.join(" · ")
}

/// `Symfony in ./public (public/index.php)`
fn describe(site: &Site, directory: Option<&Path>) -> String {
    if let Some(images) = site.images_alone() {
        return images;
    }
    let relative = directory.and_then(|directory| site.app.root.strip_prefix(directory).ok());
    let Some(relative) = relative else {
        return format!("{} in {}", site.app.preset.title, site.app.root.display());
    };
    let folder = if relative.as_os_str().is_empty() {
        ".".to_owned()
    } else {
        format!("./{}", relative.display())
    };
    let front = site.front.as_ref().map_or_else(String::new, |front| {
        format!(" ({})", relative.join(front.trim_start_matches('/')).display())
    });
    format!("{} in {folder}{front}", site.app.preset.title)
}

fn remark(settings: &Settings) -> Option<String> {
    let [site] = &settings.sites[..] else { return None };
    match site.app.preset.name {
        _ if site.is_rootless => Some("drop a picture on the page.".to_owned()),
        "plain" if site.front.is_none() => {
            Some("no front controller: a missing file is a 404 (use --app front to send all to index.php).".to_owned())
        }
        "static" if site.looked_at.is_some() => Some("no PHP files yet: PHP starts with the first one.".to_owned()),
        "static" => Some("PHP is not started.".to_owned()),
        _ => site.app.preset.remark.map(|remark| format!("{remark}.")),
    }
}

/// Lines about scripts that are made to stay booted.
pub(crate) fn booted_remarks(settings: &Settings, mode: Mode) -> impl Iterator<Item = String> {
    let sites = settings.sites.iter();
    sites.filter_map(move |site| site.booted_remark(mode, &settings.pools))
}

/// The account that PHP runs as, if root names another one.
fn run_as(pool: &Pool) -> Option<String> {
    let user = pool.settings.kind.user()?;
    Some(format!("pool {} runs PHP as {}", pool.settings.name, user.name))
}

fn fields(settings: &Settings) -> Vec<(&'static str, Value)> {
    let sites = settings.sites.iter().map(|site| {
        let root = (!site.is_rootless).then_some(&site.app.root);
        let store = site.images.as_ref().and_then(|images| images.store.as_ref());
        let images = store.map(|store| store.location.to_string());
        json!({"name": site.settings.name, "app": site.app.preset.name, "root": root, "images": images})
    });
    let pools = settings.pools.iter().map(|pool| {
        let php = pool.php.as_ref().map(|php| php.version.as_str());
        json!({"name": pool.settings.name, "workers": pool.workers(), "php": php, "run": pool.run(), "remark": run_as(pool)})
    });
    vec![
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("pid", json!(std::process::id())),
        ("sites", sites.collect()),
        ("pools", pools.collect()),
        ("threads", json!(settings.server.threads)),
        ("connections", json!(settings.server.limits.connections)),
    ]
}

/// The URL of an address as one types it, or the path of a socket.
fn shown(address: &Address, secure: &[Address]) -> String {
    let scheme = if secure.contains(address) { "https" } else { "http" };
    let of_port = |internet| url(scheme, internet);
    address.internet().map_or_else(|| address.to_string(), of_port)
}

/// The URL for a browser on this machine; for a wildcard address, one for the network.
fn url(scheme: &str, address: SocketAddr) -> String {
    let host = if address.ip().is_unspecified() {
        own_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    } else {
        address.ip()
    };
    match (scheme, address.port()) {
        ("http", 80) | ("https", 443) if host.is_ipv4() => format!("{scheme}://{host}/"),
        ("http", 80) | ("https", 443) => format!("{scheme}://[{host}]/"),
        (_, port) => format!("{scheme}://{}/", SocketAddr::new(host, port)),
    }
}

/// This machine's address towards the network. Connecting a datagram socket sends no packet: it only asks the routing
/// table.
pub(crate) fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

fn open_browser(url: &str) {
    let quiet = || Stdio::null();
    let opened = Command::new("xdg-open")
        .arg(url)
        .stdin(quiet())
        .stdout(quiet())
        .stderr(quiet())
        .spawn();
    if let Err(error) = opened {
        tracing::warn!(%error, "cannot open a browser: xdg-open does not start");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_are_what_one_types() {
        let url = |text: &str| super::url("http", text.parse().expect("a literal address"));
        assert_eq!(url("127.0.0.1:8080"), "http://127.0.0.1:8080/");
        assert_eq!(url("127.0.0.1:80"), "http://127.0.0.1/");
        assert_eq!(url("[::1]:8080"), "http://[::1]:8080/");
        assert_eq!(url("[::1]:80"), "http://[::1]/");
        let secure = |text: &str| super::url("https", text.parse().expect("a literal address"));
        assert_eq!(secure("127.0.0.1:443"), "https://127.0.0.1/");
        assert_eq!(secure("[::1]:80"), "https://[::1]:80/");
        assert!(
            !url("0.0.0.0:8080").contains("0.0.0.0:"),
            "nobody can open the wildcard"
        );
    }
}
