//! Our HTTP/2 client against the server of the h2 crate, over a pipe in memory.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use haulier_proto::field::Fields;
use haulier_proto::h2::client::{Client, ClientEvent, ClientLimits, StreamError, StreamOptions};
use haulier_proto::h2::error::ErrorCode;
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// The outcome of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    is_complete: bool,
    failure: Option<StreamError>,
}

/// A request to be sent.
struct Wanted {
    method: &'static str,
    path: &'static str,
    body: Vec<u8>,
}

fn get(path: &'static str) -> Wanted {
    Wanted {
        method: "GET",
        path,
        body: Vec::new(),
    }
}

/// Sends all requests on one connection, as many at a time as the server allows.
async fn ask(mut pipe: DuplexStream, limits: ClientLimits, wanted: &[Wanted]) -> Vec<Answer> {
    let mut client = Client::new(limits);
    let mut answers: Vec<Answer> = wanted.iter().map(|_| Answer::default()).collect();
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut sent = vec![0; wanted.len()];
    let mut waiting: VecDeque<usize> = (0..wanted.len()).collect();
    let (mut input, mut storage) = (Vec::new(), Fields::new());
    while answers
        .iter()
        .any(|answer| !answer.is_complete && answer.failure.is_none())
    {
        while client.has_room()
            && let Some(next) = waiting.pop_front()
        {
            let one = &wanted[next];
            let ask = StreamOptions {
                is_head: one.method == "HEAD",
                end: one.body.is_empty(),
            };
            let lines = [
                (":method", one.method),
                (":scheme", "http"),
                (":authority", "localhost"),
                (":path", one.path),
                ("User-Agent", "haulier"),
            ];
            let lines = lines.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            places.insert(client.open(ask, lines).expect("room"), next);
        }
        for (stream, place) in &places {
            let body = &wanted[*place].body;
            if sent[*place] < body.len() {
                sent[*place] += client
                    .send_data(*stream, &body[sent[*place]..], true)
                    .unwrap_or_default();
            }
        }
        let output = std::mem::take(client.output());
        pipe.write_all(&output).await.expect("the server reads");
        if pipe.read_buf(&mut input).await.expect("the server writes") == 0 {
            break;
        }
        let mut at = 0;
        loop {
            let step = client
                .receive(&input[at..], &mut storage)
                .expect("a server that keeps to the protocol");
            at += step.taken;
            match step.event {
                None => break,
                Some(ClientEvent::Head { stream, head, end }) => {
                    let answer = &mut answers[places[&stream]];
                    answer.status = head.status();
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    answer.fields = head
                        .fields()
                        .iter()
                        .map(|(name, value)| (text(name), text(value)))
                        .collect();
                    answer.is_complete = end;
                }
                Some(ClientEvent::Data { stream, data, end }) => {
                    let answer = &mut answers[places[&stream]];
                    answer.body.extend_from_slice(data);
                    answer.is_complete = end;
                }
                Some(ClientEvent::Trailers { stream, .. }) => answers[places[&stream]].is_complete = true,
                // More streams were opened than the server allows, before its SETTINGS arrived.
                Some(ClientEvent::Failed {
                    stream,
                    why: StreamError::Unprocessed,
                }) if wanted[places[&stream]].path != "/refused" => waiting.push_back(places[&stream]),
                Some(ClientEvent::Failed { stream, why }) => answers[places[&stream]].failure = Some(why),
                Some(ClientEvent::GoAway { .. } | ClientEvent::Interim { .. }) => {}
            }
        }
        input.drain(..at);
    }
    answers
}

/// A server: `/N` answers with N bytes, `/echo` with the request's body, `/trailers` ends in trailers, `/large` has a
/// large head, `/reset` is reset after three bytes, `/refused` is refused.
async fn serve(pipe: DuplexStream, builder: h2::server::Builder) {
    let mut connection = builder.handshake(pipe).await.expect("a handshake");
    let mut running = tokio::task::JoinSet::new();
    while let Some(accepted) = connection.accept().await {
        let Ok((request, respond)) = accepted else { return };
        running.spawn(answer(request, respond));
    }
}

async fn answer(request: Request<h2::RecvStream>, mut respond: h2::server::SendResponse<Bytes>) {
    let path = request.uri().path().to_owned();
    let is_head = request.method() == http::Method::HEAD;
    assert_eq!(request.uri().host(), Some("localhost"));
    assert_eq!(request.headers()["user-agent"], "haulier");
    let mut incoming = request.into_body();
    let mut body = Vec::new();
    while let Some(data) = incoming.data().await {
        let data = data.expect("data");
        incoming.flow_control().release_capacity(data.len()).expect("capacity");
        body.extend_from_slice(&data);
    }
    let mut response = Response::builder().status(StatusCode::OK);
    let content = match path.as_str() {
        "/echo" => body,
        "/reset" => b"abc".to_vec(),
        "/refused" => return respond.send_reset(h2::Reason::REFUSED_STREAM),
        "/large" => {
            for number in 0..10 {
                response = response.header(format!("x-large-{number}"), "{}".repeat(1500));
            }
            Vec::new()
        }
        other => vec![b'x'; other[1..].parse().unwrap_or(3)],
    };
    let length = if path == "/reset" { 5 } else { content.len() };
    let response = response.header("content-length", length).body(()).expect("a response");
    let Ok(mut stream) = respond.send_response(response, is_head || content.is_empty()) else {
        return;
    };
    if is_head || content.is_empty() {
        return;
    }
    let has_trailers = path == "/trailers";
    let mut rest = Bytes::from(content);
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let Some(Ok(room)) = std::future::poll_fn(|context| stream.poll_capacity(context)).await else {
            return;
        };
        let piece = rest.split_to(room.min(rest.len()));
        let is_last = rest.is_empty() && !has_trailers && path != "/reset";
        if stream.send_data(piece, is_last).is_err() {
            return;
        }
    }
    if path == "/reset" {
        tokio::task::yield_now().await;
        stream.send_reset(h2::Reason::INTERNAL_ERROR);
    } else if has_trailers {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-trailer", "at the end".parse().expect("a value"));
        let _ = stream.send_trailers(trailers);
    }
}

async fn with_server(limits: ClientLimits, builder: h2::server::Builder, wanted: &[Wanted]) -> Vec<Answer> {
    let (ours, theirs) = duplex(10_000);
    let server = tokio::spawn(serve(theirs, builder));
    let answers = ask(ours, limits, wanted).await;
    server.abort();
    answers
}

#[tokio::test]
async fn bodies_of_every_size_come_whole_by_few_streams_and_small_windows() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(3);
    let limits = ClientLimits {
        stream_window: 5000,
        connection_window: 70_000,
        ..ClientLimits::default()
    };
    let paths = [
        "/0", "/1", "/4999", "/5000", "/5001", "/16384", "/16385", "/100000", "/1000000",
    ];
    let wanted: Vec<Wanted> = paths.iter().map(|path| get(path)).collect();
    for (path, answer) in paths.iter().zip(with_server(limits, builder, &wanted).await) {
        let length: usize = path[1..].parse().expect("a number");
        assert_eq!((answer.status, answer.body.len()), (200, length), "{path}");
        assert!(answer.is_complete && answer.body.iter().all(|byte| *byte == b'x'));
    }
}

#[tokio::test]
async fn request_bodies_arrive_through_the_servers_windows() {
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(1000).max_frame_size(20_000);
    let body: Vec<u8> = (0..300_000u32).map(|number| (number % 251) as u8).collect();
    let wanted = [("POST", body.clone()), ("PUT", vec![7])].map(|(method, body)| Wanted {
        method,
        path: "/echo",
        body,
    });
    let answers = with_server(ClientLimits::default(), builder, &wanted).await;
    assert!(answers[0].body == body && answers[0].is_complete);
    assert_eq!(answers[1].body, [7]);
}

#[tokio::test]
async fn a_server_without_a_table_understands_what_is_said_again() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(1);
    let wanted: Vec<Wanted> = (0..20).map(|_| get("/3")).collect();
    let answers = with_server(ClientLimits::default(), builder, &wanted).await;
    assert!(answers.iter().all(|answer| answer.is_complete && answer.body == b"xxx"));
}

#[tokio::test]
async fn heads_trailers_and_answers_without_a_body_are_understood() {
    let wanted = [
        get("/large"),
        get("/trailers"),
        Wanted {
            method: "HEAD",
            path: "/500",
            body: Vec::new(),
        },
    ];
    let answers = with_server(ClientLimits::default(), h2::server::Builder::new(), &wanted).await;
    assert_eq!(
        answers[0]
            .fields
            .iter()
            .filter(|(_, value)| value.len() == 3000)
            .count(),
        10
    );
    assert_eq!(
        (answers[1].body.as_slice(), answers[1].is_complete),
        (&b"xxx"[..], true)
    );
    let length = ("content-length".to_owned(), "500".to_owned());
    assert!(answers[2].fields.contains(&length) && answers[2].is_complete && answers[2].body.is_empty());
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_no_answer_and_the_others_are() {
    let wanted = [get("/reset"), get("/refused"), get("/7")];
    let answers = with_server(ClientLimits::default(), h2::server::Builder::new(), &wanted).await;
    let reset = StreamError::Reset(ErrorCode::INTERNAL_ERROR);
    assert_eq!((answers[0].failure, answers[0].is_complete), (Some(reset), false));
    assert_eq!(answers[1].failure, Some(StreamError::Unprocessed));
    assert_eq!((answers[2].body.len(), answers[2].is_complete), (7, true));
}
