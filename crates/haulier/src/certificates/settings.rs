//! Settings of TLS: the certificates that sites need, and their sources.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use haulier_server::Address;
use haulier_server::tls::LeastVersion;

/// The default authority: Let's Encrypt.
pub(crate) const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// TLS of a whole server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Addresses with TLS.
    pub(crate) listen: Vec<Address>,
    pub(crate) least: LeastVersion,
    /// Directory of the keys and certificates that haulier keeps.
    pub(crate) state: PathBuf,
    pub(crate) authority: Authority,
    /// The certificates, in the order of the sites.
    pub(crate) certificates: Vec<CertificatePlan>,
    /// A client that speaks HTTP to a port of TLS is sent to the same port by `https://`.
    pub(crate) redirects_plain: bool,
}

impl Tls {
    /// One port with one certificate of our own authority.
    pub(crate) fn local(listen: Vec<Address>, site: String, hosts: Vec<String>) -> Self {
        Self {
            listen,
            least: LeastVersion::default(),
            state: state_directory(),
            authority: Authority {
                directory: DIRECTORY.to_owned(),
                email: None,
                challenge: None,
            },
            certificates: vec![CertificatePlan {
                site,
                hosts,
                source: CertificateSource::Local,
            }],
            redirects_plain: true,
        }
    }
}

/// The authority for public names (RFC 8555).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) directory: String,
    /// The address that it writes to before a certificate ends.
    pub(crate) email: Option<String>,
    /// The challenge; `None`: any that is possible.
    pub(crate) challenge: Option<Challenge>,
}

/// A challenge, by which an authority checks that a name is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// Over port 80 (RFC 8555 §8.3).
    Http,
    /// Over port 443 (RFC 8737).
    Tls,
}

/// A certificate that a site needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificatePlan {
    pub(crate) site: String,
    /// Hosts of the site.
    pub(crate) hosts: Vec<String>,
    pub(crate) source: CertificateSource,
}

impl CertificatePlan {
    /// The first of its names. A certificate of an authority has no other.
    pub(crate) fn name(&self) -> &str {
        &self.hosts[0]
    }
}

/// Source of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CertificateSource {
    Files {
        chain: PathBuf,
        key: PathBuf,
    },
    /// The certificate authority of `[tls]`, which knows the first host.
    Authority,
    /// Our own authority, which this machine may trust.
    Local,
}

impl fmt::Display for CertificateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { chain, .. } => write!(f, "from {}", chain.display()),
            Self::Authority => f.write_str("ordered, and renewed when a third of its life is left"),
            Self::Local => f.write_str("made by this machine's own authority (`haulier trust`)"),
        }
    }
}

/// `mode`: the source of certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CertificateMode {
    Auto,
    Authority,
    Local,
    Off,
}

/// Directory of state: systemd's, else `/var/lib/haulier` for root and `~/.local/state/haulier` for others. It stays the
/// same after root was left.
pub(crate) fn state_directory() -> PathBuf {
    static FIRST: OnceLock<PathBuf> = OnceLock::new();
    FIRST.get_or_init(usual_state_directory).clone()
}

fn usual_state_directory() -> PathBuf {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(given) = given("STATE_DIRECTORY") {
        // Several are separated by colons.
        let first = given.to_string_lossy().split(':').next().map(PathBuf::from);
        return first.unwrap_or_default();
    }
    if crate::account::is_root() {
        return PathBuf::from("/var/lib/haulier");
    }
    let base = given("XDG_STATE_HOME").map(PathBuf::from);
    let home = || given("HOME").map(|home| Path::new(&home).join(".local/state"));
    base.or_else(home).unwrap_or_else(std::env::temp_dir).join("haulier")
}
