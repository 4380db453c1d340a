//! Our HTTP/2 server against the client of the h2 crate, over a pipe in memory.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use h2::client::SendRequest;
use haulier_proto::field::Fields;
use haulier_proto::h2::connection::{Connection, ServerEvent};
use haulier_proto::h2::hpack::encode;
use haulier_proto::h2::limits::Limits;
use haulier_proto::head::RequestHead;
use http::{HeaderMap, Method, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// The server's answer to a request, once its body is complete.
struct Exchange {
    head: RequestHead,
    body: Vec<u8>,
}

/// An answer that is being sent.
struct Answer {
    body: Vec<u8>,
    sent: usize,
    trailers: bool,
}

/// A server that echoes each request: method and target in fields, its fields with the prefix `echo-`, the body
/// unchanged. `/trailers` ends in trailers, `/large` has a large head, `/early` is answered before the body is read,
/// `/last` ends the connection.
struct Echo {
    connection: Connection,
    exchanges: HashMap<u32, Exchange>,
    answers: HashMap<u32, Answer>,
    resets: usize,
}

impl Echo {
    fn new(limits: Limits) -> Self {
        Self {
            connection: Connection::new(limits, Instant::now()),
            exchanges: HashMap::new(),
            answers: HashMap::new(),
            resets: 0,
        }
    }

    /// Serves until the client has gone, and returns the number of reset streams.
    async fn serve(mut self, mut pipe: DuplexStream) -> usize {
        let mut input = Vec::new();
        loop {
            let output = std::mem::take(self.connection.output());
            if pipe.write_all(&output).await.is_err() {
                return self.resets;
            }
            if !output.is_empty() && self.send_more() {
                continue;
            }
            if self.connection.is_finished() || !matches!(pipe.read_buf(&mut input).await, Ok(1..)) {
                return self.resets;
            }
            self.receive(&mut input);
            self.send_more();
        }
    }

    fn receive(&mut self, input: &mut Vec<u8>) {
        let (mut at, mut storage) = (0, Fields::new());
        loop {
            let step = self
                .connection
                .receive(&input[at..], Instant::now(), &mut storage)
                .expect("a client that keeps to the protocol");
            at += step.taken;
            let Some(event) = step.event else { break };
            self.event(event);
        }
        input.drain(..at);
    }

    fn event(&mut self, event: ServerEvent<'_>) {
        match event {
            ServerEvent::Request { stream, head, end } => {
                let done = end || head.path() == b"/early";
                let body = Vec::new();
                self.exchanges.insert(stream, Exchange { head, body });
                if done {
                    self.answer(stream);
                }
            }
            ServerEvent::Refused { stream, error } => {
                let block = encode::block(error.status(), &Fields::new());
                assert_eq!(self.connection.respond(stream, &block, b""), Some(0));
            }
            ServerEvent::Data { stream, data, end } => {
                let exchange = self.exchanges.get_mut(&stream).expect("an open stream");
                exchange.body.extend_from_slice(data);
                self.connection.consume(stream, data.len());
                if end {
                    self.answer(stream);
                }
            }
            ServerEvent::Reset { stream, .. } => {
                self.resets += 1;
                self.exchanges.remove(&stream);
                self.answers.remove(&stream);
            }
            ServerEvent::GoAway { .. } => {}
        }
    }

    fn answer(&mut self, stream: u32) {
        let Exchange { head, body } = self.exchanges.remove(&stream).expect("a request");
        let mut fields = Fields::new();
        fields.append("X-Method", head.method_name());
        fields.append("X-Target", head.target());
        fields.append("X-Authority", head.authority().unwrap_or_default());
        for (name, value) in head.fields().iter() {
            fields.append([b"Echo-", name].concat(), value);
        }
        if head.path() == b"/large" {
            for number in 0..12 {
                fields.append(format!("x-large-{number}"), "{}".repeat(2000));
            }
        }
        self.connection.send_head(stream, &encode::block(200, &fields), false);
        let trailers = head.path() == b"/trailers";
        self.answers.insert(
            stream,
            Answer {
                body,
                sent: 0,
                trailers,
            },
        );
        self.connection.queue(stream);
        if head.path() == b"/last" {
            self.connection.shut_down();
        }
    }

    /// Sends at most 20,000 bytes on every writable stream; true if any was sent.
    fn send_more(&mut self) -> bool {
        let mut any = false;
        while let Some(stream) = self.connection.next_writable() {
            let Some(answer) = self.answers.get_mut(&stream) else {
                continue;
            };
            any = true;
            let end = answer.body.len().min(answer.sent + 20_000);
            let last = end == answer.body.len();
            let part = &answer.body[answer.sent..end];
            let Some(sent) = self.connection.send_data(stream, part, last && !answer.trailers) else {
                continue;
            };
            answer.sent += sent;
            if answer.sent < answer.body.len() {
                self.connection.queue(stream);
            } else if answer.trailers {
                let mut block = Vec::new();
                encode::field(&mut block, b"x-trailer", b"at the end");
                assert!(self.connection.send_head(stream, &block, true));
            }
        }
        any
    }
}

type Client = SendRequest<Bytes>;

/// Runs `talk` with a client from `builder` against the server; returns the number of resets.
async fn with_client<F: Future<Output = ()>>(
    limits: Limits,
    builder: &h2::client::Builder,
    talk: impl FnOnce(Client) -> F,
) -> usize {
    let (ours, theirs) = duplex(10_000);
    let server = Echo::new(limits).serve(ours);
    let talk = async {
        let (client, connection) = builder.handshake(theirs).await.expect("a handshake");
        tokio::join!(talk(client), async {
            connection.await.expect("a connection without fault");
        });
    };
    tokio::join!(server, talk).0
}

async fn fetch(client: &Client, request: Request<()>, body: &[u8], trailers: Option<HeaderMap>) -> Fetched {
    let end = body.is_empty() && trailers.is_none();
    let mut client = client.clone().ready().await.expect("a ready client");
    let (response, mut stream) = client.send_request(request, end).expect("a request");
    if !end {
        send_body(&mut stream, body, trailers).await;
    }
    let (head, mut incoming) = response.await.expect("a response").into_parts();
    let mut body = Vec::new();
    while let Some(data) = incoming.data().await {
        let data = data.expect("data");
        incoming.flow_control().release_capacity(data.len()).expect("capacity");
        body.extend_from_slice(&data);
    }
    let trailers = incoming.trailers().await.expect("an end");
    Fetched {
        head: Response::from_parts(head, ()),
        body,
        trailers,
    }
}

struct Fetched {
    head: Response<()>,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl Fetched {
    fn field(&self, name: &str) -> &[u8] {
        self.head
            .headers()
            .get(name)
            .map_or(b"(none)", |value| value.as_bytes())
    }
}

async fn send_body(stream: &mut h2::SendStream<Bytes>, body: &[u8], trailers: Option<HeaderMap>) {
    let mut rest = Bytes::copy_from_slice(body);
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let Some(Ok(room)) = std::future::poll_fn(|context| stream.poll_capacity(context)).await else {
            return;
        };
        let part = rest.split_to(room.min(rest.len()));
        let end = rest.is_empty() && trailers.is_none();
        stream.send_data(part, end).expect("room was reserved");
    }
    if let Some(trailers) = trailers {
        stream.send_trailers(trailers).expect("an open stream");
    }
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://oracle.example:81{path}"))
        .body(())
        .expect("a request")
}

fn post(path: &str) -> Request<()> {
    Request::post(format!("https://oracle.example{path}"))
        .body(())
        .expect("a request")
}

/// Bytes without a pattern, so that a lost or repeated frame is noticed.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[tokio::test(flavor = "current_thread")]
async fn heads_arrive_as_they_were_sent_however_often_they_are_indexed() {
    let resets = with_client(Limits::default(), &h2::client::Builder::new(), |client| async move {
        for round in 0..200 {
            let mut request = get(&format!("/path/{}?q={}", round % 7, round % 50));
            let long = "Mozilla/5.0 \"<>\\^".repeat(round % 40);
            for (name, value) in [
                ("user-agent", long.as_str()),
                ("accept", "text/html, */*;q=0.1"),
                ("x-round", &format!("{}", round % 60)),
                ("x-empty", ""),
                ("if-none-match", "W/\"a\\b~|\""),
            ] {
                request
                    .headers_mut()
                    .insert(name, value.trim().parse().expect("a value"));
            }
            let sent = request.clone();
            let fetched = fetch(&client, request, b"", None).await;
            assert_eq!(fetched.head.status(), 200);
            assert_eq!(fetched.field("x-method"), b"GET");
            assert_eq!(fetched.field("x-authority"), b"oracle.example:81");
            assert_eq!(fetched.field("echo-host"), b"oracle.example:81");
            let target = sent.uri().path_and_query().expect("a path").as_str();
            assert_eq!(fetched.field("x-target"), target.as_bytes());
            for (name, value) in sent.headers() {
                assert_eq!(fetched.field(&format!("echo-{name}")), value.as_bytes());
            }
        }
    })
    .await;
    assert_eq!(resets, 0);
}

#[tokio::test(flavor = "current_thread")]
async fn bodies_come_back_whole_through_windows_of_any_size() {
    for (window, connection, frame, table) in [
        (65_535, 65_535, 16_384, 4096),
        (100, 65_535, 16_384, 0),
        (1 << 20, 1 << 21, 1 << 20, 100),
        (70_001, 1 << 20, 33_333, 65_536),
    ] {
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(window)
            .initial_connection_window_size(connection);
        builder.max_frame_size(frame).header_table_size(table);
        let resets = with_client(Limits::default(), &builder, |client| async move {
            let lengths = [0, 1, 99, 100, 101, 16_384, 16_385, 65_535, 65_536, 300_000];
            let exchanges = lengths.into_iter().map(|length| {
                let client = client.clone();
                async move {
                    let body = noise(length, length as u64);
                    let fetched = fetch(&client, post("/body"), &body, None).await;
                    assert!(
                        fetched.body == body,
                        "{length} bytes came back as {}",
                        fetched.body.len()
                    );
                }
            });
            join_all(exchanges).await;
        })
        .await;
        assert_eq!(resets, 0);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_hundred_streams_at_once_and_then_more() {
    with_client(
        Limits::default(),
        h2::client::Builder::new().max_send_buffer_size(1 << 20),
        |client| async move {
            let exchanges = (0..300).map(|number| {
                let client = client.clone();
                async move {
                    let body = noise(number * 50, number as u64);
                    let fetched = fetch(&client, post(&format!("/{number}")), &body, None).await;
                    assert_eq!(fetched.field("x-target"), format!("/{number}").as_bytes());
                    assert!(fetched.body == body);
                }
            });
            join_all(exchanges).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn trailers_are_sent_and_those_of_the_client_dropped() {
    with_client(Limits::default(), &h2::client::Builder::new(), |client| async move {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-late", "1".parse().expect("a value"));
        let fetched = fetch(&client, post("/trailers"), b"body", Some(trailers)).await;
        assert_eq!(fetched.body, b"body");
        let found = fetched.trailers.as_ref().expect("trailers");
        assert_eq!(
            found.get("x-trailer").map(|value| value.as_bytes()),
            Some(&b"at the end"[..])
        );
        assert_eq!(fetched.field("echo-x-late"), b"(none)");
    })
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_head_of_several_frames_is_read_by_the_other_side() {
    let mut builder = h2::client::Builder::new();
    builder.max_header_list_size(1 << 20);
    with_client(Limits::default(), &builder, |client| async move {
        let fetched = fetch(&client, get("/large"), b"", None).await;
        assert_eq!(fetched.field("x-large-11"), "{}".repeat(2000).as_bytes());
    })
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_head_that_is_too_large_is_answered_and_the_connection_goes_on() {
    let limits = Limits {
        header_list: 2000,
        ..Limits::default()
    };
    with_client(limits, &h2::client::Builder::new(), |client| async move {
        // Sent first: once the client has the settings, it refuses to send more.
        let mut request = get("/");
        request
            .headers_mut()
            .insert("x-long", "v".repeat(2000).parse().expect("a value"));
        assert_eq!(fetch(&client, request, b"", None).await.head.status(), 431);
        assert_eq!(fetch(&client, get("/"), b"", None).await.head.status(), 200);
    })
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn an_answer_before_the_end_of_the_body_is_understood() {
    with_client(Limits::default(), &h2::client::Builder::new(), |client| async move {
        for _ in 0..20 {
            let mut client = client.clone().ready().await.expect("a ready client");
            let (response, mut stream) = client.send_request(post("/early"), false).expect("a request");
            assert_eq!(response.await.expect("a response").status(), 200);
            stream.reserve_capacity(1000);
            // The server may know by now that the client does not accept this.
            let _ = stream.send_data(Bytes::from_static(&[0; 1000]), true);
        }
        assert_eq!(fetch(&client, get("/"), b"", None).await.head.status(), 200);
    })
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_client_may_cancel_and_go_on() {
    let resets = with_client(Limits::default(), &h2::client::Builder::new(), |client| async move {
        for _ in 0..50 {
            let mut ready = client.clone().ready().await.expect("a ready client");
            let (response, mut stream) = ready.send_request(post("/"), false).expect("a request");
            stream.reserve_capacity(1);
            tokio::task::yield_now().await;
            stream.send_reset(h2::Reason::CANCEL);
            assert!(response.await.is_err());
            assert_eq!(fetch(&client, get("/"), b"", None).await.head.status(), 200);
        }
    })
    .await;
    assert!(resets > 0);
}

#[tokio::test(flavor = "current_thread")]
async fn the_last_answer_comes_before_the_connection_ends() {
    with_client(Limits::default(), &h2::client::Builder::new(), |client| async move {
        let body = noise(200_000, 3);
        let fetched = fetch(&client, post("/last"), &body, None).await;
        assert!(fetched.body == body);
        assert!(client.ready().await.is_err(), "no further stream");
    })
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn other_methods_and_the_server_as_a_whole_are_reached() {
    with_client(Limits::default(), &h2::client::Builder::new(), |client| async move {
        for method in ["DELETE", "PROPFIND", "HEAD"] {
            let mut request = get("/a");
            *request.method_mut() = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(
                fetch(&client, request, b"", None).await.field("x-method"),
                method.as_bytes()
            );
        }
    })
    .await;
}

/// All requests concurrently, on this task.
async fn join_all<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) {
    let mut waiting: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        waiting.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if waiting.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}
