//! The certificates by name, and the answers to challenges of a certificate authority.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::Certificate;
use super::acceptor::ACME_TLS;
use super::certificate::certified_key;
use crate::pattern::host_map::HostMap;

/// A certificate with its site and hosts.
#[derive(Debug, Clone)]
pub struct InstalledCertificate {
    /// The site it is for.
    pub site: String,
    /// The hosts of that site that it is valid for: `example.com`, `*.example.com`, `*`.
    pub hosts: Vec<String>,
    pub certificate: Arc<Certificate>,
}

/// All certificates of a server, shared by its threads; replaced at run time.
#[derive(Debug, Default)]
pub struct Certificates {
    table: ArcSwap<CertificateTable>,
    challenges: Option<Challenges>,
}

#[derive(Debug, Default)]
struct CertificateTable {
    by_host: HostMap<Arc<CertifiedKey>>,
    installed: Vec<InstalledCertificate>,
}

impl Certificates {
    /// An empty set. `challenges` has the answers for a certificate authority, if it is ever used.
    #[must_use]
    pub fn new(challenges: Option<Challenges>) -> Arc<Self> {
        Arc::new(Self {
            table: ArcSwap::default(),
            challenges,
        })
    }

    /// Replaces all certificates. Open connections keep theirs.
    pub fn install(&self, installed: Vec<InstalledCertificate>) {
        let mut by_host = HostMap::default();
        for one in &installed {
            for host in &one.hosts {
                by_host.insert(host, Arc::clone(one.certificate.key()));
            }
        }
        self.table.store(Arc::new(CertificateTable { by_host, installed }));
    }

    /// True if there is a certificate for this host (without port).
    #[must_use]
    pub fn has(&self, host: &[u8]) -> bool {
        self.table.load().by_host.find(Some(host)).is_some()
    }

    /// The end of validity of the site's first expiring certificate; `None` without one.
    #[must_use]
    pub fn not_after(&self, site: &str) -> Option<SystemTime> {
        let table = self.table.load();
        let of_site = table.installed.iter().filter(|one| one.site == site);
        of_site.map(|one| one.certificate.not_after()).min()
    }

    /// True if challenges by TLS are supported (RFC 8737).
    pub(crate) fn answers_challenges(&self) -> bool {
        self.challenges.is_some()
    }

    /// The answer to a challenge by HTTP.
    pub(crate) fn http_answer(&self, token: &[u8]) -> Option<Vec<u8>> {
        self.challenges.as_ref()?.http_answer(token)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // RFC 8737 §3: an authority's challenge offers this protocol alone.
        if hello.alpn().is_some_and(|mut offered| offered.next() == Some(ACME_TLS)) {
            let answer = self.challenges.as_ref()?.tls_answer(hello.server_name()?)?;
            return Some(Arc::new(answer));
        }
        let table = self.table.load();
        match hello.server_name() {
            Some(name) => table.by_host.find(Some(name.as_bytes())).cloned(),
            // Clients that connect by address send no name, nor do very old ones.
            None => table.installed.first().map(|one| Arc::clone(one.certificate.key())),
        }
    }
}

/// Answers to challenges of a certificate authority (RFC 8555 §8): files in one directory, so that any of several
/// servers for one name can answer.
#[derive(Debug, Clone)]
pub struct Challenges {
    directory: PathBuf,
}

/// Longest accepted token; authorities use 43 characters.
const LONGEST_TOKEN: usize = 128;

impl Challenges {
    /// The directory need not exist yet.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Stores the answer for `/.well-known/acme-challenge/TOKEN` (RFC 8555 §8.3).
    ///
    /// # Errors
    /// The token is malformed, or the file cannot be written.
    pub fn put_http(&self, token: &str, authorization: &str) -> io::Result<()> {
        let path = self.http_path(token.as_bytes());
        let path = path.ok_or_else(|| io::Error::other("malformed challenge token"))?;
        self.write(&path, authorization.as_bytes())
    }

    /// Stores the certificate that proves `name`, chain and key in PEM form (RFC 8737 §3).
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn put_tls(&self, name: &str, chain: &str, key: &str) -> io::Result<()> {
        let path = self.tls_path(name);
        let path = path.ok_or_else(|| io::Error::other("not a host name"))?;
        self.write(&path, format!("{chain}{key}").as_bytes())
    }

    /// Removes the answers of both kinds.
    pub fn remove(&self, token: &str, name: &str) {
        for path in [self.http_path(token.as_bytes()), self.tls_path(name)]
            .into_iter()
            .flatten()
        {
            // A missing file is fine.
            let _ = fs::remove_file(path);
        }
    }

    /// Writes atomically: another server may read the file at any moment.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let new = path.with_extension(format!("{}.new", std::process::id()));
        fs::File::create(&new).and_then(|mut file| file.write_all(content))?;
        fs::rename(&new, path)
    }

    fn http_path(&self, token: &[u8]) -> Option<PathBuf> {
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let token = std::str::from_utf8(token)
            .ok()
            .filter(|token| (1..=LONGEST_TOKEN).contains(&token.len()) && token.as_bytes().iter().all(fits))?;
        Some(self.directory.join(format!("http-{token}")))
    }

    fn tls_path(&self, name: &str) -> Option<PathBuf> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name = (1..=253).contains(&name.len()) && name.bytes().all(fits);
        is_name.then(|| self.directory.join(format!("tls-{}", name.to_ascii_lowercase())))
    }

    fn http_answer(&self, token: &[u8]) -> Option<Vec<u8>> {
        fs::read(self.http_path(token)?).ok()
    }

    fn tls_answer(&self, name: &str) -> Option<CertifiedKey> {
        let pem = fs::read(self.tls_path(name)?).ok()?;
        certified_key(&pem, &pem).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::certificate::tests::{certificate, pem};

    fn installed(site: &str, hosts: &[&str]) -> InstalledCertificate {
        InstalledCertificate {
            site: site.to_owned(),
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            certificate: Arc::new(certificate(&["a.example"])),
        }
    }

    #[test]
    fn what_is_installed_takes_the_place_of_what_was() {
        let certificates = Certificates::new(None);
        assert!(!certificates.has(b"a.example") && certificates.not_after("a").is_none());
        certificates.install(vec![installed("a", &["a.example"]), installed("b", &["*.b.example"])]);
        assert!(certificates.has(b"A.example") && certificates.has(b"x.b.example"));
        assert!(!certificates.has(b"b.example") && certificates.not_after("b").is_some());
        certificates.install(vec![installed("b", &["*"])]);
        assert!(certificates.has(b"a.example") && certificates.not_after("a").is_none());
    }

    #[test]
    fn answers_are_there_until_they_are_taken_away() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let challenges = Challenges::new(directory.path().join("challenges"));
        let certificates = Certificates::new(Some(challenges.clone()));
        assert!(certificates.http_answer(b"t0-k_n").is_none());
        challenges.put_http("t0-k_n", "t0-k_n.thumb").expect("a new file");
        assert_eq!(
            certificates.http_answer(b"t0-k_n").as_deref(),
            Some(&b"t0-k_n.thumb"[..])
        );
        let (chain, key) = pem(&["a.example"]);
        challenges.put_tls("A.example", &chain, &key).expect("a new file");
        let answer = challenges.tls_answer("a.example").expect("it is there");
        assert!(answer.keys_match().is_ok());
        challenges.remove("t0-k_n", "a.example");
        assert!(certificates.http_answer(b"t0-k_n").is_none() && challenges.tls_answer("a.example").is_none());
        let left = fs::read_dir(directory.path().join("challenges"))
            .expect("it is there")
            .count();
        assert_eq!(left, 0);
    }

    #[test]
    fn no_token_and_no_name_leads_out_of_the_directory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join("secret"), "x").expect("the directory is ours");
        let challenges = Challenges::new(directory.path().join("inner"));
        fs::create_dir_all(directory.path().join("inner/http-")).expect("the directory is ours");
        for token in [&b"/../secret"[..], b"../../secret", b"", b"a/b", b"\xff", &[b'a'; 129]] {
            assert!(challenges.http_answer(token).is_none(), "{token:?}");
        }
        challenges.put_http("a/b", "x").expect_err("no token");
        challenges.put_tls("a/b", "x", "y").expect_err("no name");
    }
}
