//! `haulier serve`: serve a project for development, without configuration.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use haulier_php::WorkersTable;
use haulier_server::{Compat, WithoutTls};
use haulier_settings::{Diagnostic, Placed, Report};

use super::configuration;
use crate::announce::{self, Announcement};
use crate::certificates::Tls;
use crate::cli::{Console, ServeArgs};
use crate::config;
use crate::config::file::{File, WorkerMode};
use crate::config::settings::{Mode, Settings};
use crate::config::tables::{PoolTable, SiteTable};
use crate::lifecycle::{self, ConfigurationSource, StartOptions};
use crate::machine::Machine;
use crate::outcome::CommandOutcome;
use crate::purpose::Purpose;

/// The default address.
const PORT: u16 = 8080;
/// The default port for images alone: zimg's.
const IMAGES_PORT: u16 = 4869;
/// Disk space for variants, next to the images of `--images`.
const VARIANTS: &str = "1GiB";
/// Ports that are tried after the default one.
const NEXT_PORTS: u16 = 20;
/// The configuration of a project, in its directory.
const FILE_NAME: &str = "haulier.toml";

pub(super) fn run(arguments: &ServeArgs, console: &Console) -> CommandOutcome {
    match start(&with_directory(arguments), console) {
        Ok(outcome) => outcome,
        Err(diagnostic) => {
            configuration::print_one(diagnostic, console);
            CommandOutcome::Misused
        }
    }
}

/// `--worker DIR` names the project, and not a script.
fn with_directory(arguments: &ServeArgs) -> ServeArgs {
    let mut arguments = arguments.clone();
    let named = arguments
        .worker
        .as_mut()
        .and_then(|script| script.take_if(|script| script.is_dir()));
    arguments.directory = arguments.directory.or(named);
    arguments
}

fn start(arguments: &ServeArgs, console: &Console) -> Result<CommandOutcome, Diagnostic> {
    let directory = project_directory(arguments.directory.as_deref().unwrap_or(Path::new(".")))?;
    let address = choose_address(arguments);
    let (again, place) = (arguments.clone(), directory.clone());
    let file = shown(&directory.join(FILE_NAME));
    let source = ConfigurationSource::new(&file, move |report| read(&again, &place, address, report));
    let mut report = Report::default();
    let Ok(configuration) = source.read(&mut report) else {
        configuration::print(&report, console);
        return Ok(CommandOutcome::Misused);
    };
    let settings = &configuration.settings;
    // `--images` alone needs no project.
    let is_asked = arguments.images.is_none() || arguments.directory.is_some();
    let used = Some(file.as_path()).filter(|file| is_asked && file.exists());
    let note = match (arguments.write, used) {
        (false, _) => None,
        (true, Some(used)) => Some(format!(
            "{} was there already: it is used, and --write leaves it as it is.",
            used.display()
        )),
        (true, None) => {
            write_configuration(&directory, arguments, settings)?;
            Some(format!(
                "{} is written: it holds the detected settings.",
                file.display()
            ))
        }
    };
    let options = StartOptions {
        announcement: Announcement::of_serve(settings, &directory, used, note, arguments.public, arguments.open),
        source,
        configuration,
        purpose: Purpose::Development,
        report,
        take_over: false,
    };
    Ok(lifecycle::serve(options, console))
}

fn read(
    arguments: &ServeArgs,
    directory: &Path,
    address: SocketAddr,
    report: &mut Report,
) -> Result<Settings, Diagnostic> {
    let mut file = match (&arguments.images, &arguments.directory) {
        (Some(images), None) => File {
            sites: vec![SiteTable::of_images("images", &image_directory(images)?)],
            ..File::default()
        },
        _ => read_or_invent(directory, report)?,
    };
    apply_arguments(&mut file, arguments, directory)?;
    apply_worker(&mut file, arguments, directory)?;
    if let Some(images) = &arguments.images {
        apply_images(&mut file, &image_directory(images)?)?;
    }
    let mut settings = config::resolve(&file, Mode::Serve, &Machine::look(), report);
    settings.server.listen = vec![address.into()];
    answer_every_host(&mut settings);
    if arguments.https && report.errors() == 0 {
        encrypt(&mut settings);
    }
    Ok(settings)
}

fn project_directory(written: &Path) -> Result<PathBuf, Diagnostic> {
    let wrong = |why: &str| Diagnostic::error("serve::directory", format!("{} {why}", written.display()));
    match written.canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(wrong("is a file").help("name the project directory: haulier serve DIR")),
        Err(error) => {
            Err(wrong(&format!("cannot be opened: {error}")).help("name the project directory: haulier serve DIR"))
        }
    }
}

/// The project's own configuration if it has one, else one site for the directory.
fn read_or_invent(directory: &Path, report: &mut Report) -> Result<File, Diagnostic> {
    let path = directory.join(FILE_NAME);
    if !path.exists() {
        return Ok(File {
            sites: vec![SiteTable::rooted("app", directory)],
            ..File::default()
        });
    }
    configuration::load(&shown(&path), report)
}

/// A path as people would write it: relative to the current directory if it is below it.
fn shown(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let inside = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned));
    inside.unwrap_or_else(|| path.to_owned())
}

/// The directory of `--images`, from the root on; it may have to be made.
fn image_directory(written: &Path) -> Result<PathBuf, Diagnostic> {
    std::path::absolute(written).map_err(|error| Diagnostic::error("serve::images", error.to_string()))
}

/// An image store compatible with zimg: its responses, its admin page for this machine, and variants on disk next to
/// the images.
fn apply_images(file: &mut File, directory: &Path) -> Result<(), Diagnostic> {
    let [site] = &mut file.sites[..] else {
        return Err(
            Diagnostic::error("serve::arguments", "--images is for a single site").help(format!(
                "{FILE_NAME} here names several: give one of them `images` there"
            )),
        );
    };
    let text = |value: &str| Placed::unplaced(value.to_owned());
    let images = site.images.get_or_insert_default();
    images.store = Some(text(&directory.to_string_lossy()));
    images.compat.set(Compat::Zimg);
    images.admin = Some(vec![text("127.0.0.0/8"), text("::1")]);
    let variants = format!("disk:{}:{VARIANTS}", directory.join("variants").display());
    images.cache = Some(vec![text("memory:128MiB"), text(&variants)]);
    Ok(())
}

fn apply_arguments(file: &mut File, arguments: &ServeArgs, directory: &Path) -> Result<(), Diagnostic> {
    if arguments.app.is_some() || arguments.root.is_some() {
        let [site] = &mut file.sites[..] else {
            return Err(
                Diagnostic::error("serve::arguments", "--app and --root are for a single site")
                    .help(format!("{FILE_NAME} here names several: change it there")),
            );
        };
        if let Some(app) = &arguments.app {
            site.app.set(app.clone());
        }
        file.document_root = arguments
            .root
            .as_deref()
            .map(|root| document_root(root, directory))
            .transpose()?;
    }
    if arguments.workers.is_none() && arguments.php.is_none() {
        return Ok(());
    }
    if file.pools.is_empty() {
        file.pools.push(PoolTable::named("php"));
    }
    for pool in file.pools.iter_mut().filter(|pool| pool.external.servers.is_none()) {
        if let Some(workers) = arguments.workers {
            pool.supervised.workers = Some(WorkersTable {
                max: Some(Placed::unplaced(workers)),
                ..WorkersTable::default()
            });
        }
        if let Some(php) = &arguments.php {
            pool.supervised.php.set(php.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// Worker mode: of the project that is made for it, of the script that is named, or none.
fn apply_worker(file: &mut File, arguments: &ServeArgs, directory: &Path) -> Result<(), Diagnostic> {
    if arguments.no_worker {
        for site in &mut file.sites {
            site.worker = None;
            site.route.iter_mut().for_each(|route| route.worker = None);
        }
        return Ok(());
    }
    let is_configured = directory.join(FILE_NAME).exists();
    match &arguments.worker {
        // A configuration says itself what stays booted.
        None if is_configured => {}
        None => file.worker_mode = WorkerMode::Found,
        Some(None) => file.worker_mode = WorkerMode::Demanded,
        Some(Some(script)) => {
            let [site] = &mut file.sites[..] else {
                return Err(
                    Diagnostic::error("serve::arguments", "--worker is for a single site").help(format!(
                        "{FILE_NAME} here names several: set `worker` of one of them there"
                    )),
                );
            };
            let path = directory.join(script);
            site.worker = Some(Placed::unplaced(path.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}

fn document_root(root: &Path, directory: &Path) -> Result<PathBuf, Diagnostic> {
    let path = directory.join(root);
    path.canonicalize().ok().filter(|path| path.is_dir()).ok_or_else(|| {
        Diagnostic::error(
            "serve::root",
            format!("document root {} is no directory", path.display()),
        )
        .help("--root starts at the project directory")
    })
}

/// The address given, or 127.0.0.1 with the first free port from 8080 on, for images alone from 4869 on.
fn choose_address(arguments: &ServeArgs) -> SocketAddr {
    let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    if let Some(address) = arguments.listen {
        return if arguments.public {
            SocketAddr::new(everywhere, address.port())
        } else {
            address
        };
    }
    let host = if arguments.public {
        everywhere
    } else {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    };
    let first = match (&arguments.images, &arguments.directory) {
        (Some(_), None) => IMAGES_PORT,
        _ => PORT,
    };
    let mut addresses = (first..=first + NEXT_PORTS).map(|port| SocketAddr::new(host, port));
    // If all are taken, the first one is tried again: its error names the holder.
    addresses
        .find(|address| TcpListener::bind(address).is_ok())
        .unwrap_or(SocketAddr::new(host, first))
}

/// Serves TLS with a certificate for this machine and all names of the sites, whatever name a client asks for. Clients
/// without TLS are redirected to `https://`.
fn encrypt(settings: &mut Settings) {
    let named = settings.sites.iter().flat_map(|site| &site.settings.hosts).cloned();
    let own = ["*", "localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
    let outside = announce::own_address().map(|address| address.to_string());
    let mut hosts: Vec<String> = own.into_iter().chain(outside).chain(named).collect();
    let mut known = HashSet::new();
    hosts.retain(|host| known.insert(host.clone()));
    for site in &mut settings.sites {
        site.settings.filters.without_tls = Some(WithoutTls::Redirect);
    }
    settings.tls = Some(Tls::local(
        std::mem::take(&mut settings.server.listen),
        settings.sites[0].settings.name.clone(),
        hosts,
    ));
}

/// Lets the first site answer for unknown names: a browser may use any name of this machine.
fn answer_every_host(settings: &mut Settings) {
    let taken = settings
        .sites
        .iter()
        .any(|site| site.settings.hosts.iter().any(|host| host == "*"));
    if let Some(first) = settings.sites.first_mut().filter(|_| !taken) {
        first.settings.hosts.push("*".to_owned());
    }
}

/// Writes the shortest configuration of the detected site.
fn write_configuration(directory: &Path, arguments: &ServeArgs, settings: &Settings) -> Result<(), Diagnostic> {
    let path = directory.join(FILE_NAME);
    let text = smallest_configuration(directory, arguments, settings);
    let written =
        fs::File::create_new(&path).and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| {
        Diagnostic::error("serve::write", format!("cannot write {}: {error}", path.display()))
            .help("start without --write, or name a directory this account may write to")
    })
}

fn smallest_configuration(directory: &Path, arguments: &ServeArgs, settings: &Settings) -> String {
    let site = &settings.sites[0];
    let root = match arguments.root {
        Some(_) => site.app.root.strip_prefix(directory).unwrap_or(&site.app.root),
        None => Path::new("."),
    };
    let mut text = String::new();
    let env = site.worker.iter().flat_map(|worker| &worker.env).next();
    if arguments.workers.is_some() || arguments.php.is_some() || env.is_some() {
        text.push_str("[pool.php]\n");
        if let Some(workers) = arguments.workers {
            text.push_str(&format!("workers = {workers}\n"));
        }
        if let Some(php) = &arguments.php {
            text.push_str(&format!("php = {}\n", quoted(&php.to_string_lossy())));
        }
        if let Some((name, value)) = env {
            text.push_str(&format!("env = {{ {name} = {} }}\n", quoted(value)));
        }
        text.push('\n');
    }
    text.push_str(&format!(
        "[site.{}]\nroot = {}\n",
        site.settings.name,
        quoted(&root.to_string_lossy())
    ));
    text.push_str(&format!("app = \"{}\"\n", site.app.preset.name));
    if let Some(worker) = &site.worker {
        let script = worker.file.strip_prefix(directory).unwrap_or(&worker.file);
        text.push_str(&format!("worker = {}\n", quoted(&script.to_string_lossy())));
    }
    text
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_stay_inside_a_string() {
        assert_eq!(quoted(r#"a "b" \c"#), r#""a \"b\" \\c""#);
    }
}
