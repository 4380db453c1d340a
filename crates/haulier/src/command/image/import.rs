//! `haulier image import`: the originals of a zimg 2 or 3, into a store.
//!
//! zimg keeps an image in `A/B/MD5/`, A and B made of its first six digits, the original in the file `0*0`. The other
//! files there are variants and can be rendered again. An image that is in the store already is skipped, so a run that
//! was stopped can be repeated. Root may run it for a server of another account: files that root puts into a directory
//! belong to the owner of that directory, and a directory of root is given away when the server starts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use haulier_store::{Key, Put, Store, StoreRuntime};
use md5::{Digest, Md5};

use super::CommandResult;
use crate::cli::image::ImportArgs;
use crate::config::images::StorePlace;
use crate::error_chain::with_sources;
use crate::images;

/// The file of an original: zimg 2 and 3, and zimg 1.
const ORIGINALS: [&str; 2] = ["0*0", "0*0p"];

/// Counts of images by outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct ImportCounts {
    taken: u64,
    there: u64,
    damaged: u64,
    bytes: u64,
}

pub(super) fn run(arguments: &ImportArgs) -> CommandResult<bool> {
    let place = StorePlace {
        location: arguments.into.clone(),
        options: Default::default(),
    };
    let store = images::open_place(&place, None).map_err(|error| with_sources(&error))?;
    let runtime = StoreRuntime::start().map_err(|error| error.to_string())?;
    let mut counts = ImportCounts::default();
    let walked = walk(&arguments.directory, &mut |id, path| {
        take(&runtime, &*store, id, path, &mut counts)
    });
    let ImportCounts {
        taken,
        there,
        damaged,
        bytes,
    } = counts;
    println!("{taken} images taken over ({bytes} bytes), {there} were there already, {damaged} left out");
    walked?;
    if taken + there + damaged == 0 {
        return Err(format!(
            "no images of a zimg below {}: it is zimg's `img_path`, with folders of numbers in it",
            arguments.directory.display()
        ));
    }
    Ok(damaged == 0)
}

/// Calls `found` for the original of every image, in the order of the folders.
fn walk(root: &Path, found: &mut dyn FnMut(&Key, &Path) -> CommandResult<()>) -> CommandResult<()> {
    let failed = |path: &Path, error: &io::Error| format!("{}: {error}", path.display());
    for outer in folders(root).map_err(|error| failed(root, &error))? {
        for inner in folders(&outer).map_err(|error| failed(&outer, &error))? {
            for image in folders(&inner).map_err(|error| failed(&inner, &error))? {
                let Some(id) = id_of(&image) else { continue };
                let original = ORIGINALS
                    .iter()
                    .map(|name| image.join(name))
                    .find(|path| path.is_file());
                if let Some(original) = original {
                    found(&id, &original)?;
                }
            }
        }
    }
    Ok(())
}

fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}

/// The id a folder is named by, if it lies where zimg puts it.
fn id_of(folder: &Path) -> Option<Key> {
    let name = folder.file_name()?.to_str()?;
    if name.len() != 32 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = |digits: &str| u32::from_str_radix(digits, 16).map(|number| (number / 4).to_string());
    let (inner, outer) = (folder.parent()?, folder.parent()?.parent()?);
    let lies = outer.file_name()?.to_str()? == number(&name[..3]).ok()?
        && inner.file_name()?.to_str()? == number(&name[3..6]).ok()?;
    name.to_ascii_lowercase().parse().ok().filter(|_| lies)
}

/// Imports one image. A damaged one is left out with a message; a failing store ends the run.
fn take(
    runtime: &StoreRuntime,
    store: &dyn Store,
    id: &Key,
    path: &Path,
    counts: &mut ImportCounts,
) -> CommandResult<()> {
    let of_store = |error| with_sources(&error);
    if runtime.block_on(store.head(id)).map_err(of_store)?.is_some() {
        counts.there += 1;
        return Ok(());
    }
    let content = match fs::read(path) {
        Ok(content) => content,
        Err(error) => {
            eprintln!("left out: {}: {error}", path.display());
            counts.damaged += 1;
            return Ok(());
        }
    };
    let digest: String = Md5::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    if digest != id.as_str() {
        eprintln!("left out: {} is not what its name says (md5 {digest})", path.display());
        counts.damaged += 1;
        return Ok(());
    }
    let length = content.len() as u64;
    match runtime
        .block_on(store.put(id, Bytes::from(content)))
        .map_err(of_store)?
    {
        Put::Created => {
            counts.taken += 1;
            counts.bytes += length;
        }
        Put::Exists => counts.there += 1,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_lies_where_zimg_puts_it() {
        let id = "5f189d8ec57f5a5a0d3dcba47fa797e2";
        assert_eq!(
            id_of(Path::new(&format!("/img/380/551/{id}")))
                .map(|key| key.to_string())
                .as_deref(),
            Some(id)
        );
        for elsewhere in ["/img/380/552", "/img/5f/18", "/img/0380/551"] {
            assert_eq!(id_of(Path::new(&format!("{elsewhere}/{id}"))), None, "{elsewhere}");
        }
        assert_eq!(id_of(Path::new("/img/380/551/5f189d8e")), None);
    }
}
