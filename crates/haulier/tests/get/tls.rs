//! https: a certificate that the machine trusts, and one that it does not.

use std::fs;
use std::process::{Command, Stdio};

use crate::peer::data;
use crate::program::DownloadDir;
use crate::servers::nginx;

/// A certificate for localhost that signs itself, and its key, as PEM files in `place`.
pub(crate) fn certificate(place: &DownloadDir) -> (String, String) {
    let (certificate, key) = (place.path("cert.pem"), place.path("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args([
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status();
    assert!(made.expect("openssl is installed").success());
    (certificate.display().to_string(), key.display().to_string())
}

#[test]
fn a_trusted_certificate_is_downloaded_from_and_an_unknown_one_is_not() {
    let keys = DownloadDir::new();
    let (certificate, key) = certificate(&keys);
    let server = nginx(
        &format!("ssl_certificate {certificate}; ssl_certificate_key {key};"),
        "ssl",
    );
    let file = data(20 << 20, 1);
    fs::write(server.root().join("f.bin"), &**file).expect("written");
    let url = format!("https://localhost:{}/f.bin", server.address.port());
    let place = DownloadDir::new();
    let trusting = place.command(&[&url]).env("SSL_CERT_FILE", &certificate).output();
    let trusting = trusting.expect("the binary runs");
    assert!(
        trusting.status.success(),
        "{}",
        String::from_utf8_lossy(&trusting.stderr)
    );
    assert!(place.read("f.bin") == **file);

    let ended = place.get(&[&url, "-o", "g.bin", "--retry", "0"]);
    assert_eq!(ended.code, Some(11), "{}", ended.stderr);
    place.assert_no_file("g.bin");
    let wrong_name = place
        .command(&[&url.replace("localhost", "127.0.0.1"), "-o", "h.bin", "--retry", "0"])
        .env("SSL_CERT_FILE", &certificate)
        .output();
    assert_eq!(wrong_name.expect("the binary runs").status.code(), Some(11));
}
