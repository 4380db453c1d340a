//! Files that scripts name and the server sends, even where clients have no access.
//!
//! A name is judged by its real location below one of the site's `sendfile` roots, and opened there. A refusal lists
//! every path that was tried: an administrator cannot see the field that the application wrote.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use haulier_http::OpenFile;
use haulier_proto::date;
use percent_encoding::percent_decode;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::entry;
use super::names::{self, NameKind};
use super::open::{self, Opened, Regular, Root, Version};
use super::sendfile_cache::SendfileCache;
use super::settings::SendfileSettings;
use super::site_files::SiteFiles;
use super::tag::Tag;

/// Directories from which scripts of a site may send files.
#[derive(Debug)]
pub(crate) struct SendRoots {
    roots: Vec<LazyRoot>,
    /// Prefix of an X-Accel-Redirect → directory, the longest prefix first.
    map: Vec<(Vec<u8>, LazyRoot)>,
    /// The document root as PHP on another machine knows it.
    remote_root: Option<PathBuf>,
}

/// A name by which a script refers to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SendfileName<'n> {
    /// A path in the file system.
    Path(&'n [u8]),
    /// A path in the file system that is always percent-encoded.
    Encoded(&'n [u8]),
    /// A path as in a URL: below a prefix of `map`, or in the document root if there is no `map`.
    Location(&'n [u8]),
}

impl<'n> SendfileName<'n> {
    /// A number that differs between the kinds.
    pub(super) fn kind(self) -> u8 {
        match self {
            Self::Path(_) => 0,
            Self::Encoded(_) => 1,
            Self::Location(_) => 2,
        }
    }

    /// The name as the script wrote it.
    pub(super) fn bytes(self) -> &'n [u8] {
        let (Self::Path(bytes) | Self::Encoded(bytes) | Self::Location(bytes)) = self;
        bytes
    }
}

/// An open file that may be sent.
#[derive(Debug)]
pub(crate) struct Sendable {
    pub(crate) file: Arc<OpenFile>,
    pub(super) version: Version,
    /// Strong, with quotes.
    pub(crate) etag: Option<Vec<u8>>,
    /// The entity tag depends on the content, which has not been hashed yet.
    pub(super) awaits_tag: bool,
    /// Seconds since 1970.
    pub(crate) last_modified: u64,
    /// `last_modified` as a field value.
    pub(crate) last_modified_text: [u8; 29],
    /// From the extension of its name.
    pub(crate) content_type: Cow<'static, str>,
}

/// A file that is not sent.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Each path that was tried, with its fault.
    Denied(String),
    /// It may exist, but the system failed to open it.
    Failed(io::Error),
}

/// Prefix by which frameworks name files of the roots (X-Accel-Mapping); the number of a root follows.
const MAPPED: &str = "/.haulier-root-";

impl SendRoots {
    pub(crate) fn new(settings: &SendfileSettings, remote_root: Option<&Path>) -> Self {
        let mut map: Vec<_> = settings
            .map
            .iter()
            .map(|(prefix, directory)| (prefix.clone().into_bytes(), LazyRoot::new(directory)))
            .collect();
        map.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self {
            roots: settings
                .roots
                .iter()
                .map(|directory| LazyRoot::new(directory))
                .collect(),
            map,
            remote_root: remote_root.map(Path::to_owned),
        }
    }

    /// The roots that exist, each with its prefix in X-Accel-Redirect.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (PathBuf, String)> {
        let roots = self.roots.iter().enumerate();
        roots.filter_map(|(number, root)| Some((root.open()?.path.clone(), format!("{MAPPED}{number}/"))))
    }

    /// Opens the file that a script named, or takes it from `sendfile_cache`.
    pub(crate) fn find(
        &self,
        site: &SiteFiles,
        name: SendfileName<'_>,
        sendfile_cache: &SendfileCache,
    ) -> Result<Rc<Sendable>, Refused> {
        if let Some(sendable) = sendfile_cache.find(site, name) {
            return Ok(sendable);
        }
        // A replaced root would still lead to the old directory.
        self.roots().for_each(LazyRoot::renew);
        let sendable = Rc::new(match self.open(site, name) {
            Err(Refused::Failed(error)) if open::out_of_descriptors(&error) && sendfile_cache.shed() => {
                self.open(site, name)?
            }
            opened => opened?,
        });
        sendfile_cache.note(site, name, &sendable, || self.place(site, name));
        Ok(sendable)
    }

    /// Takes a file that PHP has opened, by its real place. `name` is the path that the script wrote.
    pub(crate) fn adopt(&self, site: &SiteFiles, name: &[u8], file: File) -> Result<Sendable, Refused> {
        let place = real_place_of(&file).map_err(Refused::Failed)?;
        // A replaced root would still lead to the old directory.
        if !self.holds(&place) {
            self.roots().for_each(LazyRoot::renew);
        }
        let mut tried = String::new();
        for root in self.roots.iter().filter_map(LazyRoot::open) {
            let Ok(inside) = place.strip_prefix(&root.path) else {
                continue;
            };
            match wrong_with(site, &rooted(inside)) {
                Some(why) => note(&mut tried, place.as_os_str().as_bytes(), why),
                None => {
                    let version = Version::of_file(&file).map_err(Refused::Failed)?;
                    let regular = Regular {
                        file,
                        version,
                        real: None,
                    };
                    return Ok(Sendable::new(site, name, regular));
                }
            }
        }
        if tried.is_empty() {
            note(
                &mut tried,
                place.as_os_str().as_bytes(),
                "lies outside the roots of `sendfile`",
            );
        }
        Err(Refused::Denied(tried))
    }

    fn holds(&self, place: &Path) -> bool {
        let mut roots = self.roots.iter().filter_map(LazyRoot::open);
        roots.any(|root| place.starts_with(&root.path))
    }

    /// Translates a path of PHP's machine to this one.
    fn local(&self, site: &SiteFiles, path: &[u8]) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(path));
        match self
            .remote_root
            .as_deref()
            .and_then(|remote| path.strip_prefix(remote).ok())
        {
            Some(inside) => site.root.join(inside),
            None => path.to_owned(),
        }
    }

    /// The path that the name as written stands for. Only opening it decides whether it may be sent.
    fn place(&self, site: &SiteFiles, name: SendfileName<'_>) -> Option<PathBuf> {
        let spelling = spellings(name).into_iter().next()?;
        let (root, inside) = match name {
            SendfileName::Path(_) | SendfileName::Encoded(_) => return Some(self.local(site, &spelling)),
            SendfileName::Location(_) => match mapped_root(&spelling) {
                Some((number, inside)) => (&self.roots.get(number)?.given, inside.to_vec()),
                None if self.map.is_empty() => (&site.root, spelling),
                None => self
                    .mapped_location(&spelling)
                    .map(|(inside, root)| (&root.given, inside))?,
            },
        };
        let inside = inside.strip_prefix(b"/")?;
        Some(root.join(OsStr::from_bytes(inside)))
    }

    /// The directory of the longest matching prefix of `map`, with the rest of the location.
    fn mapped_location(&self, location: &[u8]) -> Option<(Vec<u8>, &LazyRoot)> {
        let mut fitting = self.map.iter();
        fitting.find_map(|(prefix, root)| Some((beneath(location, prefix)?, root)))
    }

    fn roots(&self) -> impl Iterator<Item = &LazyRoot> {
        self.roots.iter().chain(self.map.iter().map(|(_, root)| root))
    }

    /// Opens the name as written, then percent-decoded.
    fn open(&self, site: &SiteFiles, name: SendfileName<'_>) -> Result<Sendable, Refused> {
        let mut tried = String::new();
        for spelling in spellings(name) {
            let attempt = match name {
                SendfileName::Path(_) | SendfileName::Encoded(_) => self.by_path(site, &spelling, &mut tried),
                SendfileName::Location(_) => self.by_location(site, &spelling, &mut tried),
            };
            if let Some(sendable) = attempt.map_err(Refused::Failed)? {
                return Ok(sendable);
            }
        }
        Err(Refused::Denied(tried))
    }

    /// Opens a path below the first root that has it.
    fn by_path(&self, site: &SiteFiles, path: &[u8], tried: &mut String) -> io::Result<Option<Sendable>> {
        let path = self.local(site, path);
        if !path.is_absolute() {
            note(tried, path.as_os_str().as_bytes(), "is not an absolute path");
            return Ok(None);
        }
        let bytes = path.as_os_str().as_bytes();
        if bytes.ends_with(b"/") {
            note(tried, bytes, "is a directory");
            return Ok(None);
        }
        let has_dots = bytes.split(|&byte| byte == b'/').any(|segment| segment == b"..");
        let mut is_beneath_one = false;
        if !has_dots && let Some(sendable) = beneath_any(site, self.roots.iter(), &path, tried, &mut is_beneath_one)? {
            return Ok(Some(sendable));
        }
        // Its target may lie below another root than its name, or below a root at all.
        if let Some(real) = real_place(&path)
            && let Some(sendable) = beneath_any(site, self.roots.iter(), &real, tried, &mut is_beneath_one)?
        {
            return Ok(Some(sendable));
        }
        if !is_beneath_one {
            note(tried, bytes, "lies outside the roots of `sendfile`");
        }
        Ok(None)
    }

    fn by_location(&self, site: &SiteFiles, location: &[u8], tried: &mut String) -> io::Result<Option<Sendable>> {
        if let Some((number, inside)) = mapped_root(location) {
            let Some(root) = self.roots.get(number).and_then(LazyRoot::open) else {
                note(tried, location, "names a root that does not exist");
                return Ok(None);
            };
            return self.by_place(site, root.root(), inside, tried);
        }
        if self.map.is_empty() {
            if self.roots.is_empty() {
                note(tried, location, "cannot be sent: `roots` of `sendfile` is empty");
                return Ok(None);
            }
            return match location {
                [b'/', ..] => self.by_place(site, site.document_root(), location, tried),
                _ => {
                    note(tried, location, "is not a path");
                    Ok(None)
                }
            };
        }
        let Some((inside, root)) = self.mapped_location(location) else {
            note(tried, location, "has no prefix of `map`");
            return Ok(None);
        };
        match root.open() {
            Some(root) => self.by_place(site, root.root(), &inside, tried),
            None => {
                note(tried, root.given.as_os_str().as_bytes(), "does not exist");
                Ok(None)
            }
        }
    }

    /// Opens a file in the directory of a location, or where a symbolic link leads, if that is below a root.
    fn by_place(
        &self,
        site: &SiteFiles,
        root: Root<'_>,
        inside: &[u8],
        tried: &mut String,
    ) -> io::Result<Option<Sendable>> {
        if let Some(sendable) = attempt(site, root, inside, tried)? {
            return Ok(Some(sendable));
        }
        // Links may leave the directory; names may not.
        if inside.split(|&byte| byte == b'/').any(|segment| segment == b"..") {
            return Ok(None);
        }
        let first = inside.iter().take_while(|&&byte| byte == b'/').count();
        let named = root.path.join(OsStr::from_bytes(&inside[first..]));
        match real_place(&named) {
            Some(real) => beneath_any(site, self.roots(), &real, tried, &mut false),
            None => Ok(None),
        }
    }
}

/// Opens the path below the first of these roots that has it.
fn beneath_any<'r>(
    site: &SiteFiles,
    roots: impl Iterator<Item = &'r LazyRoot>,
    path: &Path,
    tried: &mut String,
    is_beneath_one: &mut bool,
) -> io::Result<Option<Sendable>> {
    for root in roots.filter_map(LazyRoot::open) {
        let Ok(inside) = path.strip_prefix(&root.path) else {
            continue;
        };
        *is_beneath_one = true;
        if let Some(sendable) = attempt(site, root.root(), &rooted(inside), tried)? {
            return Ok(Some(sendable));
        }
    }
    Ok(None)
}

/// The target of the links in a path, if it differs. `Path` compares equal with and without a `.`, so the bytes are
/// compared.
fn real_place(path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    (real.as_os_str() != path.as_os_str()).then_some(real)
}

/// The path of an open file, without symbolic links.
fn real_place_of(file: &File) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A directory that may be created or replaced after the start: applications make and clear theirs.
#[derive(Debug)]
struct LazyRoot {
    given: PathBuf,
    opened: ArcSwapOption<OpenRoot>,
}

/// An open directory, with its path without symbolic links.
#[derive(Debug)]
struct OpenRoot {
    path: PathBuf,
    directory: OwnedFd,
}

impl LazyRoot {
    fn new(given: &Path) -> Self {
        Self {
            given: given.to_owned(),
            opened: ArcSwapOption::new(OpenRoot::open(given).map(Arc::new)),
        }
    }

    fn open(&self) -> Option<Arc<OpenRoot>> {
        self.opened.load_full().or_else(|| {
            self.renew();
            self.opened.load_full()
        })
    }

    /// Opens it again if its name leads to another directory now.
    fn renew(&self) {
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let held = self.opened.load();
        let held = held.as_ref().and_then(|root| rustix::fs::fstat(&root.directory).ok());
        let named = rustix::fs::stat(&self.given).ok();
        if named.is_none() || held.map(identity) == named.map(identity) {
            return;
        }
        // If that fails, the old directory is better than none.
        if let Some(opened) = OpenRoot::open(&self.given) {
            self.opened.store(Some(Arc::new(opened)));
        }
    }
}

impl OpenRoot {
    fn open(given: &Path) -> Option<Self> {
        let path = given.canonicalize().ok()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
        Some(Self { path, directory })
    }

    fn root(&self) -> Root<'_> {
        Root {
            path: &self.path,
            directory: self.directory.as_fd(),
        }
    }
}

/// The name as written, and percent-decoded if that differs. A location may have a query.
fn spellings(name: SendfileName<'_>) -> Vec<Vec<u8>> {
    let (written, encoded) = match name {
        SendfileName::Encoded(path) => return vec![percent_decode(path).collect()],
        SendfileName::Path(path) => (path, path),
        SendfileName::Location(location) => {
            let end = location.iter().position(|&byte| byte == b'?').unwrap_or(location.len());
            (location, &location[..end])
        }
    };
    let decoded: Vec<u8> = percent_decode(encoded).collect();
    if decoded == written {
        return vec![decoded];
    }
    vec![written.to_vec(), decoded]
}

fn rooted(inside: &Path) -> Vec<u8> {
    [b"/", inside.as_os_str().as_bytes()].concat()
}

/// The number of a root, and the path in it with a leading slash.
fn mapped_root(location: &[u8]) -> Option<(usize, &[u8])> {
    let rest = location.strip_prefix(MAPPED.as_bytes())?;
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    let number = std::str::from_utf8(&rest[..slash]).ok()?.parse().ok()?;
    Some((number, &rest[slash..]))
}

/// The rest after a prefix, with a leading slash. A prefix ends at the end of a segment.
fn beneath(location: &[u8], prefix: &[u8]) -> Option<Vec<u8>> {
    let rest = location.strip_prefix(prefix)?;
    match rest {
        [b'/', ..] => Some(rest.to_vec()),
        _ if prefix.ends_with(b"/") => Some([b"/", rest].concat()),
        _ => None,
    }
}

/// Opens `inside` below the root; notes the reason if it fails.
fn attempt(site: &SiteFiles, root: Root<'_>, inside: &[u8], tried: &mut String) -> io::Result<Option<Sendable>> {
    // `/protected//a.bin` names a file of the directory too; the kernel would take `/a.bin` as absolute.
    let slashes = inside.iter().take_while(|&&byte| byte == b'/').count();
    let inside = &inside[slashes.saturating_sub(1)..];
    let why = match open_regular(site, root, inside) {
        Ok(Ok(regular)) => return Ok(Some(Sendable::new(site, inside, regular))),
        Ok(Err(why)) => why,
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::ACCESS | Errno::PERM) => "may not be read",
            _ => return Err(error),
        },
    };
    note(tried, &[root.path.as_os_str().as_bytes(), inside].concat(), why);
    Ok(None)
}

fn open_regular(site: &SiteFiles, root: Root<'_>, inside: &[u8]) -> io::Result<Result<Regular, &'static str>> {
    if let Some(why) = wrong_with(site, inside) {
        return Ok(Err(why));
    }
    Ok(match open::open(root, inside)? {
        Opened::File(regular) => match regular.real.as_deref().and_then(|real| wrong_with(site, real)) {
            Some(_) => Err("is a symbolic link to a script or a dotfile"),
            None => Ok(regular),
        },
        Opened::Directory => Err("is a directory"),
        Opened::Missing => Err("does not exist or is not a regular file"),
        Opened::Outside => Err("is a symbolic link out of its root"),
    })
}

/// The reason for which this name is never sent, if there is one.
fn wrong_with(site: &SiteFiles, inside: &[u8]) -> Option<&'static str> {
    let mut segments = inside.split(|&byte| byte == b'/');
    if segments.clone().any(|segment| segment == b"..") {
        return Some("leads upwards");
    }
    if segments.any(|segment| segment.first() == Some(&b'.')) {
        return Some("is a dotfile");
    }
    (names::kind(site, inside) != NameKind::Plain).then_some("is a script")
}

fn note(tried: &mut String, path: &[u8], why: &str) {
    if !tried.is_empty() {
        tried.push_str("; ");
    }
    let _ = write!(tried, "{} {why}", String::from_utf8_lossy(path));
}

impl Sendable {
    fn new(site: &SiteFiles, name: &[u8], regular: Regular) -> Self {
        let version = regular.version;
        let last_modified = entry::last_modified(&version, std::time::SystemTime::now());
        let file = Arc::new(entry::open_file(regular));
        let tag = Tag::of(site.settings.etag, &version, &file);
        Self {
            awaits_tag: tag == Tag::Awaited,
            etag: tag.known(),
            last_modified,
            last_modified_text: date::format(last_modified),
            content_type: super::mime::of(name, site.settings.charset.as_deref()),
            version,
            file,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_a_segment_ends() {
        assert_eq!(beneath(b"/p/x", b"/p/"), Some(b"/x".to_vec()));
        assert_eq!(beneath(b"/p/x", b"/p"), Some(b"/x".to_vec()));
        assert_eq!(beneath(b"/p", b"/p"), None);
        assert_eq!(beneath(b"/px", b"/p"), None);
        assert_eq!(beneath(b"/x", b"/p"), None);
    }

    #[test]
    fn a_mapped_name_tells_its_root() {
        assert_eq!(mapped_root(b"/.haulier-root-12/a/b"), Some((12, &b"/a/b"[..])));
        for name in ["/.haulier-root-/a", "/.haulier-root-x/a", "/.haulier-root-1", "/a"] {
            assert_eq!(mapped_root(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn names_are_tried_as_written_and_then_decoded() {
        let texts = |name| {
            let spellings = spellings(name).into_iter();
            spellings
                .map(|text| String::from_utf8(text).expect("text"))
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(SendfileName::Path(b"/a b")), ["/a b"]);
        assert_eq!(texts(SendfileName::Path(b"/a%20b?c")), ["/a%20b?c", "/a b?c"]);
        assert_eq!(texts(SendfileName::Location(b"/a%20b?c")), ["/a%20b?c", "/a b"]);
        assert_eq!(texts(SendfileName::Encoded(b"/a%20b")), ["/a b"]);
    }
}
