//! The HTTP client of the ACME library, made of haulier-client: one connection per request.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use haulier_client::connect::{ConnectSettings, Connector};
use haulier_client::connection::Connection;
use haulier_client::error::ClientError;
use haulier_client::exchange::Timeouts;
use haulier_client::request::{MethodName, Request};
use haulier_client::url::Url;
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

/// Longest answer, bytes. A chain of certificates has a few thousand.
const LONGEST: usize = 1024 * 1024;

/// Sends what the library asks for.
pub(super) struct Client {
    connector: Arc<Connector>,
}

impl Client {
    /// # Errors
    /// The system's certificate store cannot be used.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            connector: Arc::new(Connector::new(ConnectSettings::default())?),
        })
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let connector = Arc::clone(&self.connector);
        Box::pin(async move {
            let answered = exchange(&connector, request).await;
            answered.map_err(|error| Error::Other(Box::new(error)))
        })
    }
}

async fn exchange(
    connector: &Connector,
    request: http::Request<BodyWrapper<Bytes>>,
) -> Result<BytesResponse, ClientError> {
    let (parts, body) = request.into_parts();
    let url = Url::parse(&parts.uri.to_string()).map_err(ClientError::BadRedirect)?;
    let method = MethodName::new(parts.method.as_str()).expect("a method of the library is a token");
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    };
    let mut request = Request::new(method, url).with_body(body);
    for (name, value) in &parts.headers {
        request.fields.append(name, value);
    }
    request.add_own_fields();
    let origin = request.url.origin();
    let stream = connector.connect(origin).await?;
    let connection = Connection::new(stream, origin.clone(), false);
    let mut exchange = connection.exchange(request, Timeouts::default()).await?;
    let mut content = Vec::new();
    while content.len() < LONGEST && exchange.read(&mut content, LONGEST).await? > 0 {}
    let head = exchange.head();
    let mut response = http::Response::builder().status(head.status());
    for (name, value) in head.fields().iter() {
        response = response.header(name, value);
    }
    let response = response.body(Full::new(Bytes::from(content)));
    let response = response.map_err(|error| ClientError::Broken(io::Error::other(error)))?;
    Ok(BytesResponse::from(response))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// The request of a method and a body, as an authority receives it.
    fn received(method: &str, body: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let uri = format!("http://{}/acme", listener.local_addr().expect("bound"));
        let authority = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = String::new();
            let mut byte = [0];
            while !(request.contains("\r\n\r\n") && request.ends_with(body)) {
                stream.read_exact(&mut byte).expect("a whole request");
                request.push(char::from(byte[0]));
            }
            let answer = b"HTTP/1.1 200 OK\r\nReplay-Nonce: n1\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).expect("written");
            request
        });
        let request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", "application/jose+json")
            .body(BodyWrapper::from(body.as_bytes().to_vec()))
            .expect("a request");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let client = Client::new().expect("a certificate store");
        let answered = runtime.expect("a runtime").block_on(client.request(request));
        let nonce = answered.expect("an answer").parts.headers["replay-nonce"].clone();
        assert_eq!(nonce, "n1");
        authority.join().expect("no panic")
    }

    #[test]
    fn method_fields_and_body_go_out_as_the_library_gives_them() {
        for (method, body) in [("HEAD", ""), ("GET", ""), ("POST", "{\"a\":1}"), ("PUT", "x")] {
            let request = received(method, body);
            assert!(
                request.starts_with(&format!("{method} /acme HTTP/1.1\r\n")),
                "{request}"
            );
            assert!(request.contains("content-type: application/jose+json\r\n"), "{request}");
            let length = format!("Content-Length: {}\r\n", body.len());
            assert_eq!(request.contains(&length), !body.is_empty(), "{request}");
        }
    }
}
