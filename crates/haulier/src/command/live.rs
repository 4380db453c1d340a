//! `check --live`: starts or calls every pool as the server would, lists every image store, and asks the certificate
//! authority.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use haulier_php::Address;
use haulier_settings::{Diagnostic, Report};
use haulier_store::StoreRuntime;

use crate::assemble;
use crate::certificates::{CertificatePlan, CertificateSource, Tls, reach};
use crate::config::images::StorePlace;
use crate::config::settings::{Pool, Settings, Site};
use crate::error_chain::with_sources;
use crate::images;

/// Time limit for the answer of a server.
const TIMEOUT: Duration = Duration::from_secs(5);
/// FCGI_GET_VALUES for FCGI_MPXS_CONNS (FastCGI 1.0 §4.1): every server must answer it, and no script runs.
const QUESTION: [u8; 32] = *b"\x01\x09\x00\x00\x00\x11\x07\x00\x0f\x00FCGI_MPXS_CONNS\0\0\0\0\0\0\0";
const GET_VALUES_RESULT: u8 = 10;
const UNKNOWN_TYPE: u8 = 11;

/// Calls all pools; those that do not answer go to `report`.
pub(super) fn check(settings: &Settings, report: &mut Report) {
    for pool in &settings.pools {
        let Some(external) = pool.settings.kind.external() else {
            start(pool, report);
            continue;
        };
        for server in &external.servers {
            if let Err(error) = call(server, external.connect_timeout) {
                let name = &pool.settings.name;
                let title = format!("pool `{name}`: {server} does not answer as FastCGI: {error}");
                report.push(Diagnostic::error("live::server", title).help(advice(&error)));
            }
        }
    }
    for site in &settings.sites {
        if let Some(store) = site.images.as_ref().and_then(|images| images.store.as_ref()) {
            ask_store(site, store, report);
        }
    }
    if let Some(tls) = &settings.tls {
        ask_authority(tls, report);
    }
}

/// Asks the authority for its directory, and checks that the names lead here, as the authority will. It orders nothing.
fn ask_authority(tls: &Tls, report: &mut Report) {
    let of_authority = |plan: &&CertificatePlan| plan.source == CertificateSource::Authority;
    let names: Vec<&str> = tls
        .certificates
        .iter()
        .filter(of_authority)
        .map(CertificatePlan::name)
        .collect();
    if names.is_empty() {
        return;
    }
    let directory = &tls.authority.directory;
    if let Err(error) = reach::ask(directory) {
        let title = format!(
            "the certificate authority {directory} does not answer: {}",
            with_sources(&error)
        );
        let help = "see `directory` in `[tls]`; until it answers, no certificate is ordered or renewed";
        report.push(Diagnostic::error("live::authority", title).help(help));
    }
    for name in names {
        if let Some(diagnostic) = where_leads(name) {
            report.push(diagnostic);
        }
    }
}

/// The diagnostic for a name whose addresses do not lead here.
fn where_leads(name: &str) -> Option<Diagnostic> {
    let found: BTreeSet<IpAddr> = match (name, 0).to_socket_addrs() {
        Ok(addresses) => addresses.map(|address| address.ip()).collect(),
        Err(error) => {
            let title = format!("{name} has no address: {error}");
            let help = "without an A or AAAA record that leads here no certificate can be ordered for it";
            return Some(Diagnostic::error("live::name", title).help(help));
        }
    };
    if found.iter().any(|&address| is_ours(address)) {
        return None;
    }
    let found: Vec<String> = found.iter().map(IpAddr::to_string).collect();
    let title = format!("{name} leads to {}, no address of this machine", found.join(" and "));
    let help =
        "correct with a load balancer or address translation in front; otherwise the authority will ask another server";
    Some(Diagnostic::warning("live::name", title).help(help))
}

/// Tells whether an address is one of this machine: only those can be bound.
fn is_ours(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Lists a few names of the store, which shows that it answers and accepts the credentials.
fn ask_store(site: &Site, place: &StorePlace, report: &mut Report) {
    let asked = images::open_place(place, None)
        .map_err(|error| with_sources(&error))
        .and_then(|store| {
            let runtime = StoreRuntime::start().map_err(|error| error.to_string())?;
            let listed = runtime.block_on(store.list(None, 1));
            listed.map_err(|error| with_sources(&error))
        });
    if let Err(error) = asked {
        let title = format!(
            "site `{}`: the store {} does not answer: {error}",
            site.settings.name, place.location
        );
        let help = "see `store` and its `[store.NAME]`: address, region, key and secret";
        report.push(Diagnostic::error("live::store", title).help(help));
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => "is php-fpm running, and is this its `listen`?",
        io::ErrorKind::PermissionDenied => "see `listen.owner`, `listen.group` and `listen.mode` of php-fpm",
        io::ErrorKind::InvalidData => "something else listens there: `servers` are FastCGI, not HTTP",
        _ => "see its log; `listen.allowed_clients` of php-fpm may leave this machine out",
    }
}

/// Starts PHP as `run` does, and ends it.
fn start(pool: &Pool, report: &mut Report) {
    if let Err(error) = assemble::try_pool(pool) {
        report.push(Diagnostic::error("live::start", error));
    }
}

/// Asks one server what it can do.
fn call(server: &Address, connect_timeout: Duration) -> io::Result<()> {
    match server {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            ask(stream)
        }
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, connect_timeout)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            ask(stream)
        }
    }
}

fn ask(mut stream: impl Read + Write) -> io::Result<()> {
    stream.write_all(&QUESTION)?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    match head {
        [1, GET_VALUES_RESULT | UNKNOWN_TYPE, ..] => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "its answer is no FastCGI record",
        )),
    }
}
