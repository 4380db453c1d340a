//! What the user wrote: every table and value, with its place, and nothing decided yet.

use std::path::{Path, PathBuf};
use std::time::Duration;

use haulier_settings::reader::{self, Reader, Section, Variables, named_tables};
use haulier_settings::value::Rate;
use haulier_settings::{Diagnostic, Pairs, Place, Placed, Report, Source, UnreadableFile};
use toml::de::DeTable;

use super::words;

/// PHP does not start with less.
const LEAST_MEMORY: u64 = 16 << 20;
/// A browser's request head with a few cookies.
const LEAST_HEADER: u64 = 2048;
/// What the window of a stream is before anybody says otherwise (RFC 9113 §6.9.2), in whole KiB: until a client has read our
/// settings it may send so much.
const LEAST_STREAM_WINDOW: u64 = 64 << 10;
/// What the window of an HTTP/2 connection is before anybody says otherwise (RFC 9113 §6.9.2), in whole KiB.
const LEAST_CONNECTION_WINDOW: u64 = 64 << 10;

/// All tables of a configuration and the files it includes.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) server: ServerTable,
    pub(crate) log: LogTable,
    pub(crate) limits: LimitsTable,
    pub(crate) compress: CompressTable,
    pub(crate) tls: TlsTable,
    pub(crate) pools: Vec<PoolTable>,
    pub(crate) sites: Vec<SiteTable>,
    pub(crate) stores: Vec<StoreTable>,
}

/// `[server]`
#[derive(Debug, Default)]
pub(crate) struct ServerTable {
    place: Option<Place>,
    pub(crate) http: Option<Vec<Placed<String>>>,
    pub(crate) https: Option<Vec<Placed<String>>>,
    pub(crate) http2: Option<Placed<bool>>,
    pub(crate) reuse_port: Option<Placed<bool>>,
    pub(crate) defer_accept: Option<Placed<bool>>,
    pub(crate) threads: Option<Placed<u64>>,
    pub(crate) grace: Option<Placed<Duration>>,
    pub(crate) lame_duck: Option<Placed<Duration>>,
    pub(crate) spool_dir: Option<Placed<String>>,
    pub(crate) admin: Option<Placed<String>>,
    pub(crate) probes: Option<Placed<String>>,
    pub(crate) control: Option<Placed<String>>,
    pub(crate) socket_mode: Option<Placed<String>>,
    pub(crate) trusted_proxies: Option<Vec<Placed<String>>>,
    pub(crate) proxy_protocol: Option<Placed<bool>>,
    pub(crate) user: Option<Placed<String>>,
}

/// `[log]`
#[derive(Debug, Default)]
pub(crate) struct LogTable {
    place: Option<Place>,
    /// Relative paths of this table start here.
    pub(crate) directory: PathBuf,
    pub(crate) format: Option<Placed<String>>,
    pub(crate) access: Option<Placed<String>>,
    pub(crate) level: Option<Placed<String>>,
    pub(crate) file: Option<Placed<String>>,
}

/// `[site.NAME.log]`
#[derive(Debug, Default)]
pub(crate) struct SiteLogTable {
    pub(crate) format: Option<Placed<String>>,
    pub(crate) access: Option<Placed<String>>,
    pub(crate) file: Option<Placed<String>>,
}

/// `[limits]`
#[derive(Debug, Default)]
pub(crate) struct LimitsTable {
    place: Option<Place>,
    pub(crate) body: Option<Placed<u64>>,
    pub(crate) header: Option<Placed<u64>>,
    pub(crate) header_fields: Option<Placed<u64>>,
    pub(crate) head_timeout: Option<Placed<Duration>>,
    pub(crate) body_timeout: Option<Placed<Duration>>,
    pub(crate) idle_timeout: Option<Placed<Duration>>,
    pub(crate) send_timeout: Option<Placed<Duration>>,
    pub(crate) keepalive_requests: Option<Placed<u64>>,
    pub(crate) min_send_rate: Option<Placed<u64>>,
    pub(crate) body_spool: Option<Placed<u64>>,
    pub(crate) connections: Option<Placed<u64>>,
    pub(crate) connections_per_ip: Option<Placed<u64>>,
    pub(crate) requests_per_ip: Option<Placed<Rate>>,
    pub(crate) h2_streams: Option<Placed<u64>>,
    pub(crate) h2_stream_window: Option<Placed<u64>>,
    pub(crate) h2_connection_window: Option<Placed<u64>>,
    pub(crate) h2_resets: Option<Placed<u64>>,
    pub(crate) h2_control_frames: Option<Placed<u64>>,
}

/// `[compress]` and `[site.NAME.compress]`
#[derive(Debug, Default)]
pub(crate) struct CompressTable {
    place: Option<Place>,
    pub(crate) level: Option<Placed<String>>,
    pub(crate) algorithms: Option<Vec<Placed<String>>>,
    pub(crate) min_size: Option<Placed<u64>>,
    pub(crate) types: Option<Vec<Placed<String>>>,
    pub(crate) zstd: Option<Placed<u64>>,
    pub(crate) br: Option<Placed<u64>>,
    pub(crate) gzip: Option<Placed<u64>>,
    pub(crate) no_secrets: Option<Placed<bool>>,
    /// Only `[compress]` has it.
    pub(crate) store: Option<Placed<u64>>,
}

/// `[tls]`
#[derive(Debug, Default)]
pub(crate) struct TlsTable {
    place: Option<Place>,
    /// What sites without words of their own have.
    pub(crate) of_sites: SiteTlsTable,
    pub(crate) min: Option<Placed<String>>,
    pub(crate) email: Option<Placed<String>>,
    pub(crate) directory: Option<Placed<String>>,
    pub(crate) challenge: Option<Placed<String>>,
    pub(crate) state: Option<Placed<String>>,
}

impl TlsTable {
    /// Whether the table is there, be it empty.
    pub(crate) fn is_written(&self) -> bool {
        self.place.is_some()
    }
}

/// `[site.NAME.tls]`, and its part of `[tls]`
#[derive(Debug, Default)]
pub(crate) struct SiteTlsTable {
    place: Option<Place>,
    /// Relative paths of this table start here.
    pub(crate) directory: PathBuf,
    pub(crate) mode: Option<Placed<String>>,
    pub(crate) cert: Option<Placed<String>>,
    pub(crate) key: Option<Placed<String>>,
    pub(crate) redirect: Option<Placed<bool>>,
    pub(crate) hsts: Option<Placed<Duration>>,
}

impl SiteTlsTable {
    /// Whether the table is there, be it empty.
    pub(crate) fn is_written(&self) -> bool {
        self.place.is_some()
    }
}

/// `[pool.NAME]`
#[derive(Debug)]
pub(crate) struct PoolTable {
    pub(crate) name: Placed<String>,
    /// Relative paths of this table start here.
    pub(crate) directory: PathBuf,
    /// The number, or `max` of the table.
    pub(crate) workers: Option<Placed<u64>>,
    /// The other settings of the table.
    pub(crate) shrink: Option<ShrinkTable>,
    pub(crate) max_requests: Option<Placed<u64>>,
    pub(crate) recycle: RecycleTable,
    pub(crate) php: Option<Placed<String>>,
    pub(crate) ini: Option<Pairs>,
    pub(crate) ini_admin: Option<Pairs>,
    pub(crate) env: Option<Pairs>,
    pub(crate) env_copy: Option<Vec<Placed<String>>>,
    pub(crate) user: Option<Placed<String>>,
    pub(crate) group: Option<Placed<String>>,
    pub(crate) nice: Option<Placed<i32>>,
    pub(crate) rlimits: Option<RlimitsTable>,
    pub(crate) servers: Option<Vec<Placed<String>>>,
    pub(crate) balance: Option<Placed<String>>,
    pub(crate) connections: Option<Placed<u64>>,
    pub(crate) remote_root: Option<Placed<String>>,
    pub(crate) connect_timeout: Option<Placed<Duration>>,
    pub(crate) keep_conn: Option<Placed<bool>>,
    pub(crate) idle_timeout: Option<Placed<Duration>>,
    pub(crate) health: Option<HealthTable>,
    pub(crate) timeout: Option<Placed<Duration>>,
    pub(crate) body_timeout: Option<Placed<Duration>>,
    pub(crate) queue: Option<Placed<Duration>>,
    pub(crate) grace: Option<Placed<Duration>>,
    pub(crate) queue_length: Option<Placed<u64>>,
    pub(crate) slow: Option<SlowTable>,
    /// The names of the settings that are there, for messages about those that exclude each other.
    pub(crate) written: Vec<Placed<&'static str>>,
}

/// `[pool.NAME.workers]` without `max`
#[derive(Debug, Default)]
pub(crate) struct ShrinkTable {
    pub(crate) min: Option<Placed<u64>>,
    pub(crate) idle: Option<Placed<Duration>>,
    pub(crate) spawn_rate: Option<Placed<u64>>,
}

/// `[pool.NAME.recycle]`
#[derive(Debug, Default)]
pub(crate) struct RecycleTable {
    pub(crate) requests: Option<Placed<u64>>,
    pub(crate) memory: Option<Placed<u64>>,
    pub(crate) age: Option<Placed<Duration>>,
}

/// `[pool.NAME.rlimits]`
#[derive(Debug, Default)]
pub(crate) struct RlimitsTable {
    pub(crate) files: Option<Placed<u64>>,
    pub(crate) processes: Option<Placed<u64>>,
    pub(crate) memory: Option<Placed<u64>>,
    pub(crate) file_size: Option<Placed<u64>>,
    pub(crate) core: Option<Placed<u64>>,
}

/// `[pool.NAME.health]`
#[derive(Debug, Default)]
pub(crate) struct HealthTable {
    pub(crate) place: Option<Place>,
    pub(crate) path: Option<Placed<String>>,
    pub(crate) status: Option<Placed<String>>,
    pub(crate) every: Option<Placed<Duration>>,
    pub(crate) fail: Option<Placed<u64>>,
    pub(crate) recover: Option<Placed<u64>>,
}

/// `[pool.NAME.slow]`
#[derive(Debug, Default)]
pub(crate) struct SlowTable {
    pub(crate) after: Option<Placed<Duration>>,
    pub(crate) log: Option<Placed<String>>,
}

/// `[site.NAME]`
#[derive(Debug)]
pub(crate) struct SiteTable {
    pub(crate) name: Placed<String>,
    /// Relative paths of this table start here.
    pub(crate) directory: PathBuf,
    pub(crate) root: Option<Placed<String>>,
    /// Whether `root` stands there at all, be it no text or misspelt: that error is enough.
    pub(crate) root_written: bool,
    /// The document root itself, from the command line; no file can say it.
    pub(crate) document_root: Option<PathBuf>,
    pub(crate) hosts: Option<Vec<Placed<String>>>,
    pub(crate) app: Option<Placed<String>>,
    pub(crate) pool: Option<Placed<String>>,
    pub(crate) front: Option<Placed<String>>,
    pub(crate) script_extensions: Option<Vec<Placed<String>>>,
    pub(crate) headers: Option<Pairs>,
    pub(crate) redirects: Option<Pairs>,
    pub(crate) cache: Option<Pairs>,
    pub(crate) etag: Option<Placed<String>>,
    pub(crate) charset: Option<Placed<String>>,
    pub(crate) deny: Option<Vec<Placed<String>>>,
    pub(crate) body: Option<Placed<u64>>,
    pub(crate) sendfile: SendfileTable,
    pub(crate) offload: OffloadTable,
    pub(crate) dictionary: DictionaryTable,
    pub(crate) log: SiteLogTable,
    pub(crate) compress: CompressTable,
    pub(crate) images: Option<ImagesTable>,
    pub(crate) tls: SiteTlsTable,
    pub(crate) requests_per_ip: Option<Placed<Rate>>,
    pub(crate) body_timeout: Option<Placed<Duration>>,
    pub(crate) idle_timeout: Option<Placed<Duration>>,
    pub(crate) send_timeout: Option<Placed<Duration>>,
    pub(crate) canonical: Option<Placed<String>>,
    pub(crate) rewrites: Option<Pairs>,
    pub(crate) errors: Option<Pairs>,
    pub(crate) maintenance: Option<MaintenanceTable>,
    pub(crate) routes: Vec<RouteTable>,
}

/// `[site.NAME.images]`
#[derive(Debug, Default)]
pub(crate) struct ImagesTable {
    pub(crate) place: Option<Place>,
    pub(crate) store: Option<Placed<String>>,
    pub(crate) root: Option<Placed<String>>,
    pub(crate) cache: Option<Vec<Placed<String>>>,
    pub(crate) compat: Option<Placed<String>>,
    pub(crate) format: Option<Placed<String>>,
    pub(crate) formats: Option<Vec<Placed<String>>>,
    pub(crate) behind: Option<Vec<Placed<String>>>,
    pub(crate) quality: Option<Placed<u64>>,
    pub(crate) enlarge: Option<Placed<bool>>,
    pub(crate) metadata: Option<Placed<String>>,
    pub(crate) max_pixels: Option<Placed<u64>>,
    pub(crate) max_side: Option<Placed<u64>>,
    pub(crate) widths: Option<Vec<Placed<u64>>>,
    pub(crate) variants: Option<Placed<u64>>,
    pub(crate) upload_from: Option<Vec<Placed<String>>>,
    pub(crate) upload_max_size: Option<Placed<u64>>,
    pub(crate) download: Option<Vec<Placed<String>>>,
    pub(crate) admin: Option<Vec<Placed<String>>>,
    pub(crate) token: Option<Placed<String>>,
    pub(crate) client_hints: Option<Placed<bool>>,
    pub(crate) presets: Option<Pairs>,
    pub(crate) only_presets: Option<Placed<bool>>,
    pub(crate) sign: Option<Vec<Placed<String>>>,
    pub(crate) fallback: Option<Placed<String>>,
    pub(crate) workers: Option<Placed<u64>>,
    pub(crate) queue: Option<Placed<u64>>,
    pub(crate) timeout: Option<Placed<Duration>>,
}

/// `[store.NAME]`
#[derive(Debug)]
pub(crate) struct StoreTable {
    pub(crate) name: Placed<String>,
    pub(crate) endpoint: Option<Placed<String>>,
    pub(crate) region: Option<Placed<String>>,
    pub(crate) key: Option<Placed<String>>,
    pub(crate) secret: Option<Placed<String>>,
    pub(crate) options: Option<Pairs>,
}

/// `[site.NAME.maintenance]`
#[derive(Debug)]
pub(crate) struct MaintenanceTable {
    pub(crate) place: Option<Place>,
    pub(crate) file: Option<Placed<String>>,
    pub(crate) page: Option<Placed<String>>,
    pub(crate) allow: Option<Vec<Placed<String>>>,
    pub(crate) retry_after: Option<Placed<Duration>>,
}

/// `[[site.NAME.route]]`
#[derive(Debug)]
pub(crate) struct RouteTable {
    pub(crate) place: Place,
    pub(crate) path: Option<Placed<String>>,
    pub(crate) pool: Option<Placed<String>>,
    pub(crate) root: Option<Placed<String>>,
    pub(crate) app: Option<Placed<String>>,
    pub(crate) front: Option<Placed<String>>,
    pub(crate) deny: Option<Placed<bool>>,
    pub(crate) allow: Option<Vec<Placed<String>>>,
    pub(crate) basic_auth: Option<Placed<String>>,
    pub(crate) rate: Option<Placed<Rate>>,
}

impl PoolTable {
    /// A pool that says nothing but its name.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: Placed::unplaced(name.to_owned()),
            directory: PathBuf::from("."),
            workers: None,
            shrink: None,
            max_requests: None,
            recycle: RecycleTable::default(),
            php: None,
            ini: None,
            ini_admin: None,
            env: None,
            env_copy: None,
            user: None,
            group: None,
            nice: None,
            rlimits: None,
            servers: None,
            balance: None,
            connections: None,
            remote_root: None,
            connect_timeout: None,
            keep_conn: None,
            idle_timeout: None,
            health: None,
            timeout: None,
            body_timeout: None,
            queue: None,
            grace: None,
            queue_length: None,
            slow: None,
            written: Vec::new(),
        }
    }
}

/// `[site.NAME.sendfile]`
#[derive(Debug, Default)]
pub(crate) struct SendfileTable {
    pub(crate) roots: Option<Vec<Placed<String>>>,
    pub(crate) map: Option<Pairs>,
}

/// `[site.NAME.dictionary]`
#[derive(Debug, Default)]
pub(crate) struct DictionaryTable {
    pub(crate) of_files: Option<Placed<String>>,
    pub(crate) files: Option<Vec<Placed<String>>>,
    pub(crate) pages: Option<Pairs>,
}

/// `[site.NAME.offload]`
#[derive(Debug, Default)]
pub(crate) struct OffloadTable {
    pub(crate) types: Option<Vec<Placed<String>>>,
    pub(crate) extensions: Option<Vec<Placed<String>>>,
    pub(crate) min_size: Option<Placed<u64>>,
    pub(crate) memory: Option<Placed<u64>>,
    pub(crate) spool: Option<Placed<u64>>,
}

impl SiteTable {
    /// A site that says nothing but its name and root.
    pub(crate) fn rooted(name: &str, root: &Path) -> Self {
        Self {
            name: Placed::unplaced(name.to_owned()),
            directory: PathBuf::from("."),
            root: Some(Placed::unplaced(root.to_string_lossy().into_owned())),
            root_written: true,
            document_root: None,
            hosts: None,
            app: None,
            pool: None,
            front: None,
            script_extensions: None,
            headers: None,
            redirects: None,
            cache: None,
            etag: None,
            charset: None,
            deny: None,
            body: None,
            sendfile: SendfileTable::default(),
            offload: OffloadTable::default(),
            dictionary: DictionaryTable::default(),
            log: SiteLogTable::default(),
            requests_per_ip: None,
            body_timeout: None,
            idle_timeout: None,
            send_timeout: None,
            canonical: None,
            rewrites: None,
            errors: None,
            maintenance: None,
            routes: Vec::new(),
            compress: CompressTable::default(),
            images: None,
            tls: SiteTlsTable::default(),
        }
    }

    /// A site that keeps images in a directory and has no files of its own.
    pub(crate) fn of_images(name: &str, store: &Path) -> Self {
        Self {
            root: None,
            root_written: false,
            images: Some(ImagesTable {
                store: Some(Placed::unplaced(store.to_string_lossy().into_owned())),
                ..ImagesTable::default()
            }),
            ..Self::rooted(name, store)
        }
    }
}

/// Reads a configuration with everything it includes; what is wrong in it goes to `report`.
///
/// # Errors
/// Only when the main file itself cannot be read.
pub(crate) fn load(path: &Path, report: &mut Report, variables: Variables<'_>) -> Result<File, UnreadableFile> {
    let text = std::fs::read_to_string(path).map_err(|source| UnreadableFile {
        path: path.to_owned(),
        source,
    })?;
    let mut file = File::default();
    read_source(path, &text, &mut file, report, variables, true);
    Ok(file)
}

fn read_source(path: &Path, text: &str, file: &mut File, report: &mut Report, variables: Variables<'_>, main: bool) {
    let source = report.sources.len();
    report.sources.push(Source {
        path: path.to_owned(),
        text: text.to_owned(),
    });
    let directory = report.sources[source].directory();
    let table = match reader::parse(text, source) {
        Ok(table) => table,
        Err(diagnostic) => return report.push(diagnostic),
    };
    let mut reader = Reader::new(&words::CONFIGURATION, source, report, variables);
    let includes = read_tables(&mut reader, table.get_ref(), &directory, file);
    for include in includes {
        if main {
            read_include(&include, &directory, file, report, variables);
        } else {
            report.push(
                Diagnostic::error("config::include", "an included file includes another")
                    .at(include.place.as_ref(), "only the main file may include")
                    .help("name every file in the main one, where the whole can be seen"),
            );
        }
    }
}

fn read_include(
    include: &Placed<String>,
    directory: &Path,
    file: &mut File,
    report: &mut Report,
    variables: Variables<'_>,
) {
    let pattern = directory.join(&include.value);
    let paths = match matching_files(&pattern) {
        Ok(paths) => paths,
        Err(error) => {
            return report.push(
                Diagnostic::error(
                    "config::include",
                    format!("cannot include {}: {error}", pattern.display()),
                )
                .at(include.place.as_ref(), "named here"),
            );
        }
    };
    for path in paths {
        match std::fs::read_to_string(&path) {
            Ok(text) => read_source(&path, &text, file, report, variables, false),
            Err(error) => report.push(
                Diagnostic::error("config::include", format!("cannot include {}: {error}", path.display()))
                    .at(include.place.as_ref(), "named here"),
            ),
        }
    }
}

/// The file itself, or, with `*` in the last part, all files of that shape in the order of their names.
fn matching_files(pattern: &Path) -> std::io::Result<Vec<PathBuf>> {
    let shape = pattern
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let Some((before, after)) = shape.split_once('*') else {
        return Ok(vec![pattern.to_owned()]);
    };
    let directory = pattern.parent().unwrap_or(Path::new(""));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(Path::new(".").join(directory))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let fits = name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after);
        if fits && !name.starts_with('.') {
            paths.push(directory.join(name));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads all tables into `file`; gives back what is to be included.
fn read_tables(reader: &mut Reader<'_>, top: &DeTable<'_>, directory: &Path, file: &mut File) -> Vec<Placed<String>> {
    let top = reader.section(&words::TOP, "", top);
    read_once(
        reader,
        &top,
        "server",
        &mut file.server,
        |table| &table.place,
        read_server,
    );
    read_once(
        reader,
        &top,
        "log",
        &mut file.log,
        |table| &table.place,
        |reader, table, place| read_log(reader, table, place, directory),
    );
    read_once(
        reader,
        &top,
        "limits",
        &mut file.limits,
        |table| &table.place,
        read_limits,
    );
    read_once(
        reader,
        &top,
        "compress",
        &mut file.compress,
        |table| &table.place,
        |reader, table, place| {
            let section = reader.section(&words::COMPRESS, "compress", table);
            CompressTable {
                store: reader.size(&section, "store", 0),
                ..read_compress(reader, &section, place)
            }
        },
    );
    read_once(
        reader,
        &top,
        "tls",
        &mut file.tls,
        |table| &table.place,
        |reader, table, place| read_tls(reader, table, place, directory),
    );
    for (name, table) in named_tables(reader, &top, "pool") {
        let known = file.pools.iter().map(|pool| &pool.name);
        if is_new(reader, "pool", &name, known) {
            file.pools.push(read_pool(reader, name, table, directory));
        }
    }
    for (name, table) in named_tables(reader, &top, "site") {
        let known = file.sites.iter().map(|site| &site.name);
        if is_new(reader, "site", &name, known) {
            file.sites.push(read_site(reader, name, table, directory));
        }
    }
    for (name, table) in named_tables(reader, &top, "store") {
        let known = file.stores.iter().map(|store| &store.name);
        if is_new(reader, "store", &name, known) {
            file.stores.push(read_store(reader, name, table));
        }
    }
    reader.texts(&top, "include").unwrap_or_default()
}

/// Reads a table that a configuration has once, over all its files.
fn read_once<T>(
    reader: &mut Reader<'_>,
    top: &Section<'_>,
    name: &str,
    into: &mut T,
    place_of: impl Fn(&T) -> &Option<Place>,
    read: impl Fn(&mut Reader<'_>, &DeTable<'_>, Place) -> T,
) {
    let Some(table) = reader.table(top, name) else { return };
    let place = reader.place(top.key_span(name).unwrap_or(0..0));
    if let Some(first) = place_of(into) {
        let error = Diagnostic::error("config::repeated", format!("two files have a table `[{name}]`"))
            .at(Some(&place), "again here")
            .beside(Some(first), "first here");
        return reader.report().push(error);
    }
    *into = read(reader, table, place);
}

fn is_new<'p>(
    reader: &mut Reader<'_>,
    kind: &str,
    name: &Placed<String>,
    mut known: impl Iterator<Item = &'p Placed<String>>,
) -> bool {
    let Some(first) = known.find(|known| known.value == name.value) else {
        return true;
    };
    let error = Diagnostic::error(
        "config::repeated",
        format!("two files have a table `[{kind}.{}]`", name.value),
    )
    .at(name.place.as_ref(), "again here")
    .beside(first.place.as_ref(), "first here");
    reader.report().push(error);
    false
}

fn read_server(reader: &mut Reader<'_>, table: &DeTable<'_>, place: Place) -> ServerTable {
    let section = reader.section(&words::SERVER, "server", table);
    ServerTable {
        place: Some(place),
        http: reader.text_or_texts(&section, "http"),
        https: reader.text_or_texts(&section, "https"),
        http2: reader.flag(&section, "http2"),
        reuse_port: reader.flag(&section, "reuse_port"),
        defer_accept: reader.flag(&section, "defer_accept"),
        threads: reader.count(&section, "threads", 1, "somebody has to do the work"),
        grace: reader.duration(&section, "grace"),
        lame_duck: reader.duration(&section, "lame_duck"),
        spool_dir: reader.text(&section, "spool_dir"),
        admin: reader.text(&section, "admin"),
        probes: reader.text(&section, "probes"),
        control: reader.text(&section, "control"),
        socket_mode: reader.text(&section, "socket_mode"),
        trusted_proxies: reader.texts(&section, "trusted_proxies"),
        proxy_protocol: reader.flag(&section, "proxy_protocol"),
        user: reader.text(&section, "user"),
    }
}

fn read_log(reader: &mut Reader<'_>, table: &DeTable<'_>, place: Place, directory: &Path) -> LogTable {
    let section = reader.section(&words::LOG, "log", table);
    LogTable {
        place: Some(place),
        format: reader.text(&section, "format"),
        access: reader.text(&section, "access"),
        level: reader.text(&section, "level"),
        file: reader.text(&section, "file"),
        directory: directory.to_owned(),
    }
}

fn read_limits(reader: &mut Reader<'_>, table: &DeTable<'_>, place: Place) -> LimitsTable {
    let section = reader.section(&words::LIMITS, "limits", table);
    LimitsTable {
        place: Some(place),
        body: reader.size(&section, "body", 0),
        header: reader.size(&section, "header", LEAST_HEADER),
        header_fields: reader.count(&section, "header_fields", 16, "browsers send more than that"),
        head_timeout: reader.deadline(&section, "head_timeout"),
        body_timeout: reader.deadline(&section, "body_timeout"),
        idle_timeout: reader.deadline(&section, "idle_timeout"),
        send_timeout: reader.deadline(&section, "send_timeout"),
        min_send_rate: reader.count(&section, "min_send_rate", 0, "0 is no limit"),
        body_spool: reader.size(&section, "body_spool", 0),
        keepalive_requests: reader.count(
            &section,
            "keepalive_requests",
            1,
            "a connection carries at least one request",
        ),
        connections: reader.count(&section, "connections", 1, "nobody could connect"),
        connections_per_ip: reader.count(&section, "connections_per_ip", 0, "0 is no limit"),
        requests_per_ip: reader.rate(&section, "requests_per_ip"),
        h2_streams: reader.count(&section, "h2_streams", 1, "nothing could be asked for"),
        h2_stream_window: reader.size(&section, "h2_stream_window", LEAST_STREAM_WINDOW),
        h2_connection_window: reader.size(&section, "h2_connection_window", LEAST_CONNECTION_WINDOW),
        h2_resets: reader.count(&section, "h2_resets", 1, "browsers give up streams now and then"),
        h2_control_frames: reader.count(&section, "h2_control_frames", 16, "clients begin with some"),
    }
}

fn read_tls(reader: &mut Reader<'_>, table: &DeTable<'_>, place: Place, directory: &Path) -> TlsTable {
    let section = reader.section(&words::TLS, "tls", table);
    TlsTable {
        of_sites: read_site_tls(reader, &section, place.clone(), directory),
        place: Some(place),
        min: reader.text(&section, "min"),
        email: reader.text(&section, "email"),
        directory: reader.text(&section, "directory"),
        challenge: reader.text(&section, "challenge"),
        state: reader.text(&section, "state"),
    }
}

fn read_site_tls(reader: &mut Reader<'_>, section: &Section<'_>, place: Place, directory: &Path) -> SiteTlsTable {
    SiteTlsTable {
        place: Some(place),
        directory: directory.to_owned(),
        mode: reader.text(section, "mode"),
        cert: reader.text(section, "cert"),
        key: reader.text(section, "key"),
        redirect: reader.flag(section, "redirect"),
        hsts: reader.deadline(section, "hsts"),
    }
}

fn read_compress(reader: &mut Reader<'_>, section: &Section<'_>, place: Place) -> CompressTable {
    CompressTable {
        place: Some(place),
        level: reader.text(section, "level"),
        algorithms: reader.texts(section, "algorithms"),
        min_size: reader.size(section, "min_size", 0),
        types: reader.texts(section, "types"),
        zstd: reader.count(section, "zstd", 1, "level 1 is the fastest"),
        br: reader.count(section, "br", 0, "level 0 is the fastest"),
        gzip: reader.count(section, "gzip", 1, "level 1 is the fastest"),
        no_secrets: reader.flag(section, "no_secrets"),
        store: None,
    }
}

fn read_pool(reader: &mut Reader<'_>, name: Placed<String>, table: &DeTable<'_>, directory: &Path) -> PoolTable {
    let section = reader.section(&words::POOL, &format!("pool.{}", name.value), table);
    let written = words::POOL
        .names()
        .filter_map(|word| section.key_span(word).map(|span| (word, span)))
        .map(|(word, span)| Placed {
            value: word,
            place: Some(reader.place(span)),
        })
        .collect();
    let (workers, shrink) = read_workers(reader, &section, &name.value);
    PoolTable {
        directory: directory.to_owned(),
        workers,
        shrink,
        recycle: read_recycle(reader, &section, &name.value),
        rlimits: read_rlimits(reader, &section, &name.value),
        health: read_health(reader, &section, &name.value),
        slow: read_slow(reader, &section, &name.value),
        name,
        max_requests: reader.count(&section, "max_requests", 0, "0 is no limit"),
        php: reader.text(&section, "php"),
        ini: reader.map(&section, "ini"),
        ini_admin: reader.map(&section, "ini_admin"),
        env: reader.map(&section, "env"),
        env_copy: reader.texts(&section, "env_copy"),
        user: reader.text(&section, "user"),
        group: reader.text(&section, "group"),
        nice: reader.niceness(&section, "nice"),
        servers: reader.texts(&section, "servers"),
        balance: reader.text(&section, "balance"),
        connections: reader.count(&section, "connections", 1, "PHP is reached over connections"),
        remote_root: reader.text(&section, "remote_root"),
        connect_timeout: reader.deadline(&section, "connect_timeout"),
        keep_conn: reader.flag(&section, "keep_conn"),
        idle_timeout: reader.deadline(&section, "idle_timeout"),
        timeout: reader.deadline(&section, "timeout"),
        body_timeout: reader.deadline(&section, "body_timeout"),
        queue: reader.duration(&section, "queue"),
        grace: reader.duration(&section, "grace"),
        queue_length: reader.count(&section, "queue_length", 0, "0 lets nobody wait"),
        written,
    }
}

/// A number, or a table whose `max` it is.
fn read_workers(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    pool: &str,
) -> (Option<Placed<u64>>, Option<ShrinkTable>) {
    const WHY: &str = "a pool needs one PHP process";
    if !reader.is_table(section, "workers") {
        return (reader.count(section, "workers", 1, WHY), None);
    }
    let Some(table) = reader.table(section, "workers") else {
        return (None, None);
    };
    let table = reader.section(&words::POOL_WORKERS, &format!("pool.{pool}.workers"), table);
    let shrink = ShrinkTable {
        min: reader.count(&table, "min", 0, "0 ends PHP when nobody asks for it"),
        idle: reader.deadline(&table, "idle"),
        spawn_rate: reader.count(&table, "spawn_rate", 1, "without any no request is answered"),
    };
    (reader.count(&table, "max", 1, WHY), Some(shrink))
}

fn read_recycle(reader: &mut Reader<'_>, section: &Section<'_>, pool: &str) -> RecycleTable {
    let Some(table) = reader.table(section, "recycle") else {
        return RecycleTable::default();
    };
    let table = reader.section(&words::POOL_RECYCLE, &format!("pool.{pool}.recycle"), table);
    RecycleTable {
        requests: reader.count(&table, "requests", 0, "0 is no limit"),
        memory: reader.size(&table, "memory", LEAST_MEMORY),
        age: reader.deadline(&table, "age"),
    }
}

fn read_rlimits(reader: &mut Reader<'_>, section: &Section<'_>, pool: &str) -> Option<RlimitsTable> {
    let table = reader.table(section, "rlimits")?;
    let table = reader.section(&words::POOL_RLIMITS, &format!("pool.{pool}.rlimits"), table);
    Some(RlimitsTable {
        files: reader.count(&table, "files", 16, "PHP opens more than that"),
        processes: reader.count(&table, "processes", 1, "PHP is one already"),
        memory: reader.size(&table, "memory", LEAST_MEMORY),
        file_size: reader.size(&table, "file_size", 0),
        core: reader.size(&table, "core", 0),
    })
}

fn read_health(reader: &mut Reader<'_>, section: &Section<'_>, pool: &str) -> Option<HealthTable> {
    let table = reader.table(section, "health")?;
    let place = section.key_span("health").map(|span| reader.place(span));
    let table = reader.section(&words::POOL_HEALTH, &format!("pool.{pool}.health"), table);
    Some(HealthTable {
        place,
        path: reader.text(&table, "path"),
        status: reader.text(&table, "status"),
        every: reader.deadline(&table, "every"),
        fail: reader.count(&table, "fail", 1, "a server cannot be out without a failure"),
        recover: reader.count(&table, "recover", 1, "a server cannot be back without an answer"),
    })
}

fn read_slow(reader: &mut Reader<'_>, section: &Section<'_>, pool: &str) -> Option<SlowTable> {
    let table = reader.table(section, "slow")?;
    let table = reader.section(&words::POOL_SLOW, &format!("pool.{pool}.slow"), table);
    Some(SlowTable {
        after: reader.deadline(&table, "after"),
        log: reader.text(&table, "log"),
    })
}

fn read_site(reader: &mut Reader<'_>, name: Placed<String>, table: &DeTable<'_>, directory: &Path) -> SiteTable {
    let header = format!("site.{}", name.value);
    let section = reader.section(&words::SITE, &header, table);
    let limits = reader
        .table(&section, "limits")
        .map(|limits| reader.section(&words::SITE_LIMITS, &format!("{header}.limits"), limits));
    let maintenance = reader.table(&section, "maintenance").map(|table| {
        let place = section.key_span("maintenance").map(|span| reader.place(span));
        read_maintenance(reader, &header, table, place)
    });
    let sendfile = reader.table(&section, "sendfile").map(|table| {
        let section = reader.section(&words::SITE_SENDFILE, &format!("site.{}.sendfile", name.value), table);
        SendfileTable {
            roots: reader.texts(&section, "roots"),
            map: reader.map(&section, "map"),
        }
    });
    let offload = reader.table(&section, "offload").map(|table| {
        let section = reader.section(&words::SITE_OFFLOAD, &format!("site.{}.offload", name.value), table);
        OffloadTable {
            types: reader.texts(&section, "types"),
            extensions: reader.texts(&section, "extensions"),
            min_size: reader.size(&section, "min_size", 0),
            memory: reader.size(&section, "memory", 0),
            spool: reader.size(&section, "spool", 0),
        }
    });
    let dictionary = reader.table(&section, "dictionary").map(|table| {
        let title = format!("site.{}.dictionary", name.value);
        let section = reader.section(&words::SITE_DICTIONARY, &title, table);
        DictionaryTable {
            of_files: reader.text(&section, "static"),
            files: reader.texts(&section, "files"),
            pages: reader.map(&section, "pages"),
        }
    });
    let log = reader.table(&section, "log").map(|log| {
        let log = reader.section(&words::SITE_LOG, &format!("site.{}.log", name.value), log);
        SiteLogTable {
            format: reader.text(&log, "format"),
            access: reader.text(&log, "access"),
            file: reader.text(&log, "file"),
        }
    });
    let compress = match reader.table(&section, "compress") {
        Some(compress) => {
            let place = reader.place(section.key_span("compress").unwrap_or(0..0));
            let title = format!("site.{}.compress", name.value);
            let compress = reader.section(&words::SITE_COMPRESS, &title, compress);
            read_compress(reader, &compress, place)
        }
        None => CompressTable::default(),
    };
    let images = reader.table(&section, "images").map(|table| {
        let place = section.key_span("images").map(|span| reader.place(span));
        read_images(reader, &header, table, place)
    });
    let tls = match reader.table(&section, "tls") {
        Some(tls) => {
            let place = reader.place(section.key_span("tls").unwrap_or(0..0));
            let tls = reader.section(&words::SITE_TLS, &format!("{header}.tls"), tls);
            read_site_tls(reader, &tls, place, directory)
        }
        None => SiteTlsTable::default(),
    };
    let routes = reader.tables(&section, "route");
    let deadline = |reader: &mut Reader<'_>, key| limits.as_ref().and_then(|limits| reader.deadline(limits, key));
    SiteTable {
        images,
        compress,
        tls,
        directory: directory.to_owned(),
        root: reader.text(&section, "root"),
        root_written: section.key_span("root").is_some() || section.misspells("root"),
        document_root: None,
        hosts: reader.texts(&section, "hosts"),
        app: reader.text(&section, "app"),
        pool: reader.text(&section, "pool"),
        front: reader.text(&section, "front"),
        script_extensions: reader.texts(&section, "script_extensions"),
        headers: reader.map(&section, "headers"),
        redirects: reader.map(&section, "redirects"),
        cache: reader.map(&section, "cache"),
        etag: reader.text(&section, "etag"),
        charset: reader.text(&section, "charset"),
        deny: reader.texts(&section, "deny"),
        body: limits.as_ref().and_then(|limits| reader.size(limits, "body", 0)),
        requests_per_ip: limits
            .as_ref()
            .and_then(|limits| reader.rate(limits, "requests_per_ip")),
        body_timeout: deadline(reader, "body_timeout"),
        idle_timeout: deadline(reader, "idle_timeout"),
        send_timeout: deadline(reader, "send_timeout"),
        canonical: reader.text(&section, "canonical"),
        rewrites: reader.map(&section, "rewrites"),
        errors: reader.map(&section, "errors"),
        maintenance,
        routes: routes
            .into_iter()
            .map(|(place, table)| read_route(reader, &header, table, place))
            .collect(),
        sendfile: sendfile.unwrap_or_default(),
        offload: offload.unwrap_or_default(),
        dictionary: dictionary.unwrap_or_default(),
        log: log.unwrap_or_default(),
        name,
    }
}

fn read_images(reader: &mut Reader<'_>, site: &str, table: &DeTable<'_>, place: Option<Place>) -> ImagesTable {
    let title = format!("{site}.images");
    let section = reader.section(&words::SITE_IMAGES, &title, table);
    let upload = reader
        .table(&section, "upload")
        .map(|table| reader.section(&words::SITE_IMAGES_UPLOAD, &format!("{title}.upload"), table));
    ImagesTable {
        place,
        store: reader.text(&section, "store"),
        root: reader.text(&section, "root"),
        cache: reader.texts(&section, "cache"),
        compat: reader.text(&section, "compat"),
        format: reader.text(&section, "format"),
        formats: reader.texts(&section, "formats"),
        behind: reader.texts(&section, "behind"),
        quality: reader.count(&section, "quality", 1, "1 is the coarsest"),
        enlarge: reader.flag(&section, "enlarge"),
        metadata: reader.text(&section, "metadata"),
        max_pixels: reader.count(&section, "max_pixels", 1, "every image has one"),
        max_side: reader.count(&section, "max_side", 1, "every image has one pixel"),
        widths: reader.counts(&section, "widths", 1, "every image has one pixel"),
        variants: reader.count(&section, "variants", 0, "0 keeps all"),
        upload_from: upload.as_ref().and_then(|upload| reader.texts(upload, "from")),
        upload_max_size: upload.as_ref().and_then(|upload| reader.size(upload, "max_size", 1)),
        download: reader.texts(&section, "download"),
        admin: reader.texts(&section, "admin"),
        token: reader.text(&section, "token"),
        client_hints: reader.flag(&section, "client_hints"),
        presets: reader.map(&section, "presets"),
        only_presets: reader.flag(&section, "only_presets"),
        sign: reader.text_or_texts(&section, "sign"),
        fallback: reader.text(&section, "fallback"),
        workers: reader.count(&section, "workers", 1, "somebody has to do the work"),
        queue: reader.count(&section, "queue", 0, "0 lets nobody wait"),
        timeout: reader.deadline(&section, "timeout"),
    }
}

fn read_store(reader: &mut Reader<'_>, name: Placed<String>, table: &DeTable<'_>) -> StoreTable {
    let section = reader.section(&words::STORE, &format!("store.{}", name.value), table);
    StoreTable {
        name,
        endpoint: reader.text(&section, "endpoint"),
        region: reader.text(&section, "region"),
        key: reader.text(&section, "key"),
        secret: reader.text(&section, "secret"),
        options: reader.map(&section, "options"),
    }
}

fn read_maintenance(
    reader: &mut Reader<'_>,
    site: &str,
    table: &DeTable<'_>,
    place: Option<Place>,
) -> MaintenanceTable {
    let section = reader.section(&words::SITE_MAINTENANCE, &format!("{site}.maintenance"), table);
    MaintenanceTable {
        place,
        file: reader.text(&section, "file"),
        page: reader.text(&section, "page"),
        allow: reader.texts(&section, "allow"),
        retry_after: reader.deadline(&section, "retry_after"),
    }
}

fn read_route(reader: &mut Reader<'_>, site: &str, table: &DeTable<'_>, place: Place) -> RouteTable {
    let section = reader.section(&words::ROUTE, &format!("{site}.route"), table);
    RouteTable {
        place,
        path: reader.text(&section, "path"),
        pool: reader.text(&section, "pool"),
        root: reader.text(&section, "root"),
        app: reader.text(&section, "app"),
        front: reader.text(&section, "front"),
        deny: reader.flag(&section, "deny"),
        allow: reader.texts(&section, "allow"),
        basic_auth: reader.text(&section, "basic_auth"),
        rate: reader.rate(&section, "rate"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = r#"include = []
[server]
http = [":80", "127.0.0.1:81"]
grace = "30s"
reuse_port = true
[limits]
body = "8MiB"
[pool.php]
workers = 4
ini = { "opcache.enable" = 1, memory_limit = "256M" }
[site."ä"]
root = "${HOME}/x"
hosts = ["ä.example"]
[site.b.cache]
"/*" = "1y"
"#;

    /// Reads and prints, as `check` does.
    fn read(text: &str) -> String {
        let mut report = Report::default();
        let mut file = File::default();
        read_source(Path::new("haulier.toml"), text, &mut file, &mut report, &|_| None, true);
        report.to_json();
        report.render(false)
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange_to_be_explained(text in "\\PC*") {
            read(&text);
        }

        #[test]
        fn no_mistake_in_a_configuration_is_too_strange(
            at in 0..WHOLE.len(), removed in 0..8usize, put in "[\\[\\]{}=\",.'#\n\r\t a0ä$]{0,4}",
        ) {
            let start = (0..=at).rev().find(|&byte| WHOLE.is_char_boundary(byte)).unwrap_or(0);
            let end = (start + removed..=WHOLE.len()).find(|&byte| WHOLE.is_char_boundary(byte)).unwrap_or(WHOLE.len());
            read(&format!("{}{put}{}", &WHOLE[..start], &WHOLE[end..]));
        }
    }
}
