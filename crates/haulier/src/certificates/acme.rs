//! Certificates from an authority of the internet (RFC 8555): ordered when they are missing, renewed when a third of
//! their life is left.
//!
//! A thread of its own does it, so that no request waits for it. Certificates are kept in the state directory. Servers
//! with the same names share its lock: one of them orders, all of them serve.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use haulier_server::tls::{Certificate, Challenges};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::http::Client;
use super::settings::{Authority, Challenge};
use super::state::{self, Lock};
use crate::error_chain::with_sources;
use crate::expiry::days;

/// Pause after the first failure; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(300);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(12 * 3600);
/// The longest sleep: the clock may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
/// Time for an authority to validate a name, and to sign.
const TIMEOUT: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));

/// Orders certificates for the names of a server from an authority.
#[derive(Debug, Clone)]
pub(super) struct Acme {
    authority: Authority,
    directory: PathBuf,
    /// The kinds of challenge that this server can answer.
    open: Vec<Challenge>,
    challenges: Challenges,
    /// Called when there is a new certificate.
    news: Arc<Notify>,
}

/// One name.
#[derive(Debug)]
struct ManagedName {
    name: String,
    /// Time of the next check.
    next: SystemTime,
    failures: u32,
}

/// An order that failed. `Display` is for the log.
#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error(transparent)]
    Protocol(#[from] Error),
    #[error("cannot use the state directory")]
    State(#[from] io::Error),
    #[error("cannot make a key or a request")]
    Make(#[from] rcgen::Error),
    #[error("the authority offers no challenge that this server can answer")]
    NoChallenge,
    #[error("the authority could not validate the name: {0}")]
    Refused(String),
}

impl Acme {
    pub(super) fn new(authority: &Authority, state: &Path, listens_plain: bool, news: &Arc<Notify>) -> Self {
        let directory = place_of(authority, state);
        let open = match authority.challenge {
            Some(challenge) => vec![challenge],
            // Without a plain port the HTTP challenge cannot be answered.
            None if listens_plain => vec![Challenge::Http, Challenge::Tls],
            None => vec![Challenge::Tls],
        };
        Self {
            authority: authority.clone(),
            challenges: challenges(authority, state),
            directory,
            open,
            news: Arc::clone(news),
        }
    }

    /// The directory of its state.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file with certificate, chain and key of a name.
    pub(super) fn file_of(&self, name: &str) -> PathBuf {
        self.directory.join("certificates").join(format!("{name}.pem"))
    }

    /// Takes care of these names until the sender of `end` is gone.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(super) fn start(self, names: Vec<String>, mut end: watch::Receiver<()>) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("haulier-acme".to_owned());
        thread.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(async {
                    tokio::select! {
                        () = self.run(names) => {}
                        _ = end.changed() => {}
                    }
                }),
                Err(error) => warn!(%error, "certificates cannot be ordered"),
            }
        })?;
        Ok(())
    }

    async fn run(&self, names: Vec<String>) {
        let now = SystemTime::now();
        let one = |name| ManagedName {
            name,
            next: now,
            failures: 0,
        };
        let mut names: Vec<ManagedName> = names.into_iter().map(one).collect();
        loop {
            for name in &mut names {
                if name.next <= SystemTime::now() {
                    self.look_after(name).await;
                }
            }
            let next = names.iter().map(|name| name.next).min();
            let left = next.and_then(|next| next.duration_since(SystemTime::now()).ok());
            tokio::time::sleep(left.unwrap_or_default().min(LONGEST_SLEEP)).await;
        }
    }

    /// Orders a certificate if it is due; returns the pause until the next check.
    async fn look_after(&self, name: &mut ManagedName) {
        match self.renew(&name.name, name.failures).await {
            Ok(due) => {
                name.failures = 0;
                name.next = due;
            }
            Err(error) => {
                let pause = pause(name.failures);
                warn!(
                    name = name.name,
                    error = with_sources(&error),
                    again_in_s = pause.as_secs(),
                    "no certificate"
                );
                name.failures += 1;
                name.next = SystemTime::now() + pause;
            }
        }
    }

    /// Makes sure that the name has a certificate that is not due; returns the time of its renewal.
    async fn renew(&self, name: &str, failures: u32) -> Result<SystemTime, OrderError> {
        let file = self.file_of(name);
        if let Some(due) = due(&file).filter(|&due| due > SystemTime::now()) {
            return Ok(due);
        }
        // Waiting for another process is blocking, and this thread has nothing else to do.
        let _lock = Lock::take(&self.directory)?;
        if let Some(due) = due(&file).filter(|&due| due > SystemTime::now()) {
            self.news.notify_one();
            return Ok(due);
        }
        let account = self.account().await?;
        // Another kind of challenge may succeed where this one failed.
        let challenge = self.open[failures as usize % self.open.len()];
        let ordered = self.order(&account, name, challenge).await;
        if matches!(&ordered, Err(OrderError::Protocol(error)) if is_account_unknown(error)) {
            // The authority no longer knows the account: the next try creates a new one.
            let _ = std::fs::remove_file(self.account_file());
        }
        let (chain, key) = ordered?;
        state::make_private(&self.directory.join("certificates"))?;
        state::write_private(&file, format!("{chain}\n{key}").as_bytes())?;
        self.news.notify_one();
        let certificate = Certificate::read(&file, &file).ok();
        let left = certificate.and_then(|certificate| certificate.not_after().duration_since(SystemTime::now()).ok());
        info!(name, ends_in = left.map(days), "certificate received");
        due(&file).ok_or_else(|| OrderError::Refused("its certificate cannot be used".to_owned()))
    }

    fn account_file(&self) -> PathBuf {
        self.directory.join("account.json")
    }

    /// Our account with the authority; made if there is none.
    async fn account(&self) -> Result<Account, OrderError> {
        let builder = || Ok::<_, io::Error>(Account::builder_with_http(Box::new(Client::new()?)));
        let file = self.account_file();
        if let Ok(text) = std::fs::read(&file) {
            let credentials: AccountCredentials = serde_json::from_slice(&text).map_err(Error::from)?;
            return Ok(builder()?.from_credentials(credentials).await?);
        }
        let contact = self.authority.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.authority.directory.clone();
        let (account, credentials) = builder()?.create(&new, directory, None).await?;
        let text = serde_json::to_vec(&credentials).map_err(Error::from)?;
        state::write_private(&file, &text)?;
        Ok(account)
    }

    /// Carries out one order; returns chain and key in PEM form.
    async fn order(&self, account: &Account, name: &str, challenge: Challenge) -> Result<(String, String), OrderError> {
        let identifiers = [Identifier::Dns(name.to_owned())];
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
        let mut tokens = Vec::new();
        let proved = self.prove(&mut order, name, challenge, &mut tokens).await;
        for token in &tokens {
            self.challenges.remove(token, name);
        }
        proved?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key)?;
        order.finalize_csr(request.der()).await?;
        let chain = order.poll_certificate(&TIMEOUT).await?;
        Ok((chain, key.serialize_pem()))
    }

    /// Answers the challenges of the authority until it has validated the name.
    async fn prove(
        &self,
        order: &mut Order,
        name: &str,
        challenge: Challenge,
        tokens: &mut Vec<String>,
    ) -> Result<(), OrderError> {
        let wanted = match challenge {
            Challenge::Http => ChallengeType::Http01,
            Challenge::Tls => ChallengeType::TlsAlpn01,
        };
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let Some(mut asked) = authorization.challenge(wanted.clone()) else {
                return Err(OrderError::NoChallenge);
            };
            let answer = asked.key_authorization();
            tokens.push(asked.token.clone());
            match challenge {
                Challenge::Http => self.challenges.put_http(&asked.token, answer.as_str())?,
                Challenge::Tls => {
                    let (chain, key) = proof(name, answer.digest().as_ref())?;
                    self.challenges.put_tls(name, &chain, &key)?;
                }
            }
            asked.set_ready().await?;
        }
        match order.poll_ready(&TIMEOUT).await? {
            OrderStatus::Ready => Ok(()),
            _ => Err(OrderError::Refused(why_refused(order).await)),
        }
    }
}

/// The directory of one authority below the state directory.
fn place_of(authority: &Authority, state: &Path) -> PathBuf {
    state.join("acme").join(state::slug(&authority.directory))
}

/// The challenges to be answered, shared by all servers of these names.
pub(super) fn challenges(authority: &Authority, state: &Path) -> Challenges {
    Challenges::new(place_of(authority, state).join("challenges"))
}

/// The reason that the authority gives for a failed validation.
async fn why_refused(order: &mut Order) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else {
            continue;
        };
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
            return problem.to_string();
        }
    }
    "it does not say why".to_owned()
}

fn is_account_unknown(error: &Error) -> bool {
    let Error::Api(problem) = error else { return false };
    problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:accountDoesNotExist")
}

/// The certificate that proves a name over TLS (RFC 8737 §3).
fn proof(name: &str, digest: &[u8]) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Time of renewal of the certificate in this file; `None` if the file holds no usable one.
fn due(file: &Path) -> Option<SystemTime> {
    let certificate = Certificate::read(file, file).ok()?;
    let life = certificate.not_after().duration_since(certificate.not_before()).ok()?;
    // Servers that were set up together must not all renew at once.
    let early = life.mul_f64(1.0 / 3.0 + fraction() / 30.0);
    certificate.not_after().checked_sub(early)
}

/// Anything from 0 to 1, different at every call.
fn fraction() -> f64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let random = RandomState::new().build_hasher().finish();
    random as f64 / u64::MAX as f64
}

/// The pause after this many failures: authorities count them (RFC 8555 §6.6).
fn pause(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE);
    doubled.mul_f64(1.0 + fraction() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with a certificate that began and ends this many seconds from now.
    fn file(begins: i64, ends: i64) -> tempfile::NamedTempFile {
        let moment = |seconds: i64| {
            let span = Duration::from_secs(seconds.unsigned_abs());
            let now = SystemTime::now();
            if seconds < 0 { now - span } else { now + span }
        };
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
        params.not_before = moment(begins).into();
        params.not_after = moment(ends).into();
        let certificate = params.self_signed(&key).expect("a certificate");
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(&file, format!("{}{}", certificate.pem(), key.serialize_pem())).expect("it is ours");
        file
    }

    #[test]
    fn a_certificate_is_renewed_when_about_a_third_of_its_life_is_left() {
        let file = file(-1000, 8000);
        for _ in 0..20 {
            let due = due(file.path()).expect("it can be used");
            let wait = due.duration_since(SystemTime::now()).expect("not yet").as_secs();
            // 9,000 s of life: 3,000 to 3,300 before its end.
            assert!((4690..=5000).contains(&wait), "{wait}");
        }
        assert!(due(Path::new("/nonexistent")).is_none());
    }

    #[test]
    fn failures_are_followed_by_longer_and_longer_pauses() {
        assert!(pause(0) >= FIRST_PAUSE && pause(0) <= FIRST_PAUSE.mul_f64(1.1));
        assert!(pause(3) >= FIRST_PAUSE * 8);
        assert!(pause(40) >= LONGEST_PAUSE && pause(40) <= LONGEST_PAUSE.mul_f64(1.1));
    }

    #[test]
    fn the_proof_is_for_the_name_and_holds_the_digest() {
        let (chain, key) = proof("a.example", &[7; 32]).expect("a certificate");
        assert!(key.contains("PRIVATE KEY"));
        // RFC 8737 §6.1: id-pe-acmeIdentifier, critical, an octet string in the octet string.
        let der = der_of(&chain);
        let expected = [&[6, 8, 43, 6, 1, 5, 5, 7, 1, 31, 1, 1, 255, 4, 34, 4, 32][..], &[7; 32]].concat();
        assert!(der.windows(expected.len()).any(|found| found == expected));
    }

    fn der_of(pem: &str) -> Vec<u8> {
        use base64::Engine;
        let lines: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        base64::engine::general_purpose::STANDARD.decode(lines).expect("base64")
    }
}
