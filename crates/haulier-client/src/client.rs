//! Connections, exchanges and redirects put together: what the commands talk to.

use std::io;

use haulier_proto::h2::client::StreamError;

use crate::connect::{ConnectSettings, Connector, Versions};
use crate::credentials::{Netrc, basic};
use crate::error::ClientError;
use crate::exchange::{Connection, Exchange, Patience, Request};
use crate::pool::Pool;
use crate::redirect::{self, MOST_REDIRECTS};
use crate::url::{Origin, Scheme, Url};

/// What a client knows before its first request.
#[derive(Debug, Clone, Default)]
pub struct ClientSettings {
    pub connect: ConnectSettings,
    pub patience: Patience,
    /// The value of Authorization, sent to the first origin only.
    pub authorization: Option<String>,
    /// Looked up for every origin on the way.
    pub netrc: Netrc,
}

/// One thread's client.
#[derive(Debug)]
pub struct Client {
    connector: Connector,
    pool: Pool,
    settings: ClientSettings,
}

/// Where a response came from.
#[derive(Debug, Clone)]
pub struct Located {
    pub url: Url,
    /// No redirect left the origin that was asked first: what is asked here may have its credentials.
    pub is_trusted: bool,
}

impl Client {
    /// # Errors
    /// If the system's certificate store cannot be used.
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
    pub async fn send(&self, request: &Request) -> Result<Exchange, ClientError> {
        let origin = request.url.origin();
        if let Some(connection) = self.pool.take(origin) {
            match connection.exchange(request, self.settings.patience).await {
                // The server closed it while we wrote: a new one is no second try (RFC 9112 §9.3.1).
                Err(ClientError::Broken(_)) if request.method.is_safe() => {}
                // It has not even looked at the request (RFC 9113 §8.7).
                Err(ClientError::Stream(StreamError::Unprocessed)) => {}
                other => return other,
            }
        }
        let connection = self.connection(origin).await?;
        connection.exchange(request, self.settings.patience).await
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

    /// One exchange with our credentials, following redirects.
    ///
    /// # Errors
    /// Any [`ClientError`] up to the last response head.
    pub async fn fetch(&self, request: Request) -> Result<(Exchange, Located), ClientError> {
        self.fetch_as(request, true).await
    }

    /// The same; credentials go along only where the address is one that they were given for, `is_trusted`.
    ///
    /// # Errors
    /// As for [`fetch`](Self::fetch).
    pub async fn fetch_as(
        &self,
        mut request: Request,
        mut is_trusted: bool,
    ) -> Result<(Exchange, Located), ClientError> {
        if !is_trusted {
            request.fields.retain(|(name, _)| !is_of_origin(name));
        }
        let mut plain = request.fields.len();
        let given = |is_trusted: bool| self.settings.authorization.as_deref().filter(|_| is_trusted);
        self.add_credentials(&mut request, given(is_trusted));
        for _ in 0..=MOST_REDIRECTS {
            let exchange = self.send(&request).await?;
            let Some(next) = redirect::of(exchange.head(), &request.url, request.method)? else {
                let url = request.url;
                return Ok((exchange, Located { url, is_trusted }));
            };
            self.drain(exchange).await;
            request.fields.truncate(plain);
            if !next.keeps_credentials {
                is_trusted = false;
                request.fields.retain(|(name, _)| !is_of_origin(name));
                plain = request.fields.len();
            }
            request = Request {
                method: next.method,
                // RFC 9110 §15.4: what becomes a GET leaves its body behind.
                body: request.body.filter(|_| next.method == request.method),
                url: next.url,
                fields: request.fields,
            };
            self.add_credentials(&mut request, given(is_trusted));
        }
        Err(ClientError::TooManyRedirects(MOST_REDIRECTS))
    }

    fn add_credentials(&self, request: &mut Request, given: Option<&str>) {
        let is_given = |name: &str| request.fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let host = &request.url.origin().host;
        let value = match (request.url.user(), given) {
            _ if is_given("authorization") => None,
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
        let own = [("Authorization", value), ("Proxy-Authorization", to_proxy)];
        for (name, value) in own {
            request.fields.extend(value.map(|value| (name.to_owned(), value)));
        }
    }

    /// Takes what little is left of a body nobody wants, so that its connection serves again.
    pub async fn drain(&self, mut exchange: Exchange) {
        /// Beyond this a new connection is cheaper.
        const LITTLE: usize = 64 * 1024;
        let mut sink = Vec::new();
        while sink.len() < LITTLE {
            match exchange.read(&mut sink, LITTLE).await {
                Ok(0) => return self.give_back(exchange),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Keeps the connection of an exchange for the next one, if it is fit.
    pub fn give_back(&self, exchange: Exchange) {
        if let Some(connection) = exchange.into_connection() {
            self.pool.give(connection);
        }
    }
}

/// Whether a field is for the origin that it was given for, and no other.
fn is_of_origin(name: &str) -> bool {
    ["authorization", "cookie", "host", "proxy-authorization"]
        .iter()
        .any(|bound| name.eq_ignore_ascii_case(bound))
}
