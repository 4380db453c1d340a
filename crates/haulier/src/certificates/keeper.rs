//! Holds the certificates that are served, and looks for better ones: files that changed, certificates that came.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use haulier_php::User;
use haulier_server::tls::{Acceptor, AcceptorError, Certificate, Certificates, Installed};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::acme::{self, Acme};
use super::local::{self, LocalAuthority, LocalError};
use super::state;
use crate::config::tls::{CertificatePlan, CertificateSource, Tls};
use crate::lifecycle::with_sources;

/// How often files are looked at.
const PACE: Duration = Duration::from_secs(2);

/// What is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    tls: Tls,
    http2: bool,
    /// An authority may ask without TLS.
    listens_plain: bool,
}

impl Wanted {
    pub(crate) fn new(tls: &Tls, http2: bool, listens_plain: bool) -> Self {
        // Other addresses need no other certificates.
        let tls = Tls {
            listen: Vec::new(),
            ..tls.clone()
        };
        Self {
            tls,
            http2,
            listens_plain,
        }
    }
}

/// All certificates of a server. Dropping it ends what [`Keeper::keep`] began.
#[derive(Debug)]
pub(crate) struct Keeper {
    wanted: Wanted,
    certificates: Arc<Certificates>,
    acceptor: Arc<Acceptor>,
    held: Mutex<Vec<Held>>,
    acme: Option<Acme>,
    local: Option<LocalAuthority>,
    news: Arc<Notify>,
    /// Closed with the value.
    end: watch::Sender<()>,
}

/// One certificate.
#[derive(Debug, Clone)]
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
    #[error("site `{site}` has no certificate: {} cannot be used", path.display())]
    Missing { site: String, path: PathBuf },
    #[error(transparent)]
    Tls(#[from] AcceptorError),
    #[error("cannot start the thread that orders certificates")]
    Thread(#[source] io::Error),
}

impl Keeper {
    /// Reads and makes what can be had at once. What `before` has of it is not read again unless it changed: the
    /// account that serves may not be able to. Sessions it began go on.
    ///
    /// # Errors
    /// [`KeeperError`]
    pub(crate) fn new(wanted: Wanted, before: Option<&Self>) -> Result<Self, KeeperError> {
        let Wanted {
            tls,
            http2,
            listens_plain,
        } = &wanted;
        let news = Arc::new(Notify::new());
        let has = |source| tls.certificates.iter().any(|plan| plan.source == source);
        let acme =
            has(CertificateSource::Authority).then(|| Acme::new(&tls.authority, &tls.state, *listens_plain, &news));
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
        let held = tls.certificates.iter().map(|plan| {
            let held = Held {
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
            };
            before.and_then(|before| before.held_for(&held)).unwrap_or(held)
        });
        let held = held.collect();
        let certificates = Certificates::new(challenges);
        let mut acceptor = Acceptor::new(Arc::clone(&certificates), tls.least, *http2)?;
        if let Some(before) = before {
            acceptor = acceptor.resuming(&before.acceptor);
        }
        let keeper = Self {
            certificates,
            acceptor: Arc::new(acceptor),
            held: Mutex::new(held),
            acme,
            local,
            news,
            end: watch::Sender::default(),
            wanted,
        };
        keeper.look();
        keeper.install(&keeper.held());
        keeper.are_files_there()?;
        Ok(keeper)
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        // A certificate is exchanged whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same certificate, as it is here.
    fn held_for(&self, wanted: &Held) -> Option<Held> {
        let all = self.held();
        let same = |held: &&Held| held.plan == wanted.plan && held.files == wanted.files;
        all.iter().find(same).cloned()
    }

    /// Whoever names files counts on them from the first connection on.
    fn are_files_there(&self) -> Result<(), KeeperError> {
        let held = self.held();
        let missing = held.iter().find_map(|held| match &held.plan.source {
            CertificateSource::Files { chain, .. } if held.current.is_none() => Some((&held.plan.site, chain)),
            _ => None,
        });
        missing.map_or(Ok(()), |(site, path)| {
            Err(KeeperError::Missing {
                site: site.clone(),
                path: path.clone(),
            })
        })
    }

    /// What it was made for.
    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// For the server, with certificates that are kept up to date.
    pub(crate) fn acceptor(&self) -> &Arc<Acceptor> {
        &self.acceptor
    }

    /// Lets `user` keep the state.
    ///
    /// # Errors
    /// The directory cannot be given away.
    pub(crate) fn give_to(&self, user: &User) -> io::Result<()> {
        if self.acme.is_none() && self.local.is_none() {
            return Ok(());
        }
        state::give_to(&self.wanted.tls.state, user)
    }

    /// Looks for changes from now on, and orders what is missing, for as long as the value lives.
    ///
    /// # Errors
    /// [`KeeperError::Thread`]
    pub(crate) fn keep(self: &Arc<Self>) -> Result<(), KeeperError> {
        if let Some(acme) = &self.acme {
            let held = self.held();
            let of_authority = held
                .iter()
                .filter(|held| held.plan.source == CertificateSource::Authority);
            let names = of_authority.map(|held| held.plan.hosts[0].clone()).collect();
            let started = acme.clone().start(names, self.end.subscribe());
            started.map_err(KeeperError::Thread)?;
        }
        let (keeper, news, mut end) = (Arc::downgrade(self), Arc::clone(&self.news), self.end.subscribe());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(PACE) => {}
                    () = news.notified() => {}
                    _ = end.changed() => {}
                }
                let Some(keeper) = keeper.upgrade() else { return };
                keeper.look();
            }
        });
        Ok(())
    }

    /// Takes what is new. What is worse than what we have is left alone, with a line about it.
    pub(crate) fn look(&self) {
        let mut all = self.held();
        let mut has_changed = false;
        for held in all.iter_mut() {
            has_changed |= match &held.files {
                Some(_) => held.read(),
                None => held.make(self.local.as_ref()),
            };
        }
        if has_changed {
            self.install(&all);
        }
    }

    fn install(&self, held: &[Held]) {
        let installed = held.iter().filter_map(|held| {
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

    fn keeper(state: &Path, source: CertificateSource, before: Option<&Keeper>) -> Result<Keeper, KeeperError> {
        Keeper::new(Wanted::new(&tls(state, source), true, true), before)
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
        let keeper = keeper(directory.path(), source, None).expect("nothing to make");
        let served = Arc::clone(&keeper.certificates);
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
        let local = keeper(directory.path(), CertificateSource::Local, None).expect("it can be made");
        assert!(local.certificates.has(b"shop.test"));
        let keeper = keeper(directory.path(), CertificateSource::Authority, None).expect("a directory for it");
        let served = Arc::clone(&keeper.certificates);
        assert!(!served.has(b"shop.test"));
        let file = keeper.held()[0].files.clone().expect("it is a file").0;
        fs::create_dir_all(file.parent().expect("a directory")).expect("the directory is ours");
        write(&file, 30);
        keeper.look();
        assert!(served.has(b"shop.test"));
    }

    #[test]
    fn a_keeper_goes_on_with_what_the_one_before_it_had() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("shop.pem");
        let end = write(&file, 30);
        let source = CertificateSource::Files {
            chain: file.clone(),
            key: file.clone(),
        };
        let first = keeper(directory.path(), source.clone(), None).expect("nothing to make");
        fs::write(&file, "half a certificate").expect("the directory is ours");
        let second = keeper(directory.path(), source.clone(), Some(&first)).expect("the old one is there");
        assert_eq!(second.certificates.not_after("shop"), Some(end));
        let failure = keeper(directory.path(), source, None).expect_err("there is none without it");
        assert!(matches!(failure, KeeperError::Missing { .. }), "{failure}");
        let local = keeper(directory.path(), CertificateSource::Local, Some(&first)).expect("it can be made");
        let made = local.held()[0].current.clone().expect("it was made");
        let next = keeper(directory.path(), CertificateSource::Local, Some(&local)).expect("nothing to make");
        assert!(Arc::ptr_eq(
            &made,
            next.held()[0].current.as_ref().expect("it is there")
        ));
    }

    #[tokio::test]
    async fn a_keeper_that_is_gone_looks_no_more() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let keeper = keeper(directory.path(), CertificateSource::Local, None).expect("it can be made");
        let keeper = Arc::new(keeper);
        let end = keeper.end.clone();
        keeper.keep().expect("nothing to start");
        assert_eq!(end.receiver_count(), 1);
        drop((keeper, end.send(())));
        end.closed().await;
    }
}
