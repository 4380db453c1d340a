//! Settings of the files of a site.

use std::path::PathBuf;

use haulier_settings::settings_table;

use crate::pattern::glob::Glob;

const ENTITY_TAGS: [(&str, EntityTags); 3] = [
    ("stat", EntityTags::Stat),
    ("content", EntityTags::Content),
    ("off", EntityTags::Off),
];

settings_table! {
    /// The rows of `[site.NAME]` about files.
    pub struct FileRows = "site.NAME" =>

    /// The document root and how its files are served.
    #[derive(Debug, Clone)]
    pub struct FileSettings {
        /// The document root, absolute.
        root: PathBuf = PathBuf::new();
        /// Names tried, in order, for a directory.
        index: Vec<String> = vec!["index.html".to_owned()];
        /// Paths that are never served, judged after decoding; answered 404. Dotfiles and backups are never served either.
        deny: Vec<Glob> = Vec::new();
        /// Path → Cache-Control; the first match wins.
        cache: Vec<(Glob, String)> = Vec::new();
        /// The charset in the Content-Type of text files; `None` names none.
        charset: Option<String> = Some(CHARSET.to_owned());
        /// Show the contents of a directory without index (development only).
        listing: bool = false;
        /// The page for a path without a file, as a path in the document root (`/index.html`): applications that run in
        /// the browser route by the address. A front controller of PHP takes precedence.
        fallback: Option<String> = None;
    }

    /// Pattern → lifetime in clients: `"1y immutable"`, `"10m"`, `"no-store"`.
    cache: Pairs = {};
    /// Entity tags of its files: `stat` from size and time, `content` from the content, `off` none.
    etag: Choice(EntityTags, ENTITY_TAGS) -> EntityTags = "stat";
    /// Charset of its text files in Content-Type; `off` names none.
    charset: Text = "utf-8";
    /// Patterns of paths that are never served; 404.
    deny: Texts = [];
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
