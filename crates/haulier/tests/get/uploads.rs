//! Requests with bodies by the client core, to nginx and to haulier itself.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::task::{Context, Poll};

use bytes::Bytes;
use haulier_client::connection::Connection;
use haulier_client::error::ClientError;
use haulier_client::exchange::{Exchange, Timeouts};
use haulier_client::request::{MethodName, Request, RequestBody};
use haulier_client::stream::Stream;
use haulier_client::url::Url;
use tokio::net::TcpStream;

use crate::peer::data;
use crate::servers::{Server, nginx};

const MIB: usize = 1024 * 1024;

/// A body in pieces; its length is announced if `is_told`.
#[derive(Debug)]
struct Pieces {
    left: Bytes,
    is_told: bool,
    /// The source is not ready at every second poll.
    is_ready: bool,
}

impl Pieces {
    fn of(file: &[u8], is_told: bool) -> Self {
        Self {
            left: Bytes::copy_from_slice(file),
            is_told,
            is_ready: false,
        }
    }
}

impl RequestBody for Pieces {
    fn length(&self) -> Option<u64> {
        self.is_told.then_some(self.left.len() as u64)
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.is_ready = !self.is_ready;
        if !self.is_ready {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = self.left.split_to(self.left.len().min(100_000));
        Poll::Ready(Ok(Some(piece).filter(|piece| !piece.is_empty())))
    }
}

async fn connect(address: SocketAddr, is_http2: bool) -> Connection {
    let stream = Stream::Tcp(TcpStream::connect(address).await.expect("it listens"));
    let origin = url(address, "/").origin().clone();
    if is_http2 {
        Connection::http2(stream, origin)
    } else {
        Connection::new(stream, origin, false)
    }
}

fn url(address: SocketAddr, path: &str) -> Url {
    Url::parse(&format!("http://{address}{path}")).expect("a URL")
}

fn method(name: &str) -> MethodName {
    MethodName::new(name).expect("a token")
}

async fn read_all<B: RequestBody>(exchange: &mut Exchange<B>) -> Result<Vec<u8>, ClientError> {
    let mut body = Vec::new();
    while exchange.read(&mut body, MIB).await? > 0 {}
    Ok(body)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// haulier with a script that names the method and returns the body.
fn haulier_with_echo() -> Server {
    Server::start("php-cgi", env!("CARGO_BIN_EXE_haulier"), |directory, address| {
        let at = directory.display();
        let config = format!(
            "[server]\nhttp = \"{address}\"\nadmin = \"off\"\n[site.echo]\nroot = \"{at}/root\"\napp = \"plain\"\n\
             [log]\naccess = \"off\"\n"
        );
        fs::write(directory.join("haulier.toml"), config).expect("written");
        let script = "<?php header('X-Method: ' . $_SERVER['REQUEST_METHOD']); readfile('php://input');";
        fs::write(directory.join("root/echo.php"), script).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulier"));
        command.arg("run").arg("-c").arg(directory.join("haulier.toml"));
        command
    })
}

#[test]
fn nginx_stores_uploads_of_both_kinds_by_both_versions_on_kept_connections() {
    for is_http2 in [false, true] {
        let listen = if is_http2 { "http2" } else { "" };
        let server = nginx("client_max_body_size 50m; dav_methods PUT DELETE;", listen);
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(server.root(), everyone).expect("ours");
        let file = data(5 * MIB, 9);
        block_on(async {
            let mut connection = connect(server.address, is_http2).await;
            for (name, is_told) in [("/told.bin", true), ("/untold.bin", false)] {
                let body = Pieces::of(&file, is_told);
                let request = Request::new(method("PUT"), url(server.address, name)).with_body(body);
                let sent = connection.exchange(request, Timeouts::default());
                let mut exchange = sent.await.expect("a response");
                assert_eq!(exchange.head().status(), 201, "{name} HTTP/2: {is_http2}");
                read_all(&mut exchange).await.expect("a body");
                assert!(fs::read(server.root().join(&name[1..])).expect("stored") == **file);
                connection = exchange.into_connection().expect("it is kept");
                assert!(connection.is_reusable());
            }
            let request = Request::new(method("DELETE"), url(server.address, "/told.bin"));
            let exchange = connection.exchange(request, Timeouts::default()).await;
            assert_eq!(exchange.expect("a response").head().status(), 204);
            assert!(!server.root().join("told.bin").exists());
        });
    }
}

#[test]
fn nginx_says_100_before_the_body_and_the_caller_hears_it() {
    let server = nginx("dav_methods PUT;", "");
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(server.root(), everyone).expect("ours");
    block_on(async {
        let mut seen = Vec::new();
        let request = Request::new(method("PUT"), url(server.address, "/a.txt"))
            .with("Expect", "100-continue")
            .with_body(Bytes::from("hello"));
        let connection = connect(server.address, false).await;
        let sent = connection.exchange_with(request, Timeouts::default(), |head| seen.push(head.status()));
        assert_eq!(sent.await.expect("a response").head().status(), 201);
        assert_eq!(seen, [100]);
    });
    assert_eq!(fs::read(server.root().join("a.txt")).expect("stored"), b"hello");
}

#[test]
fn a_script_gets_method_and_body_as_they_were_sent() {
    let server = haulier_with_echo();
    let file = data(3 * MIB, 11);
    for is_http2 in [false, true] {
        block_on(async {
            let mut connection = connect(server.address, is_http2).await;
            for (name, is_told) in [("PUT", true), ("PATCH", false), ("REPORT", true), ("OPTIONS", false)] {
                let body = Pieces::of(&file, is_told);
                let request = Request::new(method(name), url(server.address, "/echo.php")).with_body(body);
                let sent = connection.exchange(request, Timeouts::default());
                let mut exchange = sent.await.expect("a response");
                let head = exchange.head();
                assert_eq!(
                    (head.status(), head.fields().get("x-method")),
                    (200, Some(name.as_bytes()))
                );
                assert!(read_all(&mut exchange).await.expect("a body") == **file, "{name}");
                connection = exchange.into_connection().expect("it is kept");
            }
        });
    }
}

#[test]
fn an_exchange_that_is_given_up_leaves_an_http2_connection_of_use() {
    let server = nginx("", "http2");
    let file = data(20 * MIB, 5);
    fs::write(server.root().join("f.bin"), &**file).expect("written");
    fs::write(server.root().join("small.txt"), b"small").expect("written");
    block_on(async {
        let connection = connect(server.address, true).await;
        let request = Request::get(url(server.address, "/f.bin"));
        let mut exchange = connection
            .exchange(request, Timeouts::default())
            .await
            .expect("a response");
        let mut some = Vec::new();
        exchange.read(&mut some, 1000).await.expect("a piece");
        assert_eq!(some, file[..some.len()]);
        let connection = exchange.abort().await.expect("HTTP/2 needs no closing");
        let request = Request::get(url(server.address, "/small.txt"));
        let mut exchange = connection
            .exchange(request, Timeouts::default())
            .await
            .expect("a response");
        assert_eq!(read_all(&mut exchange).await.expect("a body"), b"small");
    });
}
