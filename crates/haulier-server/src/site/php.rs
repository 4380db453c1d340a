//! The part of a site that runs PHP.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use haulier_php::Pool;
use haulier_proto::fastcgi::params::EncodedPairs;

use crate::files::{Script, ScriptSettings, SendRoots, SendfileSettings};

/// Settings of a site's PHP.
#[derive(Debug, Clone, Default)]
pub struct PhpSettings {
    /// Index of the pool in the pools of the server.
    pub pool: usize,
    /// The script that stays booted in workers of its own, and takes the requests of the front controller. Other scripts
    /// run in `pool`.
    pub worker: Option<WorkerScript>,
    /// The front controller as a path in the document root (`/index.php`). It answers for paths without a file; `None`
    /// answers 404.
    pub front: Option<String>,
    /// The scripts that may run.
    pub scripts: ScriptSettings,
    /// FastCGI parameters added to every request.
    pub params: Vec<(String, String)>,
    /// The document root as PHP sees it, if it runs on another machine.
    pub remote_root: Option<PathBuf>,
    /// Files that scripts may hand off.
    pub sendfile: SendfileSettings,
    /// Bodies that are taken from PHP and sent as files; `None` for none.
    pub offload: Option<OffloadSettings>,
}

/// A script that workers boot once, and that takes one request after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerScript {
    /// The file, absolute and without symbolic links.
    pub file: PathBuf,
    /// Index of the pool of these workers in the pools of the server.
    pub pool: usize,
}

/// Bodies to offload, by media type or extension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OffloadSettings {
    /// Media types, lower case: `application/pdf`, or `video/*`.
    pub types: Vec<String>,
    /// Extensions without their dot, lower case, of the path or of the name in Content-Disposition.
    pub extensions: Vec<String>,
    /// Shorter bodies are not offloaded, bytes.
    pub min_size: u64,
}

impl OffloadSettings {
    /// True if a media type is one of `types`; it is in lower case, without parameters.
    pub(crate) fn lists(&self, media_type: &[u8]) -> bool {
        self.types.iter().any(|listed| match listed.strip_suffix('*') {
            Some(prefix) => media_type.starts_with(prefix.as_bytes()),
            None => media_type == listed.as_bytes(),
        })
    }
}

/// The PHP part of a site.
#[derive(Debug)]
pub(crate) struct SitePhp {
    pub(crate) settings: PhpSettings,
    /// The pool of workers.
    pub(crate) pool: Arc<Pool>,
    /// The script that stays booted, and the pool of its workers.
    worker: Option<(PathBuf, Arc<Pool>)>,
    /// FastCGI parameters that are the same for every request.
    pub(crate) params: EncodedPairs,
    /// Directories whose files scripts may hand off.
    pub(crate) send_roots: SendRoots,
}

impl SitePhp {
    /// `root` is the document root without symbolic links.
    ///
    /// # Errors
    /// The pool does not exist, or the configured parameters do not fit into one record (64 KiB).
    pub(crate) fn open(settings: &PhpSettings, pools: &[Arc<Pool>], root: &Path) -> io::Result<Self> {
        let find = |index: usize| {
            let pool = pools.get(index).cloned();
            pool.ok_or_else(|| io::Error::other(format!("pool {index} does not exist")))
        };
        let worker = settings.worker.as_ref();
        let worker = worker.map(|worker| Ok::<_, io::Error>((worker.file.clone(), find(worker.pool)?)));
        let send_roots = SendRoots::new(&settings.sendfile, settings.remote_root.as_deref());
        Ok(Self {
            params: constant_params(settings, root, &send_roots)?,
            settings: settings.clone(),
            pool: find(settings.pool)?,
            worker: worker.transpose()?,
            send_roots,
        })
    }

    /// The pool that runs this script.
    pub(crate) fn pool_of(&self, script: &Script) -> &Arc<Pool> {
        let is_front = || {
            self.settings
                .front
                .as_ref()
                .is_some_and(|front| front.as_bytes() == script.name)
        };
        match &self.worker {
            Some((file, pool)) if *file == script.filename || is_front() => pool,
            _ => &self.pool,
        }
    }

    /// True if a script stays booted.
    pub(crate) fn is_booted(&self) -> bool {
        self.worker.is_some()
    }

    /// All its pools.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        std::iter::once(&self.pool).chain(self.worker.iter().map(|(_, pool)| pool))
    }
}

/// FastCGI parameters that are the same for every request.
fn constant_params(php: &PhpSettings, root: &Path, send_roots: &SendRoots) -> io::Result<EncodedPairs> {
    let mut pairs = EncodedPairs::default();
    let root = php.remote_root.as_deref().unwrap_or(root);
    let fixed = [
        ("GATEWAY_INTERFACE", &b"CGI/1.1"[..]),
        ("SERVER_SOFTWARE", b"haulier"),
        ("DOCUMENT_ROOT", root.as_os_str().as_bytes()),
        ("CONTEXT_DOCUMENT_ROOT", root.as_os_str().as_bytes()),
        // php-cgi built with force-cgi-redirect requires it.
        ("REDIRECT_STATUS", b"200"),
    ];
    let configured = php.params.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    for (name, value) in fixed.into_iter().chain(configured) {
        pairs.push(name.as_bytes(), value).map_err(io::Error::other)?;
    }
    for (name, value) in announcements(php, send_roots) {
        pairs.push(name.as_bytes(), &value).map_err(io::Error::other)?;
    }
    Ok(pairs)
}

/// Variables that announce X-Sendfile to applications. Symfony, and with it Laravel and Drupal, hands a file off only
/// if it is beneath a prefix of the mapping. ownCloud reads the second variable.
fn announcements(php: &PhpSettings, send_roots: &SendRoots) -> Vec<(&'static str, Vec<u8>)> {
    let mut roots: Vec<(Vec<u8>, String)> = send_roots
        .mapped()
        .map(|(path, prefix)| (path.as_os_str().as_bytes().to_vec(), prefix))
        .collect();
    if let Some(remote) = &php.remote_root {
        // Remote PHP has other paths for our files; only the document root can be mapped.
        roots = vec![(remote.as_os_str().as_bytes().to_vec(), String::new())];
    }
    if roots.is_empty() {
        return Vec::new();
    }
    let mut announced = vec![
        ("MOD_X_SENDFILE_ENABLED", b"1".to_vec()),
        ("HAULIER_SEND", send_token().into()),
    ];
    let mapping = mapping(&roots);
    if !mapping.is_empty() {
        announced.push(("HTTP_X_SENDFILE_TYPE", b"X-Accel-Redirect".to_vec()));
        announced.push(("HTTP_X_ACCEL_MAPPING", mapping));
    }
    announced
}

/// `/srv/shop/=/prefix/, …`, without paths that this syntax cannot express.
fn mapping(roots: &[(Vec<u8>, String)]) -> Vec<u8> {
    let is_plain = |path: &[u8]| {
        path.iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/-_.+~".contains(byte))
    };
    let mut mapping = Vec::new();
    for (path, prefix) in roots
        .iter()
        .filter(|(path, prefix)| is_plain(path) && !prefix.is_empty())
    {
        if !mapping.is_empty() {
            mapping.push(b',');
        }
        mapping.extend_from_slice(path);
        mapping.extend_from_slice(b"/=");
        mapping.extend_from_slice(prefix.as_bytes());
    }
    mapping
}

/// The token that PHP's prelude adds to a hand-off; without it the field does not count. Random for each process,
/// hexadecimal.
pub fn send_token() -> &'static str {
    static TOKEN: OnceLock<String> = OnceLock::new();
    TOKEN.get_or_init(|| {
        let random = || RandomState::new().build_hasher().finish();
        format!("{:016x}{:016x}", random(), random())
    })
}
