//! Certificates of an authority of the tests' own, and a client that believes it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use tempfile::TempDir;

/// An authority with a directory for what it signs.
#[derive(Debug)]
pub(crate) struct Authority {
    directory: TempDir,
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "authority of the tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = Self {
            directory: super::readable_directory(),
            params,
            key,
        };
        let own = authority.params.self_signed(&authority.key).expect("a certificate");
        fs::write(authority.file(), own.pem()).expect("the directory is ours");
        authority
    }

    /// Its own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.path("authority.pem")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a certificate for these names, valid for so many days from now, and its key: `NAME.pem`, `NAME.key`.
    pub(crate) fn sign(&self, file: &str, names: &[&str], days: i64) -> (PathBuf, PathBuf) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        let now = std::time::SystemTime::now();
        let span = std::time::Duration::from_secs(days.unsigned_abs() * 86_400);
        params.not_before = (now - span - std::time::Duration::from_secs(86_400)).into();
        params.not_after = if days < 0 { now - span } else { now + span }.into();
        let key = KeyPair::generate().expect("a key");
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        let (chain, key_file) = (self.path(&format!("{file}.pem")), self.path(&format!("{file}.key")));
        fs::write(&key_file, key.serialize_pem()).expect("the directory is ours");
        fs::write(&chain, certificate.pem()).expect("the directory is ours");
        (chain, key_file)
    }

    /// The two lines of a configuration that name a certificate for these names.
    pub(crate) fn lines(&self, file: &str, names: &[&str]) -> String {
        let (chain, key) = self.sign(file, names, 30);
        format!("cert = {chain:?}\nkey = {key:?}\n")
    }

    /// A client that believes this authority and speaks these versions.
    pub(crate) fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        client(&self.file(), versions)
    }
}

/// A client that believes the authority in this file.
pub(crate) fn client(authority: &Path, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let own = CertificateDer::from_pem_file(authority).expect("a certificate");
    roots.add(own).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// The bytes of a connection, with or without TLS.
#[derive(Debug)]
pub(crate) enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// Begins TLS; hands are shaken with the first bytes.
    pub(crate) fn secure(stream: TcpStream, name: &str, config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).expect("a configuration");
        Self::Tls(Box::new(StreamOwned::new(connection, stream)))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// The TLS connection itself.
    pub(crate) fn connection(&mut self) -> &mut ClientConnection {
        match self {
            Self::Plain(_) => panic!("no TLS here"),
            Self::Tls(stream) => &mut stream.conn,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(buffer),
            Self::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// What `openssl s_client` says about a connection to this address, with these further arguments.
pub(crate) fn openssl(address: SocketAddr, arguments: &[&str]) -> String {
    super::require("openssl", "/usr/bin/openssl");
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &address.to_string()])
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl runs");
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    texts.concat()
}

/// The text curl gets, with these arguments; its failure is the test's.
#[track_caller]
pub(crate) fn curl(arguments: &[&str]) -> String {
    String::from_utf8_lossy(&super::curl(arguments)).into_owned()
}
