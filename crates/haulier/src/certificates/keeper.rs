//! Holds the certificates that are served, and looks for better ones: files that changed, certificates that came.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use haulier_php::User;
use haulier_server::tls::{Certificate, Certificates, Installed};
use tokio::sync::Notify;
use tracing::{info, warn};

use super::acme::{self, Acme};
use super::local::{self, LocalAuthority, LocalError};
use super::state;
use crate::config::tls::{CertificatePlan, CertificateSource, Tls};
use crate::lifecycle::with_sources;

/// How often files are looked at.
const PACE: Duration = Duration::from_secs(2);

/// All certificates of a server.
#[derive(Debug)]
pub(crate) struct Keeper {
    certificates: Arc<Certificates>,
    held: Vec<Held>,
    acme: Option<Acme>,
    local: Option<LocalAuthority>,
    state: PathBuf,
    news: Arc<Notify>,
}

/// One certificate.
#[derive(Debug)]
struct Held {
    plan: CertificatePlan,
    /// Where it is read from; `None` for those made here.
    files: Option<(PathBuf, PathBuf)>,
    /// The files as they were when they were last read.
    seen: Option<Stamps>,
    current: Option<Arc<Certificate>>,
}

/// What changes when a file does: when it was written, how long it is, which file it is.
type Stamp = (i64, i64, u64, u64);
type Stamps = [Option<Stamp>; 2];

/// Why a server cannot have its certificates.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeeperError {
    #[error("no certificates of our own authority")]
    Local(#[from] LocalError),
    #[error("cannot use the state directory {}", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error("cannot start the thread that orders certificates")]
    Thread(#[source] io::Error),
}

impl Keeper {
    /// Reads and makes what can be had at once. `listens_plain`: an authority may ask without TLS.
    ///
    /// # Errors
    /// [`KeeperError`]. A file that cannot be read is a line in the log: it was good when the configuration was read.
    pub(crate) fn new(tls: &Tls, listens_plain: bool) -> Result<Self, KeeperError> {
        let news = Arc::new(Notify::new());
        let has = |source| tls.certificates.iter().any(|plan| plan.source == source);
        let acme =
            has(CertificateSource::Authority).then(|| Acme::new(&tls.authority, &tls.state, listens_plain, &news));
        if let Some(acme) = &acme {
            state::make_private(acme.directory()).map_err(|source| KeeperError::State {
                path: acme.directory().to_owned(),
                source,
            })?;
        }
        let local = match has(CertificateSource::Local) {
            true => Some(LocalAuthority::open(&tls.state)?),
            false => None,
        };
        let challenges = acme.is_some().then(|| acme::challenges(&tls.authority, &tls.state));
        let held = tls.certificates.iter().map(|plan| Held {
            files: match &plan.source {
                CertificateSource::Files { chain, key } => Some((chain.clone(), key.clone())),
                CertificateSource::Authority => acme.as_ref().map(|acme| {
                    let file = acme.file_of(&plan.hosts[0]);
                    (file.clone(), file)
                }),
                CertificateSource::Local => None,
            },
            plan: plan.clone(),
            seen: None,
            current: None,
        });
        let mut keeper = Self {
            certificates: Certificates::new(challenges),
            held: held.collect(),
            acme,
            local,
            state: tls.state.clone(),
            news,
        };
        keeper.look();
        Ok(keeper)
    }

    /// For the server; kept up to date.
    pub(crate) fn certificates(&self) -> &Arc<Certificates> {
        &self.certificates
    }

    /// Lets `user` keep the state.
    ///
    /// # Errors
    /// The directory cannot be given away.
    pub(crate) fn give_to(&self, user: &User) -> io::Result<()> {
        if self.acme.is_none() && self.local.is_none() {
            return Ok(());
        }
        state::give_to(&self.state, user)
    }

    /// Looks for changes from now on, and orders what is missing.
    ///
    /// # Errors
    /// [`KeeperError::Thread`]
    pub(crate) fn keep(mut self) -> Result<(), KeeperError> {
        if let Some(acme) = self.acme.take() {
            let of_authority = self
                .held
                .iter()
                .filter(|held| held.plan.source == CertificateSource::Authority);
            let names = of_authority.map(|held| held.plan.hosts[0].clone()).collect();
            acme.start(names).map_err(KeeperError::Thread)?;
        }
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(PACE) => {}
                    () = self.news.notified() => {}
                }
                self.look();
            }
        });
        Ok(())
    }

    /// Takes what is new. What is worse than what we have is left alone, with a line about it.
    fn look(&mut self) {
        let mut has_changed = false;
        for held in &mut self.held {
            has_changed |= match &held.files {
                Some(_) => held.read(),
                None => held.make(self.local.as_ref()),
            };
        }
        if has_changed {
            self.install();
        }
    }

    fn install(&self) {
        let installed = self.held.iter().filter_map(|held| {
            Some(Installed {
                site: held.plan.site.clone(),
                hosts: held.plan.hosts.clone(),
                certificate: Arc::clone(held.current.as_ref()?),
            })
        });
        self.certificates.install(installed.collect());
    }
}

impl Held {
    /// Reads the files if they are others than last time: whether there is a new certificate.
    fn read(&mut self) -> bool {
        let Some((chain, key)) = &self.files else { return false };
        let stamps = [stamp(chain), stamp(key)];
        if self.seen == Some(stamps) {
            return false;
        }
        let is_first = self.seen.replace(stamps).is_none();
        // A certificate that was ordered comes when it comes.
        if stamps.contains(&None) && self.plan.source == CertificateSource::Authority {
            return false;
        }
        match Certificate::read(chain, key) {
            Ok(certificate) => {
                if !is_first {
                    info!(site = self.plan.site, file = %chain.display(), "certificate read anew");
                }
                self.current = Some(Arc::new(certificate));
                true
            }
            Err(error) => {
                let kept = self.current.is_some();
                warn!(site = self.plan.site, file = %chain.display(), error = with_sources(&error), kept, "certificate cannot be used");
                false
            }
        }
    }

    /// Makes one by our own authority if there is none, or one that is old: whether there is a new certificate.
    fn make(&mut self, authority: Option<&LocalAuthority>) -> bool {
        let is_fresh = |certificate: &Arc<Certificate>| {
            let left = certificate.not_after().duration_since(SystemTime::now());
            left.is_ok_and(|left| left > local::LIFETIME / 3)
        };
        if self.current.as_ref().is_some_and(is_fresh) {
            return false;
        }
        match authority.map(|authority| authority.issue(&self.plan.hosts)) {
            Some(Ok(certificate)) => {
                self.current = Some(Arc::new(certificate));
                true
            }
            Some(Err(error)) => {
                warn!(site = self.plan.site, error = with_sources(&error), "no certificate");
                false
            }
            None => false,
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some((found.mtime(), found.mtime_nsec(), found.size(), found.ino()))
}

#[cfg(test)]
mod tests {
    use haulier_server::tls::LeastVersion;

    use super::*;
    use crate::config::tls::Authority;

    fn tls(state: &Path, source: CertificateSource) -> Tls {
        Tls {
            listen: Vec::new(),
            least: LeastVersion::Tls12,
            state: state.to_owned(),
            authority: Authority {
                directory: "https://acme.example/directory".to_owned(),
                email: None,
                challenge: None,
            },
            certificates: vec![CertificatePlan {
                site: "shop".to_owned(),
                hosts: vec!["shop.test".to_owned()],
                source,
            }],
            redirects_plain: false,
        }
    }

    /// Writes a certificate with its key into one file; gives the end of its life.
    fn write(path: &Path, days: u64) -> SystemTime {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec!["shop.test".to_owned()]).expect("a name");
        params.not_after = (SystemTime::now() + Duration::from_secs(days * 86_400)).into();
        let certificate = params.self_signed(&key).expect("a certificate");
        let text = format!("{}{}", certificate.pem(), key.serialize_pem());
        fs::write(path, &text).expect("the directory is ours");
        Certificate::from_pem(text.as_bytes(), text.as_bytes())
            .expect("both fit")
            .not_after()
    }

    #[test]
    fn a_file_that_changes_is_read_anew_and_a_broken_one_is_left_alone() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("shop.pem");
        let first = write(&file, 30);
        let source = CertificateSource::Files {
            chain: file.clone(),
            key: file.clone(),
        };
        let mut keeper = Keeper::new(&tls(directory.path(), source), true).expect("nothing to make");
        let served = Arc::clone(keeper.certificates());
        assert_eq!(served.not_after("shop"), Some(first));
        fs::write(&file, "half a certificate").expect("the directory is ours");
        keeper.look();
        assert_eq!(served.not_after("shop"), Some(first), "the old one is better than none");
        let second = write(&file, 60);
        keeper.look();
        assert_eq!(served.not_after("shop"), Some(second));
        fs::remove_file(&file).expect("it is there");
        keeper.look();
        assert_eq!(served.not_after("shop"), Some(second));
    }

    #[test]
    fn names_of_our_own_authority_have_a_certificate_at_once_and_ordered_ones_when_it_comes() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let keeper = Keeper::new(&tls(directory.path(), CertificateSource::Local), true).expect("it can be made");
        assert!(keeper.certificates().has(b"shop.test"));
        let ordered = tls(directory.path(), CertificateSource::Authority);
        let mut keeper = Keeper::new(&ordered, true).expect("a directory for it");
        let served = Arc::clone(keeper.certificates());
        assert!(!served.has(b"shop.test"));
        let file = keeper.held[0].files.clone().expect("it is a file").0;
        fs::create_dir_all(file.parent().expect("a directory")).expect("the directory is ours");
        write(&file, 30);
        keeper.look();
        assert!(served.has(b"shop.test"));
    }
}
