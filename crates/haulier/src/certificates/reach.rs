//! The check of a certificate authority for `check --live`. It orders nothing and creates no account.

use std::io;
use std::time::Duration;

use instant_acme::{BodyWrapper, Error, HttpClient};
use serde_json::{Map, Value};

use super::http::Client;

/// Time limit for the answer of the authority.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Resources that ordering needs (RFC 8555 §7.1.1).
const NEEDED: [&str; 3] = ["newNonce", "newAccount", "newOrder"];

/// The reason why no certificate can be ordered there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReachError {
    #[error("no client can be made")]
    Client(#[from] io::Error),
    #[error("not an address: {0}")]
    Address(String),
    #[error(transparent)]
    Failed(#[from] Error),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Silent,
    #[error("it answers with {0}")]
    Status(u16),
    #[error("its answer is no directory of an ACME server: there is no `{0}`")]
    NoDirectory(&'static str),
}

/// Asks for the directory of an authority.
///
/// # Errors
/// [`ReachError`]
pub(crate) fn ask(directory: &str) -> Result<(), ReachError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let asked = tokio::time::timeout(TIMEOUT, read(directory));
        asked.await.unwrap_or(Err(ReachError::Silent))
    })
}

async fn read(directory: &str) -> Result<(), ReachError> {
    let request = http::Request::get(directory).body(BodyWrapper::default());
    let request = request.map_err(|error| ReachError::Address(error.to_string()))?;
    let mut response = Client::new()?.request(request).await?;
    match response.parts.status.as_u16() {
        200 => {}
        status => return Err(ReachError::Status(status)),
    }
    let body = response.body.into_bytes().await.map_err(Error::Other)?;
    judge(&body)
}

fn judge(body: &[u8]) -> Result<(), ReachError> {
    let resources: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    let missing = NEEDED
        .into_iter()
        .find(|&name| !resources.get(name).is_some_and(Value::is_string));
    missing.map_or(Ok(()), |name| Err(ReachError::NoDirectory(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_names_what_ordering_needs() {
        let whole = br#"{"newNonce":"https://a/n","newAccount":"https://a/a","newOrder":"https://a/o","meta":{}}"#;
        assert!(judge(whole).is_ok());
        for (body, missing) in [
            (
                &br#"{"newNonce":"https://a/n","newAccount":"https://a/a"}"#[..],
                "newOrder",
            ),
            (
                br#"{"newNonce":7,"newAccount":"https://a/a","newOrder":"https://a/o"}"#,
                "newNonce",
            ),
            (b"<html>", "newNonce"),
            (b"[]", "newNonce"),
        ] {
            let said = judge(body).expect_err("no directory").to_string();
            assert!(said.contains(missing), "{said}");
        }
    }

    #[test]
    fn what_is_no_address_is_said() {
        let said = ask("not an address").expect_err("nothing to ask").to_string();
        assert!(said.starts_with("not an address"), "{said}");
    }
}
