//! `[tls]` and `[site.NAME.tls]`.

use haulier_server::tls::LeastVersion;
use haulier_settings::settings_table;

use crate::certificates::{CertificateMode, Challenge};

const MODES: [(&str, CertificateMode); 4] = [
    ("auto", CertificateMode::Auto),
    ("acme", CertificateMode::Authority),
    ("local", CertificateMode::Local),
    ("off", CertificateMode::Off),
];
const VERSIONS: [(&str, LeastVersion); 2] = [("1.2", LeastVersion::Tls12), ("1.3", LeastVersion::Tls13)];
const CHALLENGES: [(&str, Option<Challenge>); 3] = [
    ("auto", None),
    ("http-01", Some(Challenge::Http)),
    ("tls-alpn-01", Some(Challenge::Tls)),
];

settings_table! {
    /// `[tls]`
    pub(crate) struct TlsTable = "tls";

    /// Origin of certificates: `acme`, `local` (an authority of our own), `off`, or `auto`: `acme` for public
    /// names.
    mode: Choice(CertificateMode, MODES) = "auto";
    /// File of a certificate with its chain, for sites without one of their own.
    cert: Path else "none";
    /// File of its private key; both are read anew when they change.
    key: Path else "in the file of `cert`";
    /// Clients without TLS are sent to `https://`.
    redirect: Flag = true;
    /// Time for which browsers insist on TLS, such as `"1y"`.
    hsts: Deadline else "none";
    /// The oldest version that is spoken: `1.2` or `1.3`.
    min: Choice(LeastVersion, VERSIONS) = "1.2";
    /// Whom the certificate authority writes to.
    email: Text else "none";
    /// The certificate authority, by the address of its ACME directory.
    directory: Text = "https://acme-v02.api.letsencrypt.org/directory";
    /// Challenge of the authority: `http-01` (port 80), `tls-alpn-01` (port 443), or the one whose port is open.
    challenge: Choice(Option<Challenge>, CHALLENGES) = "auto";
    /// Directory of the keys and certificates haulier keeps; servers that share names share it.
    state: Path else "/var/lib/haulier, or ~/.local/state/haulier";
}

settings_table! {
    /// `[site.NAME.tls]`
    pub(crate) struct SiteTlsTable = "site.NAME.tls";

    /// `auto`, `acme`, `local` or `off`.
    mode: Choice(CertificateMode, MODES) else "as in `[tls]`";
    /// File of the site's certificate with its chain.
    cert: Path else "as in `[tls]`";
    /// File of its private key.
    key: Path else "in the file of `cert`";
    /// Clients without TLS are sent to `https://`.
    redirect: Flag else "as in `[tls]`";
    /// Time for which browsers insist on TLS.
    hsts: Deadline else "as in `[tls]`";
}
