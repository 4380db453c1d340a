//! The certificates of a server, kept up to date: files that change, and certificates that an authority issued.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use haulier_php::User;
use haulier_server::tls::{Acceptor, AcceptorError, Certificate, Certificates, InstalledCertificate};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::acme::{self, Acme};
use super::local::{self, LocalAuthority, LocalError};
use super::settings::{CertificatePlan, CertificateSource, Tls};
use super::state;
use crate::error_chain::with_sources;

/// Pace at which files are checked for changes.
const PACE: Duration = Duration::from_secs(2);

/// The certificates that the configuration asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateNeeds {
    tls: Tls,
    http2: bool,
    /// An authority can reach the server without TLS.
    listens_plain: bool,
}

impl CertificateNeeds {
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

/// All certificates of a server. Dropping it ends the watch that [`CertificateManager::start`] began.
#[derive(Debug)]
pub(crate) struct CertificateManager {
    needs: CertificateNeeds,
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
    /// The files it is read from; `None` for those issued by our own authority.
    files: Option<(PathBuf, PathBuf)>,
    /// The files as they were when they were last read.
    seen: Option<Stamps>,
    current: Option<Arc<Certificate>>,
}

/// The state of a file: time of modification, length, inode.
type Stamp = (i64, i64, u64, u64);
type Stamps = [Option<Stamp>; 2];

/// A failure to open the certificates of a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
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

impl CertificateManager {
    /// Opens the authorities and reads the certificates that exist. Those of `before` are read again only if they
    /// changed: the account that serves may not be able to. TLS sessions that `before` began can be resumed.
    ///
    /// # Errors
    /// [`CertificateError`]
    pub(crate) fn open(needs: CertificateNeeds, before: Option<&Self>) -> Result<Self, CertificateError> {
        let tls = &needs.tls;
        let news = Arc::new(Notify::new());
        let acme = open_acme(&needs, &news)?;
        let local = match tls.needs(&CertificateSource::Local) {
            true => Some(LocalAuthority::open(&tls.state)?),
            false => None,
        };
        let held = tls.certificates.iter().map(|plan| {
            let held = Held::new(plan, acme.as_ref());
            before.and_then(|before| before.held_for(&held)).unwrap_or(held)
        });
        let held = held.collect();
        let challenges = acme.is_some().then(|| acme::challenges(&tls.authority, &tls.state));
        let certificates = Certificates::new(challenges);
        let mut acceptor = Acceptor::new(Arc::clone(&certificates), tls.least, needs.http2)?;
        if let Some(before) = before {
            acceptor = acceptor.resuming(&before.acceptor);
        }
        let manager = Self {
            certificates,
            acceptor: Arc::new(acceptor),
            held: Mutex::new(held),
            acme,
            local,
            news,
            end: watch::Sender::default(),
            needs,
        };
        manager.refresh();
        manager.install(&manager.held());
        manager.require_files()?;
        Ok(manager)
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        // A certificate is exchanged whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current state of the same certificate.
    fn held_for(&self, wanted: &Held) -> Option<Held> {
        let all = self.held();
        let same = |held: &&Held| held.plan == wanted.plan && held.files == wanted.files;
        all.iter().find(same).cloned()
    }

    /// Refuses to start without a file that the configuration names: its site needs it from the first connection.
    fn require_files(&self) -> Result<(), CertificateError> {
        let held = self.held();
        let missing = held.iter().find_map(|held| match &held.plan.source {
            CertificateSource::Files { chain, .. } if held.current.is_none() => Some((&held.plan.site, chain)),
            _ => None,
        });
        missing.map_or(Ok(()), |(site, path)| {
            Err(CertificateError::Missing {
                site: site.clone(),
                path: path.clone(),
            })
        })
    }

    /// The needs it was opened for.
    pub(crate) fn needs(&self) -> &CertificateNeeds {
        &self.needs
    }

    /// The acceptor of TLS connections; its certificates are kept up to date.
    pub(crate) fn acceptor(&self) -> &Arc<Acceptor> {
        &self.acceptor
    }

    /// Gives the state directory to `user`.
    ///
    /// # Errors
    /// The directory cannot be given away.
    pub(crate) fn give_to(&self, user: &User) -> io::Result<()> {
        if self.acme.is_none() && self.local.is_none() {
            return Ok(());
        }
        state::give_to(&self.needs.tls.state, user)
    }

    /// Starts to watch for changes and to order missing certificates, until the value is dropped.
    ///
    /// # Errors
    /// [`CertificateError::Thread`]
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), CertificateError> {
        if let Some(acme) = &self.acme {
            let held = self.held();
            let of_authority = held
                .iter()
                .filter(|held| held.plan.source == CertificateSource::Authority);
            let names = of_authority.map(|held| held.plan.hosts[0].clone()).collect();
            let started = acme.clone().start(names, self.end.subscribe());
            started.map_err(CertificateError::Thread)?;
        }
        let (manager, news, mut end) = (Arc::downgrade(self), Arc::clone(&self.news), self.end.subscribe());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(PACE) => {}
                    () = news.notified() => {}
                    _ = end.changed() => {}
                }
                let Some(manager) = manager.upgrade() else { return };
                manager.refresh();
            }
        });
        Ok(())
    }

    /// Installs new certificates. One that cannot be used is logged, and the current one stays.
    pub(crate) fn refresh(&self) {
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
            Some(InstalledCertificate {
                site: held.plan.site.clone(),
                hosts: held.plan.hosts.clone(),
                certificate: Arc::clone(held.current.as_ref()?),
            })
        });
        self.certificates.install(installed.collect());
    }
}

/// Prepares the client of an ACME authority, if a site needs one.
fn open_acme(needs: &CertificateNeeds, news: &Arc<Notify>) -> Result<Option<Acme>, CertificateError> {
    let tls = &needs.tls;
    if !tls.needs(&CertificateSource::Authority) {
        return Ok(None);
    }
    let acme = Acme::new(&tls.authority, &tls.state, needs.listens_plain, news);
    state::make_private(acme.directory()).map_err(|source| CertificateError::State {
        path: acme.directory().to_owned(),
        source,
    })?;
    Ok(Some(acme))
}

impl Tls {
    fn needs(&self, source: &CertificateSource) -> bool {
        self.certificates.iter().any(|plan| plan.source == *source)
    }
}

impl Held {
    fn new(plan: &CertificatePlan, acme: Option<&Acme>) -> Self {
        let files = match &plan.source {
            CertificateSource::Files { chain, key } => Some((chain.clone(), key.clone())),
            CertificateSource::Authority => acme.map(|acme| {
                let file = acme.file_of(&plan.hosts[0]);
                (file.clone(), file)
            }),
            CertificateSource::Local => None,
        };
        Self {
            plan: plan.clone(),
            files,
            seen: None,
            current: None,
        }
    }

    /// Reads the files if they changed. Returns whether there is a new certificate.
    fn read(&mut self) -> bool {
        let Some((chain, key)) = &self.files else { return false };
        let stamps = [stamp(chain), stamp(key)];
        if self.seen == Some(stamps) {
            return false;
        }
        let is_first = self.seen.replace(stamps).is_none();
        // An ordered certificate has no file before the authority issued it.
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

    /// Has our own authority issue one if there is none or it is due. Returns whether there is a new certificate.
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
    use crate::certificates::Authority;

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

    fn manager(
        state: &Path,
        source: CertificateSource,
        before: Option<&CertificateManager>,
    ) -> Result<CertificateManager, CertificateError> {
        CertificateManager::open(CertificateNeeds::new(&tls(state, source), true, true), before)
    }

    /// Writes a certificate with its key into one file; returns the end of its validity.
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
        let manager = manager(directory.path(), source, None).expect("nothing to make");
        let served = Arc::clone(&manager.certificates);
        assert_eq!(served.not_after("shop"), Some(first));
        fs::write(&file, "half a certificate").expect("the directory is ours");
        manager.refresh();
        assert_eq!(served.not_after("shop"), Some(first), "the old one is better than none");
        let second = write(&file, 60);
        manager.refresh();
        assert_eq!(served.not_after("shop"), Some(second));
        fs::remove_file(&file).expect("it is there");
        manager.refresh();
        assert_eq!(served.not_after("shop"), Some(second));
    }

    #[test]
    fn names_of_our_own_authority_have_a_certificate_at_once_and_ordered_ones_when_it_comes() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let local = manager(directory.path(), CertificateSource::Local, None).expect("it can be made");
        assert!(local.certificates.has(b"shop.test"));
        let manager = manager(directory.path(), CertificateSource::Authority, None).expect("a directory for it");
        let served = Arc::clone(&manager.certificates);
        assert!(!served.has(b"shop.test"));
        let file = manager.held()[0].files.clone().expect("it is a file").0;
        fs::create_dir_all(file.parent().expect("a directory")).expect("the directory is ours");
        write(&file, 30);
        manager.refresh();
        assert!(served.has(b"shop.test"));
    }

    #[test]
    fn a_manager_goes_on_with_what_the_one_before_it_had() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("shop.pem");
        let end = write(&file, 30);
        let source = CertificateSource::Files {
            chain: file.clone(),
            key: file.clone(),
        };
        let first = manager(directory.path(), source.clone(), None).expect("nothing to make");
        fs::write(&file, "half a certificate").expect("the directory is ours");
        let second = manager(directory.path(), source.clone(), Some(&first)).expect("the old one is there");
        assert_eq!(second.certificates.not_after("shop"), Some(end));
        let failure = manager(directory.path(), source, None).expect_err("there is none without it");
        assert!(matches!(failure, CertificateError::Missing { .. }), "{failure}");
        let local = manager(directory.path(), CertificateSource::Local, Some(&first)).expect("it can be made");
        let made = local.held()[0].current.clone().expect("it was made");
        let next = manager(directory.path(), CertificateSource::Local, Some(&local)).expect("nothing to make");
        assert!(Arc::ptr_eq(
            &made,
            next.held()[0].current.as_ref().expect("it is there")
        ));
    }

    #[tokio::test]
    async fn a_manager_that_is_gone_looks_no_more() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let manager = manager(directory.path(), CertificateSource::Local, None).expect("it can be made");
        let manager = Arc::new(manager);
        let end = manager.end.clone();
        manager.start().expect("nothing to start");
        assert_eq!(end.receiver_count(), 1);
        drop((manager, end.send(())));
        end.closed().await;
    }
}
