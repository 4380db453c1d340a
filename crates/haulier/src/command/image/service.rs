//! A client of an image service: one request after the other.

use haulier_client::client::{Client as HttpClient, ClientSettings};
use haulier_client::error::ClientError;
use haulier_client::request::{MethodName, Request};
use haulier_client::url::{Url, UrlError};
use serde_json::Value;
use tokio::runtime::Runtime;

/// The longest answer: an image service sends a few lines.
const MOST_ANSWER: usize = 1 << 20;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceError {
    #[error("cannot ask {address}")]
    Exchange { address: String, source: ClientError },
    #[error("not an address: {0}")]
    Address(#[source] UrlError),
    #[error("the answer is too long for an image service")]
    TooLong,
}

/// The answer of the service.
#[derive(Debug)]
pub(super) struct ServiceAnswer {
    pub(super) status: u16,
    body: Vec<u8>,
}

impl ServiceAnswer {
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// A client of one service.
#[derive(Debug)]
pub(super) struct Client {
    runtime: Runtime,
    client: HttpClient,
    service: Url,
}

impl Client {
    pub(super) fn new(service: &Url) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start: {error}"))?;
        let client =
            HttpClient::new(ClientSettings::default()).map_err(|error| format!("no certificate store: {error}"))?;
        Ok(Self {
            runtime,
            client,
            service: service.clone(),
        })
    }

    /// A target of the service as an address.
    pub(super) fn address(&self, target: &str) -> String {
        self.service
            .join(target)
            .map_or_else(|_| target.to_owned(), |url| url.to_string())
    }

    pub(super) fn get(&self, target: &str) -> Result<ServiceAnswer, ServiceError> {
        self.ask(Request::get(self.url(target)?))
    }

    pub(super) fn post(&self, target: &str, content_type: &str, body: Vec<u8>) -> Result<ServiceAnswer, ServiceError> {
        let request = Request::post(self.url(target)?, body);
        self.ask(request.with("Content-Type", content_type))
    }

    pub(super) fn delete(&self, target: &str, token: &str) -> Result<ServiceAnswer, ServiceError> {
        let request = Request::new(MethodName::DELETE, self.url(target)?);
        self.ask(request.with("Authorization", format!("Bearer {token}")))
    }

    fn url(&self, target: &str) -> Result<Url, ServiceError> {
        self.service.join(target).map_err(ServiceError::Address)
    }

    fn ask(&self, request: Request) -> Result<ServiceAnswer, ServiceError> {
        let address = request.url.to_string();
        let failed = |source| ServiceError::Exchange { address, source };
        self.runtime.block_on(async {
            let mut exchange = match self.client.send(request).await {
                Ok(exchange) => exchange,
                Err(error) => return Err(failed(error)),
            };
            let status = exchange.head().status();
            let mut body = Vec::new();
            loop {
                match exchange.read(&mut body, 64 * 1024).await {
                    Ok(0) => break,
                    Ok(_) if body.len() > MOST_ANSWER => return Err(ServiceError::TooLong),
                    Ok(_) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            self.client.give_back(exchange);
            Ok(ServiceAnswer { status, body })
        })
    }
}
