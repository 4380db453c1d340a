//! Imports run downwards in every crate: its folders and files stand in layers, and none imports from a layer above it.
//! An import cycle has at most a few modules.

mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use modules::{ModulePath, Modules};

/// Modules in the largest cycle that is allowed.
const LARGEST_CYCLE: usize = 5;

/// For each crate its folders and files, the uppermost first. Those joined by a plus may import each other.
const LAYERS: &[(&str, &str)] = &[
    (
        "haulier-proto",
        "h2 response_head chunked conditional framing accept encode head content_range field status etag date \
         range copy dictionary fastcgi forwarded path proxy text",
    ),
    (
        "haulier-http",
        "response body backend+pipe+source request file trace answer peer request_id budget reason network \
         prepared",
    ),
    (
        "haulier-upstream",
        "acquire checks lease+upstream servers server affinity connection load settings address health error \
         open_rate admission wait_times queue alarm",
    ),
    (
        "haulier-php",
        "backend pool maintenance response process_source background external supervised slow status lease \
         fastcgi_exchange handed_files shared_pool processes connection peer spawner memory recycling error stderr \
         ended running request at_work children settings watch shown_duration counts kept_memory trace marker",
    ),
    (
        "haulier-store",
        "suite budget single_flight cache digest local object sealed store folder checked location runtime \
         memo",
    ),
    (
        "haulier-image",
        "worker pipeline codec step copyright geometry original colour options limits raster error exif \
         orientation format",
    ),
    (
        "haulier-image-service",
        "service background render upload originals stream cache info integrity presence error image request options \
         clock",
    ),
    (
        "haulier-server",
        "runtime listen protocol pipeline handler relay filter context answer thread metrics settings site \
         images files compress body access_log forwarded io tls password rate_limiter pattern log_throttle lock \
         local_time clock",
    ),
    (
        "haulier-client",
        "download client exchange active_request pool connection http1 http2 connect redirect decode upload request \
         error stream credentials names retry url",
    ),
    (
        "haulier",
        "command lifecycle announce assemble images admin init cli config certificates log php_discovery own_workers app \
         prelude sweeper privileges leftovers port_holder account machine purpose outcome quantity error_chain \
         expiry",
    ),
];

#[test]
fn imports_run_downwards() {
    let mut wrong = Vec::new();
    for (name, layers) in LAYERS {
        check_layers(name, layers, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn import_cycles_are_small() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(crates()).expect("the folder of crates").flatten() {
        let name = entry.file_name().into_string().expect("a plain name");
        let source = entry.path().join("src");
        if source.is_dir() {
            let cycles = cycles(&Modules::read(&source));
            let large = cycles.into_iter().filter(|cycle| cycle.len() > LARGEST_CYCLE);
            wrong.extend(large.map(|cycle| format!("{name}: {} import each other", cycle.join(", "))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn check_layers(name: &str, layers: &str, wrong: &mut Vec<String>) {
    let modules = Modules::read(&crates().join(name).join("src"));
    let layers: Vec<&str> = layers.split(' ').collect();
    let layer_of = |unit: &str| {
        layers
            .iter()
            .position(|layer| layer.split('+').any(|member| member == unit))
    };
    let units = modules.units();
    let unlisted = units.iter().filter(|unit| layer_of(unit).is_none());
    wrong.extend(unlisted.map(|unit| format!("{name}: `{unit}` has no layer")));
    let gone = layers
        .iter()
        .flat_map(|layer| layer.split('+'))
        .filter(|unit| !units.contains(*unit));
    wrong.extend(gone.map(|unit| format!("{name}: `{unit}` has a layer and does not exist")));
    for import in modules.imports() {
        let from = import.from.first().and_then(|unit| layer_of(unit));
        // The root of the crate is above all layers.
        let to = import
            .to
            .first()
            .map_or(Some(0), |unit| layer_of(unit).map(|layer| layer + 1));
        if from.zip(to).is_some_and(|(from, to)| to < from + 1) {
            let unit = import.to.first().map_or("the root", String::as_str);
            wrong.push(format!("{}: imports `{unit}` from above", import.place));
        }
    }
}

/// Groups of modules that can all reach each other by imports.
fn cycles(modules: &Modules) -> Vec<Vec<String>> {
    let mut reached: BTreeMap<ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
    for import in modules.imports().into_iter().filter(|import| !import.is_reexport) {
        reached.entry(import.from).or_default().insert(import.to);
    }
    let closed: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
        reached.keys().map(|from| (from, reach(&reached, from))).collect();
    let mut cycles = BTreeSet::new();
    for (from, targets) in &closed {
        let back = |to: &&&ModulePath| closed.get(**to).is_some_and(|targets| targets.contains(from));
        let cycle: Vec<String> = targets.iter().filter(back).map(|module| module.join("::")).collect();
        if cycle.len() > 1 {
            cycles.insert(cycle);
        }
    }
    cycles.into_iter().collect()
}

/// All modules that one imports, directly or by way of others.
fn reach<'m>(
    imports: &'m BTreeMap<ModulePath, BTreeSet<ModulePath>>,
    from: &'m ModulePath,
) -> BTreeSet<&'m ModulePath> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for target in imports.get(module).into_iter().flatten() {
            if reached.insert(target) {
                next.push(target);
            }
        }
    }
    reached
}
