//! Our own certificate authority, for names that no other one signs: `localhost`, `shop.test`, addresses.
//!
//! Its key never leaves the state directory. Browsers trust it after `haulier trust`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use haulier_server::tls::{Certificate, CertificateError};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::state::{self, Lock};

const DAY: Duration = Duration::from_secs(86_400);
/// Lifetime of the authority: people install it by hand.
const AUTHORITY: Duration = Duration::from_secs(3650 * 86_400);
/// Lifetime of its certificates; they are renewed at every start and when a third is left.
pub(super) const LIFETIME: Duration = Duration::from_secs(90 * 86_400);

/// The authority of a state directory.
#[derive(Debug)]
pub(crate) struct LocalAuthority {
    certificate: PathBuf,
    key: PathBuf,
}

/// A failure of the local authority.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalError {
    #[error("cannot use {}", path.display())]
    Files { path: PathBuf, source: io::Error },
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    #[error(transparent)]
    Made(#[from] CertificateError),
}

impl LocalAuthority {
    /// Opens the authority of this state directory; creates it if there is none or it has expired.
    pub(crate) fn open(state: &Path) -> Result<Self, LocalError> {
        let directory = state.join("local");
        let authority = Self {
            certificate: directory.join("authority.pem"),
            key: directory.join("authority.key"),
        };
        let failed = |source| LocalError::Files {
            path: directory.clone(),
            source,
        };
        let _lock = Lock::take(&directory).map_err(failed)?;
        if !authority.is_usable() {
            authority.make()?;
        }
        Ok(authority)
    }

    /// Its certificate, as programs import it.
    pub(crate) fn certificate_file(&self) -> &Path {
        &self.certificate
    }

    fn is_usable(&self) -> bool {
        let read = Certificate::read(&self.certificate, &self.key);
        read.is_ok_and(|certificate| certificate.not_after() > SystemTime::now() + LIFETIME)
    }

    fn make(&self) -> Result<(), LocalError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let name = format!("haulier local authority ({})", whose());
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "haulier");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let now = SystemTime::now();
        params.not_before = (now - DAY).into();
        params.not_after = (now + AUTHORITY).into();
        let certificate = params.self_signed(&key)?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| LocalError::Files { path, source }
        };
        state::write_private(&self.key, key.serialize_pem().as_bytes()).map_err(failed(&self.key))?;
        state::write_private(&self.certificate, certificate.pem().as_bytes()).map_err(failed(&self.certificate))
    }

    /// A certificate for these hosts: names, `*.name`, addresses with or without brackets.
    pub(crate) fn issue(&self, hosts: &[String]) -> Result<Certificate, LocalError> {
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|source| LocalError::Files {
                path: path.to_owned(),
                source,
            })
        };
        let own = read(&self.certificate)?;
        let issuer = Issuer::from_ca_cert_pem(&own, KeyPair::from_pem(&read(&self.key)?)?)?;
        let names: Vec<String> = hosts
            .iter()
            .filter(|host| *host != "*")
            .map(|host| host.trim_matches(['[', ']']).to_owned())
            .collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let now = SystemTime::now();
        // A client whose clock is a little slow must accept it.
        params.not_before = (now - DAY).into();
        params.not_after = (now + LIFETIME).into();
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        let chain = format!("{}{own}", certificate.pem());
        Ok(Certificate::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes())?)
    }
}

/// The account and machine of the authority, for lists of authorities.
fn whose() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = user.ok().filter(|user| !user.is_empty());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match user {
        Some(user) => format!("{user}@{host}"),
        None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_signs_for_every_kind_of_host() {
        let state = tempfile::tempdir().expect("a temporary directory");
        let authority = LocalAuthority::open(state.path()).expect("a new authority");
        let made = fs::read(authority.certificate_file()).expect("it is there");
        let hosts = ["*", "localhost", "shop.test", "*.shop.test", "127.0.0.1", "[::1]"].map(str::to_owned);
        let certificate = authority.issue(&hosts).expect("a certificate");
        for host in &hosts[1..] {
            assert!(certificate.covers(host), "{host}");
        }
        assert!(!certificate.covers("other.test"));
        let left = certificate
            .not_after()
            .duration_since(SystemTime::now())
            .expect("not over");
        assert!(left > LIFETIME - DAY && left <= LIFETIME, "{left:?}");
        let again = LocalAuthority::open(state.path()).expect("it is there");
        assert_eq!(fs::read(again.certificate_file()).expect("it is there"), made);
    }

    #[test]
    fn an_authority_whose_files_are_broken_is_made_anew() {
        let state = tempfile::tempdir().expect("a temporary directory");
        let authority = LocalAuthority::open(state.path()).expect("a new authority");
        fs::write(authority.certificate_file(), "broken").expect("the directory is ours");
        let again = LocalAuthority::open(state.path()).expect("a new authority");
        again.issue(&["localhost".to_owned()]).expect("it signs");
    }
}
