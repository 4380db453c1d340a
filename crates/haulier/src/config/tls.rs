//! Resolves `[tls]`, `[site.NAME.tls]` and `https`: the certificates of each site and their sources.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use haulier_server::WithoutTls;
use haulier_server::tls::{Certificate, CertificateError};
use haulier_settings::declare::Header;
use haulier_settings::{Diagnostic, Placed, Report};

use super::file::File;
use super::server;
use super::settings::{Mode, Site};
use super::tables::SiteTable;
use super::value::value_or;
use crate::certificates::{
    Authority, CertificateMode, CertificatePlan, CertificateSource, DIRECTORY, Tls, state_directory,
};
use crate::expiry::{SOON, days};
use crate::privileges;

/// Suffixes of names without an owner on the internet (RFC 2606, RFC 6761, RFC 8375, and usage).
const PRIVATE_SUFFIXES: [&str; 9] = [
    "localhost",
    "test",
    "invalid",
    "local",
    "internal",
    "lan",
    "home",
    "home.arpa",
    "onion",
];

/// The TLS of all sites; `None` if no file configures it. Sets the answer of each site to clients without TLS.
pub(super) fn resolve(file: &File, mode: Mode, sites: &mut [Site], report: &mut Report) -> Option<Tls> {
    let tables = || file.sites.iter().map(|table| &table.tls);
    let is_written = file.server.https.is_some()
        || file.tls.heading.is_written()
        || tables().any(|table| table.heading.is_written());
    // `serve` has one port of its own; `--https` says what it speaks.
    if mode == Mode::Serve || !is_written {
        return None;
    }
    let mut certificates = Vec::new();
    for (site, table) in sites.iter_mut().zip(&file.sites) {
        let plans = plans(file, table, site, report);
        if !plans.is_empty() {
            site.settings.filters.without_tls = Some(without_tls(file, table, site, report));
            certificates.extend(plans);
        }
    }
    let table = &file.tls;
    let listen = server::resolve_listen_tls(file, report);
    if certificates.is_empty() && report.errors() == 0 {
        check_nothing_is_secured(file, report);
    }
    Some(Tls {
        listen,
        least: table.min.get(),
        state: resolve_state(table.state.as_ref(), report),
        authority: Authority {
            directory: resolve_directory(table.directory.as_ref(), report),
            email: table.email.as_ref().map(|email| email.value.clone()),
            challenge: table.challenge.get(),
        },
        certificates,
        redirects_plain: false,
    })
    .filter(|tls| !tls.certificates.is_empty() || report.errors() > 0)
}

/// Warns of addresses for TLS without a site that has it: haulier does not listen there.
fn check_nothing_is_secured(file: &File, report: &mut Report) {
    check_files_are_used(file.tls.mode.as_ref(), file.tls.cert.as_ref(), report);
    if let Some(https) = file.server.https.as_ref().and_then(|https| https.first()) {
        let title = "no site has TLS: haulier does not listen on `https`";
        report.push(
            Diagnostic::warning("tls::mode", title)
                .at(https.place.as_ref(), "nothing answers here")
                .help("remove `mode = \"off\"` from `[tls]`, or from `[site.NAME.tls]` of a site; or remove `https`"),
        );
    }
}

/// Warns of a certificate in a table that turns TLS off.
fn check_files_are_used(mode: Option<&Placed<CertificateMode>>, cert: Option<&Placed<String>>, report: &mut Report) {
    let is_off = mode.filter(|mode| mode.value == CertificateMode::Off);
    if let (Some(mode), Some(cert)) = (is_off, cert) {
        report.push(
            Diagnostic::warning("tls::mode", "`cert` beside `mode = \"off\"` is not used")
                .at(cert.place.as_ref(), "no site gets this certificate")
                .beside(mode.place.as_ref(), "turns TLS off")
                .help("remove `mode`: sites with a certificate have TLS; or remove `cert` and `key`"),
        );
    }
}

/// The certificates of one site.
fn plans(file: &File, table: &SiteTable, site: &Site, report: &mut Report) -> Vec<CertificatePlan> {
    let of_site = table.tls.mode.as_ref().map(|mode| mode.value);
    let from = of_site.unwrap_or_else(|| file.tls.mode.get());
    if from == CertificateMode::Off {
        check_files_are_used(table.tls.mode.as_ref(), table.tls.cert.as_ref(), report);
        return Vec::new();
    }
    let plan = |hosts: Vec<String>, source| CertificatePlan {
        site: site.settings.name.clone(),
        hosts,
        source,
    };
    let of_table = (&table.tls.heading, &table.tls.cert, &table.tls.key);
    // A site with a `mode` of its own does not use the general files.
    let general = of_site
        .is_none()
        .then_some((&file.tls.heading, &file.tls.cert, &file.tls.key));
    for (heading, cert, key) in std::iter::once(of_table).chain(general) {
        match files(heading, cert.as_ref(), key.as_ref(), site, report) {
            Files::None => {}
            Files::Wrong => return Vec::new(),
            Files::Are { chain, key } => {
                return vec![plan(
                    site.settings.hosts.clone(),
                    CertificateSource::Files { chain, key },
                )];
            }
        }
    }
    let named: Vec<&String> = site.settings.hosts.iter().filter(|host| *host != "*").collect();
    if named.is_empty() {
        report.push(nameless(table, site));
        return Vec::new();
    }
    let is_local = |host: &str| match from {
        CertificateMode::Local => true,
        CertificateMode::Authority => false,
        CertificateMode::Auto | CertificateMode::Off => !is_public(host),
    };
    let (local, public): (Vec<&String>, Vec<&String>) = named.into_iter().partition(|host| is_local(host));
    for host in public.iter().filter(|host| host.starts_with("*.")) {
        report.push(wildcard(table, host));
    }
    let mut plans: Vec<CertificatePlan> = public
        .into_iter()
        .filter(|host| !host.starts_with("*."))
        .map(|host| plan(vec![host.clone()], CertificateSource::Authority))
        .collect();
    if !local.is_empty() {
        plans.push(plan(local.into_iter().cloned().collect(), CertificateSource::Local));
    }
    plans
}

/// True if an authority of the internet could certify the name.
fn is_public(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_private = |suffix: &str| name == suffix || name.strip_suffix(suffix).is_some_and(|name| name.ends_with('.'));
    !is_address && name.contains('.') && !PRIVATE_SUFFIXES.into_iter().any(is_private)
}

fn place_of_hosts(table: &SiteTable) -> Option<&haulier_settings::SourcePlace> {
    let first = table.hosts.as_ref().and_then(|hosts| hosts.first());
    first.map_or(table.heading.name.place.as_ref(), |host| host.place.as_ref())
}

fn nameless(table: &SiteTable, site: &Site) -> Diagnostic {
    let title = format!(
        "site `{}` answers to every host: nobody signs a certificate for that",
        site.settings.name
    );
    Diagnostic::error("tls::name", title)
        .at(place_of_hosts(table), "needs names, or a certificate of its own")
        .help("write `hosts = [\"example.com\"]`, or `cert` and `key` in `[site.NAME.tls]`, or `mode = \"off\"` there")
}

fn wildcard(table: &SiteTable, host: &str) -> Diagnostic {
    let hosts = table.hosts.as_deref().unwrap_or_default();
    let written = hosts.iter().find(|written| written.value.eq_ignore_ascii_case(host));
    Diagnostic::error("tls::name", format!("no certificate for `{host}` comes by itself"))
        .at(
            written.and_then(|written| written.place.as_ref()),
            "authorities give wildcards by DNS only, which haulier does not do",
        )
        .help("name the hosts, or bring a certificate: `cert` and `key` in `[site.NAME.tls]`")
}

/// The files of a table, if it names any.
enum Files {
    None,
    /// Reported.
    Wrong,
    Are {
        chain: PathBuf,
        key: PathBuf,
    },
}

fn files(
    heading: &Header,
    cert: Option<&Placed<String>>,
    key: Option<&Placed<String>>,
    site: &Site,
    report: &mut Report,
) -> Files {
    let (cert, key) = match (cert, key) {
        (None, None) => return Files::None,
        (None, Some(key)) => {
            report.push(
                Diagnostic::error("tls::cert", "`key` without `cert`")
                    .at(key.place.as_ref(), "the key of which certificate?")
                    .help("add `cert`: the file of the certificate with its chain"),
            );
            return Files::Wrong;
        }
        // Both may stand in one file.
        (Some(cert), key) => (cert, key.unwrap_or(cert)),
    };
    let path = |written: &Placed<String>| {
        let joined = heading.directory.join(&written.value);
        std::path::absolute(&joined).unwrap_or(joined)
    };
    let (chain, key_file) = (path(cert), path(key));
    match Certificate::read(&chain, &key_file) {
        Ok(certificate) => {
            check(&certificate, cert, site, report);
            Files::Are { chain, key: key_file }
        }
        Err(error) if is_closed_by_now(&error) => {
            report.push(closed(&error, cert));
            Files::Are { chain, key: key_file }
        }
        Err(error) => {
            report.push(unusable(&error, cert, key));
            Files::Wrong
        }
    }
}

/// True if the file is closed to us only because root has been left.
fn is_closed_by_now(error: &CertificateError) -> bool {
    let is_denied = |error: &CertificateError| match error {
        CertificateError::Unreadable { source, .. } => source.kind() == ErrorKind::PermissionDenied,
        _ => false,
    };
    privileges::has_left_root() && is_denied(error)
}

fn closed(error: &CertificateError, cert: &Placed<String>) -> Diagnostic {
    let why = crate::error_chain::with_sources(error);
    Diagnostic::warning("tls::cert", format!("certificate {}: {why}", cert.value))
        .at(cert.place.as_ref(), "what was read before root was left is served on")
        .help("a renewed one is seen only if the account that serves may read both files")
}

fn unusable(error: &CertificateError, cert: &Placed<String>, key: &Placed<String>) -> Diagnostic {
    let title = format!(
        "certificate {}: {}",
        cert.value,
        crate::error_chain::with_sources(error)
    );
    match error {
        CertificateError::KeyMismatch => Diagnostic::error("tls::key", title)
            .at(key.place.as_ref(), "the key of another certificate")
            .beside(cert.place.as_ref(), "this certificate")
            .help("a renewed certificate may have a new key: take both from the same place"),
        CertificateError::NoKey | CertificateError::UnusableKey(_) => {
            Diagnostic::error("tls::key", title).at(key.place.as_ref(), "named here")
        }
        CertificateError::Unreadable { path, .. } if !cert.value.is_empty() && path.ends_with(&key.value) => {
            Diagnostic::error("tls::key", title).at(key.place.as_ref(), "named here")
        }
        _ => Diagnostic::error("tls::cert", title)
            .at(cert.place.as_ref(), "named here")
            .help("expected a file in PEM form: the certificate first, then those that signed it"),
    }
}

/// Warns of a certificate that clients refuse. The server starts nevertheless: there may be no other one.
fn check(certificate: &Certificate, cert: &Placed<String>, site: &Site, report: &mut Report) {
    let mut warn = |title: String, label: &str| {
        report.push(Diagnostic::warning("tls::cert", title).at(cert.place.as_ref(), label));
    };
    let now = SystemTime::now();
    match certificate.not_after().duration_since(now) {
        Err(over) => warn(
            format!("certificate {} ended {} ago", cert.value, days(over.duration())),
            "clients refuse it",
        ),
        Ok(left) if left < SOON => warn(
            format!("certificate {} ends in {}", cert.value, days(left)),
            "it is time to renew it",
        ),
        Ok(_) => {}
    }
    if let Ok(wait) = certificate.not_before().duration_since(now) {
        let title = format!("certificate {} begins in {}", cert.value, days(wait));
        warn(title, "clients refuse it until then");
    }
    for host in site
        .settings
        .hosts
        .iter()
        .filter(|host| *host != "*" && !certificate.covers(host))
    {
        let title = format!("certificate {} is not for `{host}`", cert.value);
        warn(title, &format!("site `{}` answers to that name", site.settings.name));
    }
}

/// The answer of a site with TLS to clients without.
fn without_tls(file: &File, table: &SiteTable, site: &mut Site, report: &mut Report) -> WithoutTls {
    let redirect = table.tls.redirect.as_ref().or(file.tls.redirect.as_ref());
    let Some(hsts) = table.tls.hsts.as_ref().or(file.tls.hsts.as_ref()) else {
        return if value_or(redirect, true) {
            WithoutTls::Redirect
        } else {
            WithoutTls::Everything
        };
    };
    if let Some(redirect) = redirect.filter(|redirect| !redirect.value) {
        report.push(
            Diagnostic::error("tls::hsts", "`hsts` without `redirect`")
                .at(redirect.place.as_ref(), "plain HTTP is to be served")
                .beside(hsts.place.as_ref(), "and browsers are told never to use it")
                .help("one of the two lines is too much"),
        );
    }
    let header = "Strict-Transport-Security";
    let headers = &mut site.settings.filters.headers;
    let is_set = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(header));
    if !is_set {
        let value = format!("max-age={}", hsts.value.as_secs());
        headers.push((header.to_owned(), value));
    }
    WithoutTls::RedirectOnly
}

fn resolve_directory(written: Option<&Placed<String>>, report: &mut Report) -> String {
    let Some(written) = written else {
        return DIRECTORY.to_owned();
    };
    let parsed = haulier_client::url::Url::parse(&written.value);
    if !parsed.is_ok_and(|url| url.origin().scheme == haulier_client::url::Scheme::Https) {
        report.push(
            Diagnostic::error(
                "config::value",
                format!("not the address of an authority: \"{}\"", written.value),
            )
            .at(
                written.place.as_ref(),
                "expected the directory of an ACME server, such as \"https://acme.example/directory\"",
            ),
        );
    }
    written.value.clone()
}

fn resolve_state(written: Option<&Placed<String>>, report: &mut Report) -> PathBuf {
    let Some(written) = written else {
        return state_directory();
    };
    let path = PathBuf::from(&written.value);
    if !path.is_absolute() {
        report.push(Diagnostic::error("config::value", "`state` must be absolute").at(
            written.place.as_ref(),
            "write the whole path, such as \"/var/lib/haulier\"",
        ));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_internet_are_public() {
        for host in [
            "example.com",
            "a.b.example.org",
            "*.example.com",
            "test.example.com",
            "localhost.example.com",
        ] {
            assert!(is_public(host), "{host}");
        }
        for host in [
            "localhost",
            "shop",
            "shop.test",
            "a.localhost",
            "127.0.0.1",
            "[::1]",
            "nas.local",
            "x.home.arpa",
            "*.test",
        ] {
            assert!(!is_public(host), "{host}");
        }
    }
}
