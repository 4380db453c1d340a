//! `haulier image verify`: every image of a store, compared with its id.
//!
//! An id is the MD5 of the image, so comparing finds every damage. With `--repair` the right bytes replace the damaged
//! ones. They are searched in the places named by `--from`, the caches of originals and the other stores of the
//! configuration.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use haulier_image_service::original_key;
use haulier_settings::Report;
use haulier_store::cache::Tiered;
use haulier_store::{Key, LocalStore, Location, Md5Sum, ObjectContent, Store, StoreError, StoreRuntime};

use super::CommandResult;
use crate::cli::Console;
use crate::cli::image::VerifyArgs;
use crate::command::configuration;
use crate::config;
use crate::config::images::StorePlace;
use crate::config::settings::{Mode, Settings, Site};
use crate::error_chain::with_sources;
use crate::images;
use crate::machine::Machine;

/// Names per listing.
const PAGE: usize = 1000;
/// Images that are read at a time.
const AT_ONCE: usize = 4;

/// Counts of the images of one store by outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct VerifyCounts {
    images: u64,
    bytes: u64,
    damaged: u64,
    repaired: u64,
    /// Names that are not ids.
    others: u64,
}

/// A store, with the places that may have the right bytes of its damaged images.
struct Verified {
    store: Arc<dyn Store>,
    stores: Vec<Arc<dyn Store>>,
    caches: Tiered,
}

pub(super) fn run(arguments: &VerifyArgs, console: &Console) -> CommandResult<bool> {
    let runtime = StoreRuntime::start().map_err(|error| error.to_string())?;
    let from: Vec<Arc<dyn Store>> = arguments.from.iter().map(named).collect::<CommandResult<_>>()?;
    let verified = match &arguments.store {
        Some(location) => {
            let place = without_options(location);
            vec![Verified {
                store: open(&place, arguments.repair, None)?,
                stores: from,
                caches: Tiered::default(),
            }]
        }
        None => of_configuration(arguments, &from, console)?,
    };
    let mut is_well = true;
    for one in &verified {
        let counts = one.walk(&runtime, arguments.repair)?;
        say(&format!("{}: {}", one.store.place(), told(&counts, arguments.repair)));
        is_well &= counts.damaged == counts.repaired;
    }
    Ok(is_well)
}

fn told(counts: &VerifyCounts, repairs: bool) -> String {
    let VerifyCounts {
        images,
        bytes,
        damaged,
        repaired,
        others,
    } = counts;
    let mut text = format!("{images} images compared ({bytes} bytes), {damaged} damaged");
    if repairs {
        text.push_str(&format!(", {repaired} repaired"));
    }
    if *others > 0 {
        text.push_str(&format!("; {others} other names are no ids"));
    }
    text
}

/// Prints a line of the report; a closed standard output is not a failure.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn without_options(location: &Location) -> StorePlace {
    StorePlace {
        location: location.clone(),
        options: Default::default(),
    }
}

/// A place named by `--from`.
fn named(location: &Location) -> CommandResult<Arc<dyn Store>> {
    open(&without_options(location), false, None)
}

/// Opens an existing store. A directory that is only read may belong to another account, as a backup does.
fn open(place: &StorePlace, is_written: bool, user: Option<&haulier_php::User>) -> CommandResult<Arc<dyn Store>> {
    if let Location::Directory(path) = &place.location {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        std::fs::read_dir(path).map_err(failed)?;
        if !is_written {
            return Ok(Arc::new(LocalStore::to_read(path)));
        }
    }
    images::open_place(place, user).map_err(|error| format!("{}: {}", place.location, with_sources(&error)))
}

/// The stores of a configuration, each once.
fn of_configuration(
    arguments: &VerifyArgs,
    from: &[Arc<dyn Store>],
    console: &Console,
) -> CommandResult<Vec<Verified>> {
    let settings = read(arguments, console)?;
    let stores: Vec<(&Site, &StorePlace)> = settings
        .sites
        .iter()
        .filter_map(|site| Some((site, site.images.as_ref()?.store.as_ref()?)))
        .collect();
    let wanted = |site: &Site| arguments.site.as_ref().is_none_or(|name| *name == site.settings.name);
    let mut places: Vec<&StorePlace> = Vec::new();
    let mut verified = Vec::new();
    for (site, place) in stores.iter().filter(|(site, _)| wanted(site)) {
        if places.contains(place) {
            continue;
        }
        places.push(place);
        let user = settings.user.as_ref();
        let mut sources = from.to_vec();
        let mut caches = Tiered::default();
        if arguments.repair {
            for (_, other) in stores.iter().filter(|(_, other)| other != place) {
                sources.push(open(other, false, user)?);
            }
            if let Some(images) = &site.images {
                let opened = images::open_caches(site, images, user).map_err(|error| with_sources(&error))?;
                caches = Tiered::new(opened);
            }
        }
        verified.push(Verified {
            store: open(place, arguments.repair, user)?,
            stores: sources,
            caches,
        });
    }
    match (verified.is_empty(), &arguments.site) {
        (false, _) => Ok(verified),
        (true, Some(site)) => Err(format!("the configuration has no site `{site}` with an image store")),
        (true, None) => Err("the configuration has no site with an image store".to_owned()),
    }
}

fn read(arguments: &VerifyArgs, console: &Console) -> CommandResult<Settings> {
    let mut report = Report::default();
    let loaded = configuration::find_and_load(arguments.config.as_deref(), &mut report);
    let settings = loaded.map(|(_, file)| config::resolve(&file, Mode::Run, &Machine::look(), &mut report));
    let settings = settings.map_err(|diagnostic| report.push(diagnostic));
    match settings {
        Ok(settings) if report.errors() == 0 => Ok(settings),
        _ => {
            configuration::print(&report, console);
            Err("the configuration cannot be used; a store can be named instead".to_owned())
        }
    }
}

impl Verified {
    /// Compares every image.
    fn walk(&self, runtime: &StoreRuntime, repairs: bool) -> CommandResult<VerifyCounts> {
        let of_store = |error| format!("{}: {}", self.store.place(), with_sources(&error));
        let mut counts = VerifyCounts::default();
        let mut after = None;
        loop {
            let keys = runtime
                .block_on(self.store.list(after.as_ref(), PAGE))
                .map_err(of_store)?;
            for group in keys.chunks(AT_ONCE) {
                let looks: Vec<_> = group
                    .iter()
                    .filter(|key| is_id(key))
                    .map(|id| runtime.spawn(look(Arc::clone(&self.store), id.clone())))
                    .collect();
                counts.others += (group.len() - looks.len()) as u64;
                for look in looks {
                    let (id, found) = runtime.block_on(look).map_err(|error| error.to_string())?;
                    self.judge(runtime, &id, found.map_err(of_store)?, repairs, &mut counts)?;
                }
            }
            match keys.last() {
                Some(last) => after = Some(last.clone()),
                None => return Ok(counts),
            }
        }
    }

    fn judge(
        &self,
        runtime: &StoreRuntime,
        id: &Key,
        found: Examined,
        repairs: bool,
        counts: &mut VerifyCounts,
    ) -> CommandResult<()> {
        let why = match found {
            Examined::Gone => return Ok(()),
            Examined::Read { length, md5 } => {
                counts.images += 1;
                counts.bytes += length;
                if md5 == id.as_str() {
                    return Ok(());
                }
                format!("{length} bytes with the MD5 {md5}")
            }
            Examined::Unreadable(why) => {
                counts.images += 1;
                why
            }
        };
        counts.damaged += 1;
        if repairs && let Some((content, place)) = runtime.block_on(self.right(id)) {
            let replaced = runtime.block_on(self.store.replace(id, content));
            replaced.map_err(|error| format!("{}: {}", self.store.place(), with_sources(&error)))?;
            counts.repaired += 1;
            say(&format!("repaired {id}: {why}, now as in {place}"));
            return Ok(());
        }
        say(&format!("damaged {id}: {why}"));
        Ok(())
    }

    /// The right bytes from another place, and where they were.
    async fn right(&self, id: &Key) -> Option<(Bytes, String)> {
        let is_right = |bytes: &Bytes| Md5Sum::of(bytes) == id.as_str();
        for store in &self.stores {
            let content = store.get(id).await.ok().flatten();
            let Some(content) = content else { continue };
            if let Some(bytes) = content.into_bytes().await.ok().filter(is_right) {
                return Some((bytes, store.place()));
            }
        }
        let hit = self.caches.get(original_key(id)).await?;
        let bytes = hit.value.into_bytes().ok().filter(is_right)?;
        Some((bytes, format!("the {} cache", hit.tier.as_str())))
    }
}

/// The object under an id.
enum Examined {
    Read {
        length: u64,
        md5: String,
    },
    /// The file system cannot read it.
    Unreadable(String),
    /// It was deleted since it was listed.
    Gone,
}

/// Reads one image. A store that does not answer ends the run; a file that cannot be read is damage.
async fn look(store: Arc<dyn Store>, id: Key) -> (Key, Result<Examined, StoreError>) {
    let read = async {
        let content: Option<ObjectContent> = store.get(&id).await?;
        let Some(content) = content else {
            return Ok(Examined::Gone);
        };
        let length = content.length();
        let md5 = Md5Sum::of_content(content).await?;
        Ok(Examined::Read { length, md5 })
    };
    let found = match read.await {
        Err(StoreError::Io(error)) => Ok(Examined::Unreadable(error.to_string())),
        found => found,
    };
    (id, found)
}

fn is_id(key: &Key) -> bool {
    key.as_str().len() == 32 && key.as_str().bytes().all(|byte| byte.is_ascii_hexdigit())
}
