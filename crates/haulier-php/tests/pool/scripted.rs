//! Tests against a FastCGI server that splits, floods, lies and closes connections.

use std::future::poll_fn;
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use haulier_http::{BodySource, Piece, ReadInto, ReadPiece, Reason};
use haulier_php::{BadResponse, Body, Pool, PoolError, Request, Response};
use haulier_proto::fastcgi::{CgiHead, HeadError, RecordError, RecordType};

use crate::support::responder::{Responder, end, end_with, hello, record, stderr, stdout};
use crate::support::{Answer, Call, PATIENCE, Scripts, external, next_bytes, wait_until_async};

fn pool_on(responder: &Responder) -> Arc<Pool> {
    Pool::start(external(vec![responder.server()], 2)).expect("the pool starts")
}

async fn answer_to(bytes: impl Into<Vec<u8>>) -> Result<Answer, PoolError> {
    let (scripts, responder) = (Scripts::new(), Responder::answering(bytes));
    Call::get(&scripts, "").answer(&pool_on(&responder)).await
}

#[tokio::test]
async fn records_cut_anywhere_give_the_same_answer() {
    let scripts = Scripts::new();
    let answer = [
        stderr(b"a warning"),
        record(RecordType::Stdout, b"Content-Ty", 5),
        stdout(b""),
        record(RecordType::Stdout, b"pe: text/plain\r\nX-A: b\n\r", 255),
        stdout(b"\nhe"),
        stderr(b"another"),
        stdout(b"llo"),
        record(RecordType::EndRequest, &[0; 8], 7),
    ]
    .concat();
    for size in [1, 2, 3, 7, 8, 9, 31, 1000] {
        let bytes = answer.clone();
        let responder = Responder::start(move |mut peer| {
            while peer.request()?.is_some() {
                peer.write_in_pieces(&bytes, size)?;
            }
            Ok(())
        });
        let pool = pool_on(&responder);
        for _ in 0..3 {
            let answer = Call::get(&scripts, "").answer(&pool).await.expect("an answer");
            assert_eq!(answer.text(), "hello", "pieces of {size}");
            assert_eq!(answer.head.field("x-a"), Some(&b"b"[..]), "pieces of {size}");
            assert_eq!(answer.stderr, b"a warninganother", "pieces of {size}");
        }
        // If the padding of the last record comes with a later read, the connection is not reused.
        if size == 1000 {
            assert_eq!(responder.accepted(), 1);
        }
    }
}

/// Receives a body with a pipe, `most` bytes at a time. Returns the body, and the part that went through the pipe. The
/// pipe is read after each piece, or only at the end.
async fn taken_by_pipe(response: &mut Response, most: usize, at_once: bool) -> (Vec<u8>, usize) {
    let (mut reader, writer): (PipeReader, PipeWriter) = std::io::pipe().expect("a pipe");
    let (mut pieces, mut whole, mut piped) = (Vec::new(), Vec::new(), 0);
    let mut read = |length: usize, whole: &mut Vec<u8>| {
        let start = whole.len();
        whole.resize(start + length, 0);
        reader.read_exact(&mut whole[start..]).expect("what was piped");
    };
    loop {
        let place = || ReadInto::Pipe {
            end: writer.as_fd(),
            most,
        };
        let piece = poll_fn(|cx| response.poll_read(cx, place())).await;
        let Some(piece) = piece.expect("a whole body") else {
            break;
        };
        piped += if let ReadPiece::Placed(length) = piece {
            length
        } else {
            0
        };
        match piece {
            ReadPiece::Placed(length) if at_once => read(length, &mut whole),
            ReadPiece::Piece(Piece::Bytes(bytes)) if at_once => whole.extend(bytes),
            later => pieces.push(later),
        }
    }
    for piece in pieces {
        match piece {
            ReadPiece::Placed(length) => read(length, &mut whole),
            ReadPiece::Piece(Piece::Bytes(bytes)) => whole.extend(bytes),
            ReadPiece::Piece(other) => panic!("{other:?} of PHP"),
        }
    }
    (whole, piped)
}

/// The output of a script that passes a file on: long records, with others in between.
fn long_answer() -> (Vec<u8>, Vec<u8>) {
    let content: Vec<u8> = (0..400_000_u32).map(|number| (number * 7 / 5) as u8).collect();
    let mut answer = stdout(b"Content-Type: image/jpeg\r\n\r\n");
    let mut rest = &content[..];
    for (length, padding) in [(100, 4), (65_528, 0), (40_000, 255), (65_535, 1), (5, 3), (65_528, 0)] {
        let (now, later) = rest.split_at(length);
        answer.extend(record(RecordType::Stdout, now, padding));
        answer.extend(stderr(b"noted "));
        rest = later;
    }
    rest.chunks(65_528).for_each(|now| answer.extend(stdout(now)));
    answer.extend(end());
    (content, answer)
}

/// Writes this answer to every request, in pieces of this size.
fn answering_in_pieces(answer: &[u8], size: usize) -> Responder {
    let bytes = answer.to_vec();
    Responder::start(move |mut peer| {
        while peer.request()?.is_some() {
            peer.write_in_pieces(&bytes, size)?;
        }
        Ok(())
    })
}

#[tokio::test]
async fn long_content_goes_into_a_pipe_and_the_rest_beside_it() {
    let scripts = Scripts::new();
    let (content, answer) = long_answer();
    for size in [777, 65_528 + 8, 1_000_000] {
        let responder = answering_in_pieces(&answer, size);
        let pool = pool_on(&responder);
        for (most, at_once) in [(1 << 20, true), (10_000, true), (1 << 20, false), (1, false)] {
            let mut response = Call::get(&scripts, "").send(&pool).await.expect("a head");
            let (whole, piped) = taken_by_pipe(&mut response, most, at_once).await;
            assert!(
                whole == content,
                "pieces of {size}, {most} at once: {} bytes",
                whole.len()
            );
            assert!(piped > 0, "pieces of {size}, {most} at once");
            assert_eq!(response.take_stderr(), b"noted ".repeat(6));
        }
        assert_eq!(responder.accepted(), 1, "each was taken to its end");
    }
}

/// The answer after a long one is read in smaller portions at first.
#[tokio::test]
async fn answers_of_any_length_follow_a_long_one() {
    let scripts = Scripts::new();
    let (long, long_answer) = long_answer();
    let responder = Responder::start(move |mut peer| {
        while let Some(request) = peer.request()? {
            let query = request.params.iter().find(|(name, _)| name == "QUERY_STRING");
            match query.and_then(|(_, length)| length.parse().ok()) {
                Some(length) => {
                    let head = stdout(b"Content-Type: image/jpeg\r\n\r\n");
                    peer.write(&[head, stdout(&vec![b'x'; length]), end()].concat())?;
                }
                None => peer.write(&long_answer)?,
            }
        }
        Ok(())
    });
    let pool = pool_on(&responder);
    for length in [1, 8_000, 8_104, 8_105, 8_192, 20_000, 40_000, 65_528] {
        for (query, expected) in [(String::new(), long.clone()), (length.to_string(), vec![b'x'; length])] {
            let mut response = Call::get(&scripts, &query).send(&pool).await.expect("a head");
            let (whole, _) = taken_by_pipe(&mut response, 1 << 20, true).await;
            assert!(whole == expected, "{query:?}: {} bytes", whole.len());
        }
    }
    assert_eq!(responder.accepted(), 1, "each was taken to its end");
}

#[tokio::test]
async fn content_goes_behind_what_is_in_memory() {
    let scripts = Scripts::new();
    let (content, answer) = long_answer();
    for size in [777, 65_528 + 8, 1_000_000] {
        let responder = answering_in_pieces(&answer, size);
        let pool = pool_on(&responder);
        for _ in 0..2 {
            let mut response = Call::get(&scripts, "").send(&pool).await.expect("a head");
            let mut memory = Vec::new();
            while let Some(piece) = poll_fn(|cx| response.poll_read(cx, ReadInto::Memory(&mut memory)))
                .await
                .expect("a whole body")
            {
                if let ReadPiece::Piece(Piece::Bytes(bytes)) = piece {
                    memory.extend(bytes);
                }
            }
            assert!(memory == content, "pieces of {size}: {} bytes", memory.len());
            assert_eq!(response.take_stderr(), b"noted ".repeat(6));
        }
        assert_eq!(responder.accepted(), 1, "each was taken to its end");
    }
}

#[tokio::test]
async fn a_worker_that_hangs_up_in_the_middle_of_long_content_is_noticed() {
    let scripts = Scripts::new();
    let long = record(RecordType::Stdout, &[b'x'; 60_000], 0);
    let answer = [
        stdout(b"Content-Type: image/jpeg\r\n\r\n"),
        long.clone(),
        long[..30_000].to_vec(),
    ];
    let answer = answer.concat();
    let responder = Responder::start(move |mut peer| {
        peer.request()?;
        peer.write(&answer)
    });
    let pool = pool_on(&responder);
    let mut response = Call::get(&scripts, "").send(&pool).await.expect("a head");
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    let broken = loop {
        let place = || ReadInto::Pipe {
            end: writer.as_fd(),
            most: 1 << 20,
        };
        match poll_fn(|cx| response.poll_read(cx, place())).await {
            Ok(piece) => assert!(piece.is_some(), "no end of a body that is not complete"),
            Err(error) => break error,
        }
    };
    assert_eq!(broken.reason, Reason::PhpCrashed);
}

#[tokio::test]
async fn bytes_that_are_not_fastcgi_are_a_bad_response() {
    let garbage = answer_to("HTTP/1.1 200 OK\r\n\r\n").await.expect_err("garbage");
    assert!(
        matches!(
            garbage,
            PoolError::BadResponse {
                why: BadResponse::Record(RecordError::Version { found: b'H' })
            }
        ),
        "{garbage:?}"
    );
    assert_eq!(garbage.reason(), Reason::BadResponse);
    for bytes in [
        [1, 6, 0, 2, 0, 0, 0, 0].to_vec(),
        record(RecordType::Params, b"x", 0),
        record(RecordType::EndRequest, b"short", 0),
        vec![0xff; 100_000],
    ] {
        assert_eq!(
            answer_to(bytes).await.expect_err("garbage").reason(),
            Reason::BadResponse
        );
    }
}

#[tokio::test]
async fn an_improper_cgi_head_is_a_bad_response() {
    let bad = async |content: &[u8]| match answer_to([stdout(content), end()].concat()).await {
        Err(PoolError::BadResponse { why }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        bad(b"X: a\rb\n\n").await,
        BadResponse::Head(HeadError::ControlCharacter)
    );
    assert_eq!(
        bad(b"<br>Fatal error\n\n").await,
        BadResponse::Head(HeadError::NotAField)
    );
    assert_eq!(bad(b"Status: none\n\n").await, BadResponse::Head(HeadError::Status));
    assert_eq!(bad(b"A: b\n").await, BadResponse::NoHead);
    assert_eq!(bad(&vec![b'a'; 65_535]).await, BadResponse::NoHead);
    let (first, second) = (stdout(&vec![b'a'; 65_535]), stdout(b"aa"));
    let long = answer_to([first, second].concat()).await.expect_err("too long");
    assert!(
        matches!(
            long,
            PoolError::BadResponse {
                why: BadResponse::Head(HeadError::TooLong { limit: 65_536 })
            }
        ),
        "{long:?}"
    );
}

#[tokio::test]
async fn a_refused_request_is_a_bad_response() {
    let error = answer_to(end_with(2)).await.expect_err("overloaded");
    assert!(
        matches!(
            error,
            PoolError::BadResponse {
                why: BadResponse::Refused(2)
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_bad_response_costs_its_connection_and_no_more() {
    let scripts = Scripts::new();
    let responder = Responder::start(|mut peer| {
        while peer.request()?.is_some() {
            peer.write(if peer.number % 2 == 0 { b"garbage!" } else { b"" })?;
            peer.write(&hello())?;
        }
        Ok(())
    });
    let pool = pool_on(&responder);
    assert_eq!(
        Call::get(&scripts, "")
            .answer(&pool)
            .await
            .expect_err("garbage")
            .reason(),
        Reason::BadResponse
    );
    assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    assert_eq!(responder.accepted(), 2);
}

#[tokio::test]
async fn a_flood_of_stderr_is_cut_off() {
    let flood = [stderr(&[b'e'; 60_000]).repeat(200), hello()].concat();
    let answer = answer_to(flood).await.expect("an answer");
    assert_eq!(answer.text(), "hello");
    assert_eq!(answer.stderr.len(), 64 * 1024);
}

#[tokio::test]
async fn early_hints_are_handed_out_before_the_answer_is_there() {
    let scripts = Scripts::new();
    let hinted = Arc::new(AtomicBool::new(false));
    let (seen, heard) = mpsc::channel::<()>();
    let heard = std::sync::Mutex::new(heard);
    let responder = Responder::start(move |mut peer| {
        while peer.request()?.is_some() {
            peer.write(&stdout(
                b"Status: 103 Early Hints\r\nLink: </a.css>\r\n\r\nStatus: 100\n\n",
            ))?;
            heard
                .lock()
                .expect("one at a time")
                .recv()
                .expect("the hint arrives while we wait");
            peer.write(&[stdout(b"A: b\n\nhello"), end()].concat())?;
        }
        Ok(())
    });
    let pool = pool_on(&responder);
    let mut on_interim = |head: &CgiHead| {
        assert_eq!((head.status(), head.field("link")), (103, Some(&b"</a.css>"[..])));
        assert!(!hinted.swap(true, Ordering::SeqCst), "once");
        seen.send(()).expect("the responder waits");
    };
    let response = Call::get(&scripts, "")
        .send_with(&pool, &mut on_interim)
        .await
        .expect("a head");
    let answer = Answer::of(response).await.expect("an answer");
    assert_eq!(answer.text(), "hello");
    assert!(hinted.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_small_answer_is_complete_without_waiting() {
    let (scripts, responder) = (Scripts::new(), Responder::answering(hello()));
    let pool = pool_on(&responder);
    let mut response = Call::get(&scripts, "").send(&pool).await.expect("a head");
    assert_eq!(
        pool.status().load.busy,
        0,
        "the worker is free although the body is not read yet"
    );
    let body = response.try_piece();
    assert!(matches!(body, Poll::Ready(Ok(Some(Piece::Bytes(bytes)))) if bytes == "hello"));
    assert!(matches!(response.try_piece(), Poll::Ready(Ok(None))));
    assert_eq!(next_bytes(&mut response).await.expect("the end"), None);
}

#[tokio::test]
async fn bytes_after_the_end_close_the_connection() {
    let scripts = Scripts::new();
    for surplus in [hello(), b"x".to_vec(), end()] {
        let responder = Responder::answering([hello(), surplus].concat());
        let pool = pool_on(&responder);
        for round in 1..=3 {
            assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
            assert_eq!(responder.accepted(), round);
        }
    }
}

#[tokio::test]
async fn hanging_up_before_the_end_is_a_crash_wherever_it_happens() {
    let scripts = Scripts::new();
    for (sent, head) in [
        (Vec::new(), false),
        (stdout(b"Content-"), false),
        (stdout(b"A: b\n\nhalf an ans"), true),
        ([stdout(b"A: b\n\nall"), end()[..9].to_vec()].concat(), true),
    ] {
        let bytes = sent.clone();
        let responder = Responder::start(move |mut peer| {
            peer.request()?;
            peer.write(&bytes)
        });
        let pool = pool_on(&responder);
        let call = Call {
            idempotent: true,
            ..Call::get(&scripts, "")
        };
        let result = call.send(&pool).await;
        assert_eq!(result.is_ok(), head, "{sent:?}");
        let error = match result {
            Ok(response) => Answer::of(response).await.expect_err("it hangs up"),
            Err(error) => error,
        };
        assert_eq!(error.reason(), Reason::PhpCrashed, "{sent:?}");
        let repeated = u64::from(sent.is_empty());
        assert_eq!(responder.accepted() as u64, 1 + repeated, "once more if nothing came");
        let status = pool.status();
        assert_eq!(
            (status.load.busy, status.counts.crashes, status.counts.retries),
            (0, 1, repeated)
        );
    }
}

/// Answers one request per connection; reads a second one, then closes the connection without an answer.
fn once_a_connection() -> Responder {
    Responder::start(|mut peer| {
        peer.request()?;
        peer.write(&hello())?;
        peer.request()?;
        Ok(())
    })
}

#[tokio::test]
async fn an_idempotent_request_without_a_byte_of_answer_is_repeated() {
    let (scripts, responder) = (Scripts::new(), once_a_connection());
    let pool = pool_on(&responder);
    for _ in 0..4 {
        assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    }
    assert_eq!((pool.status().counts.retries, pool.status().counts.crashes), (3, 0));
}

#[tokio::test]
async fn a_request_that_may_have_been_carried_out_is_not_repeated() {
    let (scripts, responder) = (Scripts::new(), once_a_connection());
    let pool = pool_on(&responder);
    assert_eq!(Call::post(&scripts, "", b"x").text(&pool).await, "hello");
    assert_eq!(
        Call::post(&scripts, "", b"x")
            .answer(&pool)
            .await
            .expect_err("unclear")
            .reason(),
        Reason::PhpCrashed
    );
    assert_eq!(pool.status().counts.retries, 0);
}

#[tokio::test]
async fn nothing_is_repeated_once_a_byte_of_the_answer_came() {
    let scripts = Scripts::new();
    let responder = Responder::start(|mut peer| {
        peer.request()?;
        peer.write(&hello())?;
        peer.request()?;
        peer.write(&stdout(b"Con"))
    });
    let pool = pool_on(&responder);
    assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    assert_eq!(
        Call::get(&scripts, "").answer(&pool).await.expect_err("cut").reason(),
        Reason::PhpCrashed
    );
    assert_eq!(pool.status().counts.retries, 0);
}

#[tokio::test]
async fn a_connection_closed_while_idle_loses_no_request() {
    let scripts = Scripts::new();
    let (tell, closed) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let responder = Responder::start(move |mut peer| {
        peer.request()?;
        peer.write(&hello())?;
        drop(peer);
        tell.lock().expect("one at a time").send(()).expect("the test waits");
        Ok(())
    });
    let pool = pool_on(&responder);
    for round in 0..50 {
        // With a large body too, half of which must not go to an ended server.
        let body = vec![b'x'; if round % 2 == 0 { 1 } else { 500_000 }];
        let call = Call {
            spooled: round % 4 == 3,
            ..Call::post(&scripts, "", &body)
        };
        assert_eq!(call.text(&pool).await, "hello");
        closed.recv_timeout(PATIENCE).expect("the connection is closed");
    }
    assert_eq!(pool.status().counts.crashes, 0);
}

#[tokio::test]
async fn stdin_does_not_end_before_its_length() {
    let scripts = Scripts::new();
    let (tell, told) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let responder = Responder::start(move |mut peer| {
        let mut seen = Vec::new();
        while let Some((header, _)) = peer.record()? {
            seen.push((header.kind, header.content_length));
        }
        tell.lock().expect("one at a time").send(seen).expect("the test waits");
        Ok(())
    });
    let pool = pool_on(&responder);
    let (file, call) = (tempfile::tempfile().expect("a file"), Call::post(&scripts, "", b""));
    file.set_len(40_000).expect("a length");
    let (params, body) = (
        call.encoded(),
        Body::File {
            file: &file,
            length: 50_000,
        },
    );
    let request = Request {
        params: &params,
        body,
        idempotent: true,
        affinity: None,
        client: &|| haulier_http::Presence::Here,
        label: &|| "POST /".into(),
    };
    let error = pool
        .send(&request, &mut |_| {})
        .await
        .expect_err("the file is too short");
    assert_eq!(error.reason(), Reason::RequestBodyLost);
    let seen = told
        .recv_timeout(Duration::from_secs(20))
        .expect("the connection is closed");
    assert!(!seen.contains(&(RecordType::Stdin, 0)), "{seen:?}");
    assert_eq!(pool.status().load.busy, 0);
}

#[tokio::test]
async fn the_time_limit_runs_while_the_server_takes_nothing() {
    let scripts = Scripts::new();
    let responder = Responder::start(|peer| {
        std::thread::sleep(Duration::from_secs(60));
        drop(peer);
        Ok(())
    });
    let mut settings = external(vec![responder.server()], 2);
    settings.timeout = Duration::from_millis(300);
    let pool = Pool::start(settings).expect("the pool starts");
    let call = Call {
        spooled: true,
        ..Call::post(&scripts, "", &vec![b'x'; 3_000_000])
    };
    let error = call.answer(&pool).await.expect_err("no server answers");
    assert!(matches!(error, PoolError::Timeout { pid: None, .. }), "{error:?}");
    assert_eq!((pool.status().load.busy, pool.status().counts.timeouts), (0, 1));
}

#[tokio::test]
async fn dropping_a_request_half_way_closes_its_connection() {
    let scripts = Scripts::new();
    let responder = Responder::start(|mut peer| {
        while peer.request()?.is_some() {
            if peer.number > 0 {
                peer.write(&hello())?;
            }
        }
        Ok(())
    });
    let pool = pool_on(&responder);
    let call = Call::get(&scripts, "");
    tokio::select! {
        answer = call.answer(&pool) => panic!("the first connection never answers: {answer:?}"),
        () = wait_until_async("it is asked", || responder.accepted() == 1) => {}
    }
    wait_until_async("the worker is free", || pool.status().load.busy == 0).await;
    assert_eq!(pool.status().load.idle, 0);
    assert_eq!(call.text(&pool).await, "hello");
}
