//! `Server-Timing` for sites in development: times in the queue and in PHP, or the origin of an image and its rendering
//! times.
//!
//! The time in PHP is unknown until the body is complete. If the client accepts trailers (RFC 9110 §6.5), it follows
//! the body.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use haulier_http::{Body, BodySource, BrokenBody, ImageResult, ImageTimes, Piece, Response, Trace};
use haulier_proto::field::{Fields, tokens};
use haulier_proto::head::{Method, RequestHead, Version};

use crate::site::Site;

const NAME: &str = "Server-Timing";

/// Adds the times of a PHP response or of an image.
pub(super) fn on_response(site: &Site, head: &RequestHead, response: &mut Response) {
    if !site.settings.development {
        return;
    }
    if let Some(told) = of_image(&response.trace) {
        response.head.fields_mut().append(NAME, told);
        return;
    }
    let Some(php) = &response.trace.backend else { return };
    let times = PhpTimes {
        queued: php.queued,
        busy: Arc::clone(&php.busy),
    };
    response.head.fields_mut().append(NAME, times.told());
    if times.is_over() || !takes_trailers(head) {
        return;
    }
    response.body = match std::mem::take(&mut response.body) {
        Body::Stream(stream) if stream.length().is_none() => {
            response.head.fields_mut().append("Trailer", NAME);
            Body::Stream(Box::new(Timed { stream, times }))
        }
        body => body,
    };
}

/// The cache an image came from, and the duration of each step.
fn of_image(trace: &Trace) -> Option<String> {
    let cache = match trace.image? {
        ImageResult::Error => return None,
        ImageResult::Made | ImageResult::Original => "miss",
        cache => cache.as_str(),
    };
    let times = trace.image_times.as_deref().copied().unwrap_or_default();
    let ImageTimes {
        cache: asked,
        fetch,
        queue,
        decode,
        resize,
        encode,
    } = times;
    let mut value = format!("cache;desc={cache}");
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    if let Some(time) = asked {
        let _ = write!(value, ";dur={:.1}", milliseconds(time));
    }
    let steps = [
        ("fetch", fetch),
        ("queue", queue),
        ("decode", decode),
        ("resize", resize),
        ("encode", encode),
    ];
    for (step, time) in steps {
        if let Some(time) = time {
            let _ = write!(value, ", {step};dur={:.1}", milliseconds(time));
        }
    }
    Some(value)
}

/// True if the client accepts trailers (RFC 9110 §10.1.4) and the response can have them.
fn takes_trailers(head: &RequestHead) -> bool {
    let mut wishes = head.fields().get_all("TE").flat_map(tokens);
    let is_wanted = wishes.any(|wish| wish.eq_ignore_ascii_case(b"trailers"));
    is_wanted && head.version() != Version::Http10 && head.method() != Method::Head
}

/// Time of a request in the queue and in PHP.
#[derive(Debug)]
struct PhpTimes {
    queued: Duration,
    /// Microseconds; 0 until the worker is free.
    busy: Arc<AtomicU64>,
}

impl PhpTimes {
    fn is_over(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    fn told(&self) -> String {
        let mut value = format!("queue;dur={:.1}", self.queued.as_secs_f64() * 1000.0);
        let busy = self.busy.load(Ordering::Relaxed);
        if busy > 0 {
            let _ = write!(value, ", php;dur={:.1}", busy as f64 / 1000.0);
        }
        value
    }
}

/// A body with the times in its trailers.
#[derive(Debug)]
struct Timed {
    stream: Box<dyn BodySource>,
    times: PhpTimes,
}

impl BodySource for Timed {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
        self.stream.poll_piece(context)
    }

    fn length(&self) -> Option<u64> {
        self.stream.length()
    }

    fn is_endless(&self) -> bool {
        self.stream.is_endless()
    }

    fn trailers(&self) -> Option<Fields> {
        let mut fields = self.stream.trailers().unwrap_or_default();
        fields.append(NAME, self.times.told());
        Some(fields)
    }
}

#[cfg(test)]
mod tests {
    use haulier_proto::head::HeadLimits;

    use super::*;
    use crate::files::fixture::Root;
    use haulier_http::{BackendTrace, Handler, Parts};

    fn answered_by_php(busy: u64) -> Response {
        let mut response = Response::new(200, Handler::Php);
        response.trace.backend = Some(Box::new(BackendTrace {
            queued: Duration::from_micros(200),
            busy: Arc::new(AtomicU64::new(busy)),
            ..BackendTrace::default()
        }));
        response
    }

    fn asked(method: &str, version: &str, fields: &str) -> RequestHead {
        let mut input = format!("{method} / {version}\r\nHost: a\r\n{fields}\r\n").into_bytes();
        let limits = HeadLimits {
            request_line: 1000,
            header: 1000,
            fields: 10,
        };
        let head = RequestHead::parse(&mut input, &limits, &mut Fields::new());
        head.expect("a request").expect("all of it")
    }

    #[test]
    fn only_a_site_in_development_reports_times() {
        for (development, expected) in [(true, Some(&b"queue;dur=0.2, php;dur=38.0"[..])), (false, None)] {
            let site = Root::new().with(|settings| settings.development = development).site();
            let mut response = answered_by_php(38_000);
            on_response(&site, &asked("GET", "HTTP/1.1", ""), &mut response);
            assert_eq!(response.head.fields().get("Server-Timing"), expected);
        }
    }

    #[test]
    fn an_image_reports_its_cache_and_its_steps() {
        let micros = |number| Some(Duration::from_micros(number));
        let made = ImageTimes {
            cache: micros(100),
            fetch: micros(1200),
            queue: micros(0),
            decode: micros(9000),
            resize: micros(2040),
            encode: micros(12_345),
        };
        let found = ImageTimes {
            cache: micros(700),
            ..ImageTimes::default()
        };
        let read = ImageTimes {
            fetch: micros(700),
            ..ImageTimes::default()
        };
        for (result, times, expected) in [
            (ImageResult::Memory, None, Some("cache;desc=memory")),
            (ImageResult::Redis, Some(found), Some("cache;desc=redis;dur=0.7")),
            (
                ImageResult::Original,
                Some(read),
                Some("cache;desc=miss, fetch;dur=0.7"),
            ),
            (
                ImageResult::Made,
                Some(made),
                Some(
                    "cache;desc=miss;dur=0.1, fetch;dur=1.2, queue;dur=0.0, decode;dur=9.0, resize;dur=2.0, \
                     encode;dur=12.3",
                ),
            ),
            (ImageResult::Error, None, None),
        ] {
            for development in [true, false] {
                let site = Root::new().with(|settings| settings.development = development).site();
                let mut response = Response::new(200, Handler::Image);
                response.trace.image = Some(result);
                response.trace.image_times = times.map(Box::new);
                on_response(&site, &asked("GET", "HTTP/1.1", ""), &mut response);
                let told = response.head.fields().get(NAME);
                let expected = expected.filter(|_| development);
                assert_eq!(told, expected.map(str::as_bytes), "{result:?}");
            }
        }
    }

    /// A body of no known length.
    #[derive(Debug)]
    struct Endless(Parts);

    impl BodySource for Endless {
        fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
            self.0.poll_piece(context)
        }

        fn length(&self) -> Option<u64> {
            None
        }
    }

    #[test]
    fn the_time_of_an_unfinished_body_is_in_its_trailers() {
        let site = Root::new().with(|settings| settings.development = true).site();
        for (method, version, fields, is_told) in [
            ("GET", "HTTP/1.1", "TE: gzip, Trailers\r\n", true),
            ("POST", "HTTP/1.1", "TE: trailers\r\n", true),
            ("GET", "HTTP/1.1", "TE: gzip\r\n", false),
            ("GET", "HTTP/1.1", "", false),
            ("GET", "HTTP/1.0", "TE: trailers\r\n", false),
            ("HEAD", "HTTP/1.1", "TE: trailers\r\n", false),
        ] {
            let mut response = answered_by_php(0);
            response.body = Body::Stream(Box::new(Endless(Parts::default())));
            on_response(&site, &asked(method, version, fields), &mut response);
            let Body::Stream(body) = &response.body else {
                panic!("it was a stream")
            };
            let said = (response.head.fields().get("Trailer"), body.trailers());
            if let Some(php) = &response.trace.backend {
                php.busy.store(1500, Ordering::Relaxed);
            }
            let behind = body.trailers();
            let value = behind.as_ref().and_then(|fields| fields.get(NAME));
            let expected = is_told.then_some(&b"queue;dur=0.2, php;dur=1.5"[..]);
            assert_eq!(value, expected, "{method} {version} {fields}");
            assert_eq!(said.0.is_some(), is_told, "{said:?}");
        }
    }

    #[test]
    fn a_body_of_known_length_has_no_trailers() {
        let site = Root::new().with(|settings| settings.development = true).site();
        let mut response = answered_by_php(0);
        response.body = Body::Stream(Box::new(Parts::default()));
        on_response(&site, &asked("GET", "HTTP/1.1", "TE: trailers\r\n"), &mut response);
        assert_eq!(response.head.fields().get("Trailer"), None);
    }
}
