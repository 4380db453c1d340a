//! Connections, exchanges, credentials and redirects together.

use std::io;

use bytes::Bytes;
use haulier_proto::h2::client::StreamError;

use crate::connect::{ConnectSettings, Connector, Versions};
use crate::connection::Connection;
use crate::credentials::{Netrc, basic};
use crate::error::ClientError;
use crate::exchange::{Exchange, Timeouts};
use crate::pool::Pool;
use crate::redirect::{self, MOST_REDIRECTS};
use crate::request::{MethodName, Request};
use crate::url::{Origin, Scheme, Url};

/// Settings of a client.
#[derive(Debug, Clone, Default)]
pub struct ClientSettings {
    pub connect: ConnectSettings,
    pub timeouts: Timeouts,
    /// The value of Authorization, sent to the first origin alone.
    pub authorization: Option<String>,
    /// Looked up for every origin.
    pub netrc: Netrc,
}

/// One thread's client.
#[derive(Debug)]
pub struct Client {
    connector: Connector,
    pool: Pool,
    settings: ClientSettings,
}

/// The address that a response came from.
#[derive(Debug, Clone)]
pub struct Located {
    pub url: Url,
    /// No redirect left the first origin, so requests to this address may carry its credentials.
    pub is_trusted: bool,
}

impl Client {
    /// # Errors
    /// The system's certificate store cannot be used.
    pub fn new(settings: ClientSettings) -> io::Result<Self> {
        Ok(Self {
            connector: Connector::new(settings.connect.clone())?,
            pool: Pool::default(),
            settings,
        })
    }

    /// One exchange, on an idle connection if there is one.
    ///
    /// # Errors
    /// Any [`ClientError`] up to the response head.
    pub async fn send(&self, mut request: Request) -> Result<Exchange, ClientError> {
        request.add_own_fields();
        let origin = request.url.origin();
        if let Some(connection) = self.pool.take(origin) {
            match connection.exchange(request.clone(), self.settings.timeouts).await {
                // The server closed the idle connection: a new one is no second try (RFC 9112 §9.3.1).
                Err(ClientError::Unanswered(_)) if request.method.kind().is_safe() => {}
                // The server has not looked at the request (RFC 9113 §8.7).
                Err(ClientError::Stream(StreamError::Unprocessed)) => {}
                other => return other,
            }
        }
        let connection = self.connection(origin).await?;
        connection.exchange(request, self.settings.timeouts).await
    }

    async fn connection(&self, origin: &Origin) -> Result<Connection, ClientError> {
        let stream = self.connector.connect(origin).await?;
        let by_proxy = self.connector.settings().proxy_for(origin).is_some();
        let absolute = by_proxy && origin.scheme == Scheme::Http;
        if self.settings.connect.versions == Versions::Http2 && !absolute {
            return Ok(Connection::http2(stream, origin.clone()));
        }
        Ok(Connection::new(stream, origin.clone(), absolute))
    }

    /// One exchange with the credentials of the settings, following redirects.
    ///
    /// # Errors
    /// Any [`ClientError`] up to the last response head.
    pub async fn fetch(&self, request: Request) -> Result<(Exchange, Located), ClientError> {
        self.fetch_as(request, true).await
    }

    /// The same; credentials are sent only if the address is one that they were given for, `is_trusted`.
    ///
    /// # Errors
    /// As for [`fetch`](Self::fetch).
    pub async fn fetch_as(
        &self,
        mut request: Request,
        mut is_trusted: bool,
    ) -> Result<(Exchange, Located), ClientError> {
        for _ in 0..=MOST_REDIRECTS {
            if !is_trusted {
                request.fields.retain(|name, _| !is_of_origin(name));
            }
            let exchange = self.send(self.with_credentials(&request, is_trusted)).await?;
            let Some(next) = redirect::of(exchange.head(), &request.url, request.method.kind())? else {
                let url = request.url;
                return Ok((exchange, Located { url, is_trusted }));
            };
            self.drain(exchange).await;
            is_trusted &= next.keeps_credentials;
            request.url = next.url;
            if next.becomes_get {
                request.method = MethodName::GET;
                request.body = Bytes::new();
            }
        }
        Err(ClientError::TooManyRedirects(MOST_REDIRECTS))
    }

    /// The request with the credentials for its address: those of the URL, else those of the settings if the address
    /// `is_trusted`, else those of netrc.
    fn with_credentials(&self, request: &Request, is_trusted: bool) -> Request {
        let mut request = request.clone();
        let host = &request.url.origin().host;
        let given = self.settings.authorization.as_ref().filter(|_| is_trusted);
        let value = match (request.url.user(), given) {
            _ if request.fields.contains("authorization") => None,
            (Some((user, password)), _) => Some(basic(user, password)),
            (None, Some(given)) => Some(given.to_owned()),
            (None, None) => self
                .settings
                .netrc
                .find(host)
                .map(|(user, password)| basic(user, password)),
        };
        let proxy = self.connector.settings().proxy_for(request.url.origin());
        let to_proxy = proxy
            .filter(|_| request.url.origin().scheme == Scheme::Http)
            .and_then(Url::user)
            .map(|(user, password)| basic(user, password));
        for (name, value) in [("Authorization", value), ("Proxy-Authorization", to_proxy)] {
            if let Some(value) = value {
                request.fields.append(name, value);
            }
        }
        request
    }

    /// Makes the connection of an exchange serve again whose body is not wanted: a short rest is read, a longer one is
    /// given up.
    pub async fn drain(&self, mut exchange: Exchange) {
        /// For a longer rest, a new connection is cheaper.
        const SHORT: usize = 64 * 1024;
        let mut sink = Vec::new();
        while sink.len() < SHORT {
            match exchange.read(&mut sink, SHORT).await {
                Ok(0) => return self.give_back(exchange),
                Ok(_) => {}
                Err(_) => return,
            }
        }
        if let Some(connection) = exchange.abort().await {
            self.pool.give(connection);
        }
    }

    /// Keeps the connection of an exchange for the next one, if it is fit.
    pub fn give_back(&self, exchange: Exchange) {
        if let Some(connection) = exchange.into_connection() {
            self.pool.give(connection);
        }
    }
}

/// Says whether a field is meant for one origin alone.
fn is_of_origin(name: &[u8]) -> bool {
    ["authorization", "cookie", "host", "proxy-authorization"]
        .iter()
        .any(|bound| name.eq_ignore_ascii_case(bound.as_bytes()))
}
