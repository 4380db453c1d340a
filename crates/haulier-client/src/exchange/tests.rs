use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::runtime::Runtime;

use super::*;
use crate::request::MethodName;
use crate::stream::Stream;
use crate::url::Url;

/// A body whose pieces are a test's.
#[derive(Debug, Default)]
struct Pieces {
    pieces: VecDeque<&'static str>,
    length: Option<u64>,
    /// The source fails after the last piece.
    is_broken: bool,
    /// The source waits forever after the last piece.
    is_endless: bool,
    trailer: Option<&'static str>,
}

impl Pieces {
    fn new(pieces: &[&'static str]) -> Self {
        Self {
            pieces: pieces.iter().copied().collect(),
            ..Self::default()
        }
    }
}

impl RequestBody for Pieces {
    fn length(&self) -> Option<u64> {
        self.length
    }

    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        match self.pieces.pop_front() {
            Some(piece) => Poll::Ready(Ok(Some(Bytes::from(piece)))),
            None if self.is_endless => Poll::Pending,
            None if self.is_broken => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            None => Poll::Ready(Ok(None)),
        }
    }

    fn trailers(&mut self) -> Option<Fields> {
        let mut trailers = Fields::new();
        trailers.append("Digest", self.trailer?);
        Some(trailers)
    }
}

/// A server of one connection that runs `script`.
fn serve<T: Send + 'static>(script: impl FnOnce(&mut TcpStream) -> T + Send + 'static) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a timeout");
        script(&mut stream)
    });
    (address, thread)
}

/// Reads until the bytes end with `end`.
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(end.as_bytes()) {
        match stream.read(&mut byte) {
            Ok(1) => read.push(byte[0]),
            _ => panic!("no {end:?} behind {:?}", String::from_utf8_lossy(&read)),
        }
    }
    String::from_utf8(read).expect("text")
}

fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let _ = stream.read_to_end(&mut read);
    String::from_utf8(read).expect("text")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

async fn connect(address: SocketAddr) -> Connection {
    let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let url = Url::parse(&format!("http://{address}/")).expect("a URL");
    Connection::new(Stream::Tcp(stream), url.origin().clone(), false)
}

fn post<B: RequestBody>(address: SocketAddr, body: B) -> Request<B> {
    let url = Url::parse(&format!("http://{address}/x")).expect("a URL");
    Request::new(MethodName::POST, url).with("Host", "h").with_body(body)
}

async fn read_all<B: RequestBody>(exchange: &mut Exchange<B>) -> Result<Vec<u8>, ClientError> {
    let mut body = Vec::new();
    while exchange.read(&mut body, READ).await? > 0 {}
    Ok(body)
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_body_of_unknown_length_is_sent_in_chunks_and_its_trailers_after_them() {
    let (address, server) = serve(|stream| {
        let request = read_until(stream, "\r\n\r\n") + &read_until(stream, "\r\n\r\n");
        stream.write_all(OK).expect("written");
        request
    });
    let body = Pieces {
        trailer: Some("abc"),
        ..Pieces::new(&["hello ", "wide world"])
    };
    runtime().block_on(async {
        let sent = connect(address)
            .await
            .exchange(post(address, body), Timeouts::default());
        let mut exchange = sent.await.expect("a response");
        assert_eq!(read_all(&mut exchange).await.expect("a body"), b"ok");
        assert!(exchange.into_connection().is_some());
    });
    assert_eq!(
        server.join().expect("no panic"),
        "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
         6\r\nhello \r\na\r\nwide world\r\n0\r\nDigest: abc\r\n\r\n"
    );
}

#[test]
fn a_body_of_known_length_is_sent_with_it_and_must_have_it() {
    let (address, server) = serve(|stream| {
        let request = read_until(stream, "\r\n\r\n") + &read_until(stream, "world");
        stream.write_all(OK).expect("written");
        request
    });
    let body = Pieces {
        length: Some(11),
        ..Pieces::new(&["hello ", "world"])
    };
    runtime().block_on(async {
        let sent = connect(address)
            .await
            .exchange(post(address, body), Timeouts::default());
        assert_eq!(sent.await.expect("a response").head().status(), 200);
    });
    let request = server.join().expect("no panic");
    assert!(request.ends_with("Content-Length: 11\r\n\r\nhello world"), "{request}");

    for length in [10, 12] {
        let (address, server) = serve(read_to_end);
        let body = Pieces {
            length: Some(length),
            ..Pieces::new(&["hello ", "world"])
        };
        runtime().block_on(async {
            let sent = connect(address)
                .await
                .exchange(post(address, body), Timeouts::default());
            let error = sent.await.expect_err("a body of another length");
            assert!(matches!(error, ClientError::RequestBody(_)), "{error:?}");
        });
        assert!(
            server.join().expect("no panic").len() < 100,
            "no byte beyond the length"
        );
    }
}

#[test]
fn a_source_that_fails_ends_the_connection_without_a_last_chunk() {
    let (address, server) = serve(read_to_end);
    let body = Pieces {
        is_broken: true,
        ..Pieces::new(&["half"])
    };
    runtime().block_on(async {
        let sent = connect(address)
            .await
            .exchange(post(address, body), Timeouts::default());
        let error = sent.await.expect_err("a broken source");
        assert!(matches!(error, ClientError::RequestBody(_)), "{error:?}");
    });
    assert!(server.join().expect("no panic").ends_with("4\r\nhalf\r\n"));
}

#[test]
fn a_body_goes_on_while_the_response_comes() {
    let (address, server) = serve(|stream| {
        read_until(stream, "one\r\n");
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
            .expect("written");
        read_until(stream, "0\r\n\r\n");
        stream
            .write_all(b"3\r\ntwo\r\n0\r\nServer-Timing: a\r\n\r\n")
            .expect("written");
    });
    let (sender, receiver) = mpsc::channel();
    /// Gives a second piece only after the response has begun.
    #[derive(Debug)]
    struct Answering(Option<&'static str>, mpsc::Receiver<()>);
    impl RequestBody for Answering {
        fn length(&self) -> Option<u64> {
            None
        }
        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
            match (self.0.take(), self.1.try_recv()) {
                (Some(first), _) => Poll::Ready(Ok(Some(Bytes::from(first)))),
                (None, Ok(())) => Poll::Ready(Ok(None)),
                (None, Err(_)) => Poll::Pending,
            }
        }
    }
    runtime().block_on(async {
        let body = Answering(Some("one"), receiver);
        let sent = connect(address)
            .await
            .exchange(post(address, body), Timeouts::default());
        let mut exchange = sent.await.expect("a response");
        let mut out = Vec::new();
        assert_eq!(exchange.read(&mut out, READ).await.expect("a piece"), 3);
        assert!(exchange.trailers().is_none());
        sender.send(()).expect("the body is there");
        assert_eq!(read_all(&mut exchange).await.expect("the rest"), b"two");
        let trailers = exchange.trailers().expect("trailers");
        assert_eq!(trailers.get("server-timing"), Some(&b"a"[..]));
        assert!(exchange.into_connection().is_some());
    });
    server.join().expect("no panic");
}

#[test]
fn interim_responses_reach_the_caller() {
    let (address, server) = serve(|stream| {
        read_until(stream, "\r\n\r\n");
        for head in ["102 Processing\r\n", "103 Early Hints\r\nLink: </a>\r\n"] {
            write!(stream, "HTTP/1.1 {head}\r\n").expect("written");
        }
        stream.write_all(OK).expect("written");
    });
    runtime().block_on(async {
        let mut seen = Vec::new();
        let on_interim = |head: &ResponseHead| seen.push((head.status(), head.fields().contains("link")));
        let request = post(address, Bytes::new());
        let sent = connect(address)
            .await
            .exchange_with(request, Timeouts::default(), on_interim);
        assert_eq!(sent.await.expect("a response").head().status(), 200);
        assert_eq!(seen, [(102, false), (103, true)]);
    });
    server.join().expect("no panic");
}

/// Sends a body with `Expect: 100-continue`; gives the bytes that the server read after the head.
fn expecting(answer: &'static [u8], then: &'static [u8]) -> (u16, bool, String) {
    let (address, server) = serve(move |stream| {
        read_until(stream, "\r\n\r\n");
        stream.write_all(answer).expect("written");
        if then.is_empty() {
            return read_to_end(stream);
        }
        let body = read_until(stream, "body");
        stream.write_all(then).expect("written");
        body
    });
    let (status, is_kept) = runtime().block_on(async {
        let request = post(address, Bytes::from("body")).with("Expect", "100-continue");
        let sent = connect(address).await.exchange(request, Timeouts::default());
        let mut exchange = sent.await.expect("a response");
        read_all(&mut exchange).await.expect("a body");
        (exchange.head().status(), exchange.into_connection().is_some())
    });
    (status, is_kept, server.join().expect("no panic"))
}

#[test]
fn a_body_is_held_back_until_the_server_says_100() {
    let sent = expecting(b"HTTP/1.1 100 Continue\r\n\r\n", OK);
    assert_eq!(sent, (200, true, "body".to_owned()));
}

#[test]
fn a_server_that_knows_no_expect_gets_the_body_after_a_second() {
    let began = std::time::Instant::now();
    assert_eq!(expecting(b"", OK), (200, true, "body".to_owned()));
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_body_that_was_refused_is_not_sent_and_its_connection_not_kept() {
    let sent = expecting(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n", b"");
    assert_eq!(sent, (417, false, String::new()));
}

#[test]
fn a_response_before_the_end_of_the_body_is_read_and_its_connection_not_kept() {
    let (address, server) = serve(|stream| {
        read_until(stream, "some\r\n");
        let head = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(head).expect("written");
        read_to_end(stream)
    });
    runtime().block_on(async {
        let body = Pieces {
            is_endless: true,
            ..Pieces::new(&["some"])
        };
        let sent = connect(address)
            .await
            .exchange(post(address, body), Timeouts::default());
        let exchange = sent.await.expect("a response");
        assert_eq!(exchange.head().status(), 413);
        assert!(exchange.into_connection().is_none());
    });
    assert_eq!(server.join().expect("no panic"), "", "nothing more was sent");
}

#[test]
fn the_caller_knows_whether_a_byte_of_the_response_has_arrived() {
    for (answer, is_answered) in [("", false), ("H", true), ("HTTP/1.1 103 x\r\n\r\n", true)] {
        let (address, server) = serve(move |stream| {
            read_until(stream, "\r\n\r\n");
            stream.write_all(answer.as_bytes()).expect("written");
            stream.shutdown(Shutdown::Both).expect("open");
        });
        let error = runtime().block_on(async {
            let request = post(address, Bytes::new());
            let sent = connect(address).await.exchange(request, Timeouts::default());
            sent.await.expect_err("no response")
        });
        match error {
            ClientError::Unanswered(_) => assert!(!is_answered, "{answer:?}"),
            ClientError::Broken(_) => assert!(is_answered, "{answer:?}"),
            other => panic!("{other:?}"),
        }
        server.join().expect("no panic");
    }
}

#[test]
fn a_silent_server_is_given_up_after_the_last_byte_was_sent() {
    let (address, server) = serve(read_to_end);
    let error = runtime().block_on(async {
        let timeouts = Timeouts {
            first_byte: Duration::from_millis(100),
            ..Timeouts::default()
        };
        let sent = connect(address).await.exchange(post(address, Bytes::new()), timeouts);
        sent.await.expect_err("no response")
    });
    let phase = TimeoutPhase::FirstByte;
    assert!(matches!(error, ClientError::TimedOut { phase: found, .. } if found == phase));
    server.join().expect("no panic");
}

#[test]
fn bytes_after_a_response_cost_its_connection() {
    let (address, server) = serve(|stream| {
        read_until(stream, "\r\n\r\n");
        stream
            .write_all(&[OK, b"HTTP/1.1 200 OK\r\n"].concat())
            .expect("written");
    });
    runtime().block_on(async {
        let request = post(address, Bytes::new());
        let sent = connect(address).await.exchange(request, Timeouts::default());
        let mut exchange = sent.await.expect("a response");
        assert_eq!(read_all(&mut exchange).await.expect("a body"), b"ok");
        let kept = exchange.into_connection();
        assert!(kept.is_none_or(|mut connection| !connection.is_reusable()));
    });
    server.join().expect("no panic");
}
