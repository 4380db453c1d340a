//! Settings of the files of a site.

use std::path::PathBuf;

use crate::pattern::glob::Glob;

/// The document root and how its files are served.
#[derive(Debug, Clone)]
pub struct FileSettings {
    /// The document root, absolute.
    pub root: PathBuf,
    /// Names tried, in order, for a directory.
    pub index: Vec<String>,
    /// Paths that are never served, judged after decoding; answered 404. Dotfiles and backups are never served either.
    pub deny: Vec<Glob>,
    /// Path → Cache-Control; the first match wins.
    pub cache: Vec<(Glob, String)>,
    /// Entity tags of files.
    pub etag: EntityTags,
    /// The charset in the Content-Type of text files; `None` names none.
    pub charset: Option<String>,
    /// Show the contents of a directory without index (development only).
    pub listing: bool,
    /// The page for a path without a file, as a path in the document root (`/index.html`): applications that run in the
    /// browser route by the address. A front controller of PHP takes precedence.
    pub fallback: Option<String>,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self {
            root: PathBuf::new(),
            index: vec!["index.html".to_owned()],
            deny: Vec::new(),
            cache: Vec::new(),
            etag: EntityTags::default(),
            charset: Some(CHARSET.to_owned()),
            listing: false,
            fallback: None,
        }
    }
}

/// The charset of text files by default.
pub const CHARSET: &str = "utf-8";

/// The origin of entity tags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EntityTags {
    /// From size and modification time.
    #[default]
    Stat,
    /// From the content.
    Content,
    /// No entity tags.
    Off,
}

/// The scripts of a site: files that PHP runs and that are never sent.
#[derive(Debug, Clone)]
pub struct ScriptSettings {
    /// Extensions of scripts, with their dot.
    pub extensions: Vec<String>,
    /// Scripts that may run, as paths in the document root; empty = all.
    pub allow: Vec<Glob>,
    /// Scripts that never run, even if `allow` names them (upload directories); answered 404.
    pub never: Vec<Glob>,
}

impl Default for ScriptSettings {
    fn default() -> Self {
        Self {
            extensions: vec![".php".to_owned()],
            allow: Vec::new(),
            never: Vec::new(),
        }
    }
}

/// Files that scripts name for the server to send (X-Sendfile and similar fields).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendfileSettings {
    /// Directories of such files. A missing one is looked for again.
    pub roots: Vec<PathBuf>,
    /// Prefix of an X-Accel-Redirect → directory. If empty, such a path is one in the document root.
    pub map: Vec<(String, PathBuf)>,
}
