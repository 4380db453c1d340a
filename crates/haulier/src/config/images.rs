//! Resolves `[site.NAME.images]` and `[store.NAME]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use haulier_http::Network;
use haulier_image::{AVIF_PIXELS_A_SECOND, Defaults, Format, FormatChoice, Limits, Request, Transform, native};
use haulier_image_service::ServiceOptions;
use haulier_server::{Compat, ImageSettings, ImagesTable};
use haulier_settings::value::size;
use haulier_settings::{Diagnostic, Placed, Report};
use haulier_store::{Location, ObjectOptions};

use super::file::File;
use super::rules;
use super::tables::{SiteTable, StoreTable};
use super::value::{to_usize, value_or};
use crate::machine::Machine;

/// Most pixels of an original in the document root: the site's own images are trusted more than uploads.
const OWN_PIXELS: u64 = 50_000_000;
/// Default memory for variants, bytes.
const MEMORY: u64 = 128 << 20;
/// Longest side of a variant: the longest that both JPEG and WebP have.
const LONGEST_SIDE: u64 = 16_383;

/// The image service of a site.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Images {
    /// For the server; `images::Images` adds the fields of the site.
    pub(crate) settings: ImageSettings,
    pub(crate) store: Option<StorePlace>,
    /// Memory for variants, bytes.
    pub(crate) memory: u64,
    pub(crate) caches: Vec<CachePlace>,
    /// The formats that are rendered in the background.
    pub(crate) background: Vec<Format>,
    /// Options of the service.
    pub(crate) options: ServiceOptions,
    pub(crate) workers: usize,
    pub(crate) queue: usize,
    pub(crate) timeout: Duration,
}

/// The store of originals, and the options to reach it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StorePlace {
    pub(crate) location: Location,
    pub(crate) options: ObjectOptions,
}

/// A cache after memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CachePlace {
    /// A directory, and its most bytes.
    Disk(PathBuf, u64),
    /// `host:port` of each server.
    Memcached(Vec<String>),
    /// The address of a server.
    Redis(String),
}

/// Resolves a table, and adds mistakes to `report`.
pub(super) fn resolve(
    table: &ImagesTable,
    site: &SiteTable,
    file: &File,
    machine: &Machine,
    report: &mut Report,
) -> Option<Images> {
    let compat = table.compat.get();
    let base = std::path::absolute(&site.heading.directory).unwrap_or_else(|_| site.heading.directory.clone());
    let store = table
        .store
        .as_ref()
        .and_then(|written| resolve_store(written, &base, &file.stores, report));
    let files = table.root.as_ref().and_then(|written| prefix(written, report));
    if table.store.is_none() && table.root.is_none() {
        report.push(
            Diagnostic::error("config::images", "`images` with neither `store` nor `root`")
                .at(table.heading.name.place.as_ref(), "no images to serve")
                .help("`store = \"/srv/images\"` takes uploads; `root = \".\"` is for images of the document root"),
        );
        return None;
    }
    let defaults = resolve_defaults(table, compat, report);
    let (memory, caches) = resolve_caches(table.cache.as_deref(), &base, report);
    let networks = |written: &Option<Vec<Placed<String>>>, report: &mut Report| {
        written.as_ref().map(|written| rules::networks(written, report))
    };
    let upload = networks(&table.upload.from, report);
    let presets = table.presets.iter().flatten();
    let settings = ImageSettings {
        has_store: store.is_some(),
        files,
        is_alone: site.root.is_none(),
        defaults,
        formats: resolve_formats(table.formats.as_deref(), report),
        limits: resolve_limits(table, store.is_some(), report),
        upload: upload.unwrap_or_else(|| vec![loopback("127.0.0.0/8"), loopback("::1")]),
        download: networks(&table.download, report),
        admin: networks(&table.admin, report).unwrap_or_default(),
        token: table.token.as_ref().map(|token| token.value.clone()),
        presets: presets
            .filter_map(|(name, query)| preset(name, query, &defaults, report))
            .collect(),
        widths: resolve_widths(table, report),
        sign: keys(table.sign.as_deref().unwrap_or_default(), report),
        fallback: table
            .fallback
            .as_ref()
            .and_then(|written| resolve_fallback(written, &base, report)),
        ..ImageSettings::from(table)
    };
    Some(Images {
        settings,
        store,
        memory,
        caches,
        background: resolve_background(table.behind.as_deref(), report),
        options: ServiceOptions::from(&table.service),
        workers: table
            .workers
            .as_ref()
            .map_or(machine.cores, |workers| to_usize(workers.value)),
        queue: to_usize(table.queue.get()),
        timeout: table.timeout.get(),
    })
}

fn loopback(text: &str) -> Network {
    text.parse().expect("a network")
}

fn resolve_store(
    written: &Placed<String>,
    base: &Path,
    tables: &[StoreTable],
    report: &mut Report,
) -> Option<StorePlace> {
    let location: Location = match written.value.parse() {
        Ok(location) => location,
        Err(error) => {
            report.push(
                Diagnostic::error("config::store", error.to_string())
                    .at(
                        written.place.as_ref(),
                        "expected a directory, or \"s3://bucket/prefix\"",
                    )
                    .help("known: s3:// (and all that speak like it), gs://, az://, file:///"),
            );
            return None;
        }
    };
    let options = match &location {
        Location::Bucket { bucket, .. } => tables
            .iter()
            .find(|table| table.heading.name.value == *bucket)
            .map(object_options)
            .unwrap_or_default(),
        Location::Directory(_) => ObjectOptions::default(),
    };
    let place = StorePlace {
        location: location.within(base),
        options,
    };
    if let Err(error) = haulier_store_of(&place) {
        let title = format!("the bucket cannot be reached like this: {error}");
        report.push(
            Diagnostic::error("config::store", title)
                .at(written.place.as_ref(), "named here")
                .help("see its `[store.NAME]`, or the variables of its service in the environment"),
        );
    }
    Some(place)
}

/// Checks that the options of a bucket fit together. A directory is checked when it is opened.
fn haulier_store_of(place: &StorePlace) -> Result<(), String> {
    if matches!(place.location, Location::Directory(_)) {
        return Ok(());
    }
    match haulier_store::open_bucket(&place.location, &place.options) {
        Ok(_) => Ok(()),
        Err(error) => Err(crate::error_chain::with_sources(&error)),
    }
}

fn object_options(table: &StoreTable) -> ObjectOptions {
    let text = |written: &Option<Placed<String>>| written.as_ref().map(|written| written.value.clone());
    let others = table.options.iter().flatten();
    ObjectOptions {
        endpoint: text(&table.endpoint),
        region: text(&table.region),
        key: text(&table.key),
        secret: text(&table.secret),
        others: others
            .map(|(name, value)| (name.value.clone(), value.value.clone()))
            .collect(),
    }
}

/// A folder of the document root as a prefix of paths: `.` → `/`, `media` → `/media/`.
fn prefix(written: &Placed<String>, report: &mut Report) -> Option<String> {
    let path = written.value.trim_matches('/');
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        report.push(
            Diagnostic::error("config::images", "`root` climbs out of the document root").at(
                written.place.as_ref(),
                "expected a folder in the document root, such as \".\" or \"media\"",
            ),
        );
        return None;
    }
    Some(match parts.is_empty() {
        true => "/".to_owned(),
        false => format!("/{}/", parts.join("/")),
    })
}

fn resolve_defaults(table: &ImagesTable, compat: Compat, report: &mut Report) -> Defaults {
    let usual = match compat {
        Compat::Native => FormatChoice::Keep,
        Compat::Zimg | Compat::Zimg1 => FormatChoice::As(Format::Jpeg),
    };
    let format = match &table.format {
        None => usual,
        Some(written) => match written.value.as_str() {
            "none" => FormatChoice::Keep,
            "auto" => FormatChoice::Auto,
            _ => format(written, report).map_or(usual, FormatChoice::As),
        },
    };
    let quality = table.quality.get();
    if quality > 100 {
        report.push(Diagnostic::error("config::value", "`quality` is at most 100").at(
            table.quality.as_ref().and_then(|quality| quality.place.as_ref()),
            "100 is the finest",
        ));
    }
    Defaults {
        format,
        quality: u8::try_from(quality.min(100)).unwrap_or(100),
        enlarge: table.enlarge.get(),
        copyright: table.metadata.get(),
        first_version: compat == Compat::Zimg1,
    }
}

fn resolve_formats(written: Option<&[Placed<String>]>, report: &mut Report) -> Vec<Format> {
    match written {
        Some(written) => written.iter().filter_map(|one| format(one, report)).collect(),
        None => vec![Format::WebP, Format::Jpeg],
    }
}

/// The formats that are rendered in the background, after an answer in another format.
fn resolve_background(written: Option<&[Placed<String>]>, report: &mut Report) -> Vec<Format> {
    let Some(written) = written else {
        return vec![Format::Avif];
    };
    for last in written
        .iter()
        .filter(|one| Format::of_name(&one.value) == Some(Format::Jpeg))
    {
        report.push(
            Diagnostic::error("config::images", "JPEG cannot be made behind an answer")
                .at(last.place.as_ref(), "what would be sent meanwhile?")
                .help("every browser takes it, and nothing is made faster"),
        );
    }
    written.iter().filter_map(|one| format(one, report)).collect()
}

fn format(written: &Placed<String>, report: &mut Report) -> Option<Format> {
    let found = Format::of_name(&written.value);
    let known: Vec<&str> = Format::ALL.iter().map(|format| format.as_str()).collect();
    match found {
        None => report.push(
            Diagnostic::error("config::value", format!("not an image format: \"{}\"", written.value))
                .at(written.place.as_ref(), "no such format")
                .help(format!("known: {}", known.join(", "))),
        ),
        Some(format) if !format.is_written() => report.push(
            Diagnostic::error("config::value", format!("this haulier cannot write {format}"))
                .at(written.place.as_ref(), "named here")
                .help("it was built without the feature `avif`"),
        ),
        Some(_) => return found,
    }
    None
}

fn resolve_limits(table: &ImagesTable, has_store: bool, report: &mut Report) -> Limits {
    let usual = Limits::default();
    let pixels = if has_store { usual.pixels } else { OWN_PIXELS };
    let side = table.max_side.get();
    if side > LONGEST_SIDE {
        report.push(
            Diagnostic::error("config::value", format!("`max_side` is at most {LONGEST_SIDE}")).at(
                table.max_side.as_ref().and_then(|side| side.place.as_ref()),
                "no format takes more",
            ),
        );
    }
    Limits {
        pixels: value_or(table.max_pixels.as_ref(), pixels),
        output_side: u32::try_from(side.min(LONGEST_SIDE)).unwrap_or(usual.output_side),
        file: table.upload.max_size.get(),
        avif_pixels: table
            .timeout
            .get()
            .as_secs()
            .max(1)
            .saturating_mul(AVIF_PIXELS_A_SECOND),
        ..usual
    }
}

/// The allowed sizes, ascending. A size above the longest side is a mistake.
fn resolve_widths(table: &ImagesTable, report: &mut Report) -> Vec<u32> {
    let longest = table.max_side.get();
    let written = table.widths.as_deref().unwrap_or_default();
    for width in written.iter().filter(|width| width.value > longest) {
        report.push(
            Diagnostic::error("config::images", format!("no variant is {} pixels wide", width.value))
                .at(width.place.as_ref(), format!("`max_side` is {longest}")),
        );
    }
    let mut widths: Vec<u32> = written
        .iter()
        .filter_map(|width| u32::try_from(width.value).ok())
        .collect();
    widths.sort_unstable();
    widths
}

fn preset(
    name: &Placed<String>,
    query: &Placed<String>,
    defaults: &Defaults,
    report: &mut Report,
) -> Option<(String, Transform)> {
    // zimg 1's own reading is for its clients; presets are ours.
    let defaults = Defaults {
        first_version: false,
        ..*defaults
    };
    let why = match native::parse(&query.value, &defaults, &[]) {
        Ok(Request::Transform(transform)) => return Some((name.value.clone(), transform)),
        Ok(Request::Original) => "it changes nothing".to_owned(),
        Ok(Request::Preset(_)) => "a preset cannot name another".to_owned(),
        Err(error) => error.to_string(),
    };
    report.push(
        Diagnostic::error(
            "config::images",
            format!("the preset `{}` means nothing: {why}", name.value),
        )
        .at(query.place.as_ref(), "expected a query such as \"w=100&h=100\"")
        .help("docs/images.md lists the parameters"),
    );
    None
}

/// Shortest key: shorter ones can be guessed.
const LEAST_KEY: usize = 16;

fn keys(written: &[Placed<String>], report: &mut Report) -> Vec<Vec<u8>> {
    for key in written.iter().filter(|key| key.value.len() < LEAST_KEY) {
        report.push(
            Diagnostic::error("config::images", "a key of `sign` is too short")
                .at(key.place.as_ref(), format!("at least {LEAST_KEY} characters"))
                .help("`openssl rand -hex 32` makes one"),
        );
    }
    written.iter().map(|key| key.value.clone().into_bytes()).collect()
}

fn resolve_fallback(written: &Placed<String>, base: &Path, report: &mut Report) -> Option<PathBuf> {
    let path = base.join(&written.value);
    if !path.is_file() {
        let title = format!("fallback image {} does not exist", path.display());
        report.push(Diagnostic::error("images::fallback", title).at(written.place.as_ref(), "named here"));
    }
    Some(path)
}

/// The memory and the other caches in their order. Memory is asked first, wherever it stands.
fn resolve_caches(written: Option<&[Placed<String>]>, base: &Path, report: &mut Report) -> (u64, Vec<CachePlace>) {
    let Some(written) = written else {
        return (MEMORY, Vec::new());
    };
    let mut memory = 0;
    let mut caches = Vec::new();
    for one in written {
        if let Some((title, help)) = unspoken(&one.value) {
            report.push(
                Diagnostic::error("config::cache", title)
                    .at(one.place.as_ref(), "named here")
                    .help(help),
            );
            continue;
        }
        match cache(&one.value, base) {
            Some(Cache::Memory(bytes)) => memory += bytes,
            Some(Cache::Other(place)) => caches.push(place),
            None => report.push(
                Diagnostic::error("config::cache", format!("not a cache: \"{}\"", one.value))
                    .at(one.place.as_ref(), "expected a kind with its size or address")
                    .help(
                        "\"memory:128MiB\", \"disk:/var/cache/haulier:10GiB\", \
                         \"memcached://10.0.0.5:11211,10.0.0.6:11211\", \"redis://127.0.0.1:6379\"",
                    ),
            ),
        }
    }
    (memory, caches)
}

/// Reason and advice for a cache that this haulier does not support.
fn unspoken(text: &str) -> Option<(&'static str, &'static str)> {
    let (scheme, rest) = text.split_once("://")?;
    match scheme {
        "rediss" | "valkeys" => Some((
            "haulier speaks to Redis without TLS",
            "a tunnel on this machine (stunnel, for one) is `redis://127.0.0.1:PORT`",
        )),
        "redis+cluster" | "redis-cluster" | "redis+sentinel" => Some(ONE_REDIS),
        "redis" if rest.contains(',') => Some(ONE_REDIS),
        "redis" if !cfg!(feature = "redis") => Some((
            "this haulier was built without Redis",
            "build it with `--features redis`",
        )),
        "memcached" if !cfg!(feature = "memcached") => Some((
            "this haulier was built without memcached",
            "build it with `--features memcached`",
        )),
        _ => None,
    }
}

const ONE_REDIS: (&str, &str) = (
    "haulier speaks to one Redis, not to a cluster of them",
    "several servers can be one cache as `memcached://10.0.0.5:11211,10.0.0.6:11211`",
);

enum Cache {
    Memory(u64),
    Other(CachePlace),
}

fn cache(text: &str, base: &Path) -> Option<Cache> {
    if let Some(servers) = text.strip_prefix("memcached://") {
        let servers: Vec<String> = servers
            .trim_end_matches('/')
            .split(',')
            .map(with_port)
            .collect::<Option<_>>()?;
        return Some(Cache::Other(CachePlace::Memcached(servers)));
    }
    if text.starts_with("redis://") {
        haulier_store::cache::open_redis(text).ok()?;
        return Some(Cache::Other(CachePlace::Redis(text.to_owned())));
    }
    let (kind, rest) = text.split_once(':')?;
    match kind {
        "memory" => size(rest).map(Cache::Memory),
        "disk" => {
            let (path, size) = rest.rsplit_once(':')?;
            let size = haulier_settings::value::size(size).filter(|size| *size > 0)?;
            (!path.is_empty()).then(|| Cache::Other(CachePlace::Disk(base.join(path), size)))
        }
        _ => None,
    }
}

/// `host` → `host:11211`, the port of memcached.
fn with_port(server: &str) -> Option<String> {
    let is_name = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    match server.rsplit_once(':') {
        Some((host, port)) if is_name(host) => port.parse::<u16>().ok().map(|_| server.to_owned()),
        None if is_name(server) => Some(format!("{server}:11211")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(text: &str) -> Option<CachePlace> {
        match cache(text, Path::new("/base"))? {
            Cache::Other(place) => Some(place),
            Cache::Memory(_) => None,
        }
    }

    #[test]
    fn caches_are_a_kind_with_its_size_or_address() {
        assert!(matches!(
            cache("memory:2MiB", Path::new("/")),
            Some(Cache::Memory(2_097_152))
        ));
        assert_eq!(
            other("disk:cache:1GiB"),
            Some(CachePlace::Disk("/base/cache".into(), 1 << 30))
        );
        assert_eq!(
            other("memcached://a:11212,b"),
            Some(CachePlace::Memcached(vec!["a:11212".into(), "b:11211".into()]))
        );
        assert_eq!(
            other("redis://127.0.0.1:6379/1"),
            Some(CachePlace::Redis("redis://127.0.0.1:6379/1".into()))
        );
        for bad in [
            "memory",
            "memory:lots",
            "disk:/x",
            "disk::1GiB",
            "memcached://",
            "memcached://a,",
            "memcached://a:x",
            "redis://[",
            "file:/x:1GiB",
            "",
        ] {
            assert!(cache(bad, Path::new("/")).is_none(), "{bad}");
        }
    }

    #[test]
    fn what_redis_could_do_is_refused_with_its_reason() {
        for text in [
            "rediss://cache.example.com",
            "redis://a:6379,b:6379",
            "redis+cluster://a",
        ] {
            let (title, help) = unspoken(text).expect(text);
            assert!(title.contains("Redis") && help.contains("://"), "{text}");
        }
        for text in ["redis://127.0.0.1:6379/1", "memcached://a,b", "disk:/x:1GiB"] {
            assert_eq!(unspoken(text), None, "{text}");
        }
    }

    #[test]
    fn a_folder_is_a_prefix_with_slashes() {
        let of = |text: &str| prefix(&Placed::unplaced(text.to_owned()), &mut Report::default());
        for (text, expected) in [(".", "/"), ("", "/"), ("media", "/media/"), ("./a//b/", "/a/b/")] {
            assert_eq!(of(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(of("../x"), None);
    }
}
