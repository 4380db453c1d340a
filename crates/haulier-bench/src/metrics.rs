//! PHP workers of a server, from a haulier admin address (`/metrics`) or the status page of php-fpm (`?json`).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use haulier_proto::response_head::{ResponseHead, ResponseLimits};

use haulier_client::names;
use haulier_client::url::{Scheme, Url};

/// Longest wait for a page: a later one would miss its slice.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest page, bytes.
const MOST: u64 = 4 * 1024 * 1024;

/// Figures of a page; `None` if the page lacks them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PhpWorkers {
    /// Time that all workers spent on requests since the start, s.
    pub busy_seconds: Option<f64>,
    /// Busy now.
    pub busy: Option<u32>,
    /// Requests waiting for a worker now.
    pub queued: Option<u32>,
    /// Memory of the workers, bytes.
    pub memory_bytes: Option<u64>,
}

/// Fetches the page.
///
/// # Errors
/// No connection, no good answer, or a page of another kind.
pub fn sample(url: &Url) -> io::Result<PhpWorkers> {
    workers(&page(url)?)
}

/// The version on the page; haulier's has one.
///
/// # Errors
/// As for [`sample`].
pub fn version(url: &Url) -> io::Result<Option<String>> {
    let page = page(url)?;
    workers(&page)?;
    let mut info = page.lines().filter_map(|line| line.strip_prefix("haulier_build_info{"));
    Ok(info.find_map(|labels| Some(labels.split_once("version=\"")?.1.split_once('"')?.0.to_owned())))
}

fn page(url: &Url) -> io::Result<String> {
    let is_bare = url.target() == "/";
    fetch(url, if is_bare { "/metrics" } else { url.target() })
}

fn workers(page: &str) -> io::Result<PhpWorkers> {
    let found = if page.trim_start().starts_with('{') {
        fpm(page)
    } else {
        haulier(page)
    };
    found.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "neither haulier's metrics nor php-fpm's status as JSON",
        )
    })
}

/// Sends one HTTP/1.0 request: the body then ends with the connection or by its length.
fn fetch(url: &Url, target: &str) -> io::Result<String> {
    let request = format!(
        "GET {target} HTTP/1.0\r\nHost: {}\r\nUser-Agent: haulier/{}\r\n\r\n",
        url.origin().host_field(),
        env!("CARGO_PKG_VERSION")
    );
    let answer = match (&url.origin().scheme, url.origin().socket()) {
        (_, Some(socket)) => {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream, &request)?
        }
        (Scheme::Https, None) => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "metrics are fetched by plain http only",
            ));
        }
        (_, None) => {
            let addresses = names::look_up(&url.origin().authority())?;
            let mut tried = addresses
                .iter()
                .map(|address| TcpStream::connect_timeout(address, TIMEOUT));
            let first = tried.next().ok_or(io::ErrorKind::NotFound)?;
            let stream = first.or_else(|error| tried.find_map(Result::ok).ok_or(error))?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange(stream, &request)?
        }
    };
    body_of(answer)
}

fn exchange(mut stream: impl Read + Write, request: &str) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer)?;
    Ok(answer)
}

fn body_of(mut answer: Vec<u8>) -> io::Result<String> {
    let head = ResponseHead::parse(&mut answer, &ResponseLimits::default()).map_err(io::Error::other)?;
    let status = head.ok_or(io::ErrorKind::UnexpectedEof)?.status();
    if status != 200 {
        return Err(io::Error::other(format!("it answered {status}")));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Reads haulier's page: sums over all pools.
fn haulier(page: &str) -> Option<PhpWorkers> {
    let sum = |name: &str, label: &str| -> Option<f64> {
        let values: Vec<f64> = page
            .lines()
            .filter_map(|line| metric_value(line, name, label))
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    };
    let busy_seconds = sum("haulier_php_busy_seconds_total", "")?;
    Some(PhpWorkers {
        busy_seconds: Some(busy_seconds),
        busy: sum("haulier_php_workers", "state=\"busy\"").map(|count| count as u32),
        queued: sum("haulier_php_queue_length", "").map(|count| count as u32),
        memory_bytes: sum("haulier_php_memory_bytes", "").map(|bytes| bytes as u64),
    })
}

/// Value of a line of Prometheus text, if it has this metric and label.
fn metric_value(line: &str, name: &str, label: &str) -> Option<f64> {
    let rest = line.strip_prefix(name)?;
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => rest.split_once('}')?,
        None => ("", rest),
    };
    let value = value.strip_prefix(' ').filter(|_| labels.contains(label))?;
    value.split(' ').next()?.parse().ok()
}

fn fpm(page: &str) -> Option<PhpWorkers> {
    let status: serde_json::Value = serde_json::from_str(page).ok()?;
    let number = |name: &str| status.get(name)?.as_u64().and_then(|number| u32::try_from(number).ok());
    Some(PhpWorkers {
        busy_seconds: None,
        busy: Some(number("active processes")?),
        queued: number("listen queue"),
        memory_bytes: None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const METRICS: &str = "\
# TYPE haulier_php_busy_seconds counter
haulier_php_busy_seconds_total{pool=\"php\"} 1.5
haulier_php_busy_seconds_total{pool=\"other\"} 0.25
haulier_php_workers{pool=\"php\",state=\"busy\"} 3
haulier_php_workers{pool=\"php\",state=\"idle\"} 5
haulier_php_workers_max{pool=\"php\"} 8
haulier_php_queue_length{pool=\"php\"} 2
";

    fn answering(answer: String) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = Url::parse(&format!("http://{}", listener.local_addr().expect("bound"))).expect("an address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer.as_bytes());
        });
        url
    }

    #[test]
    fn pools_of_haulier_are_added_up() {
        let url = answering(format!("HTTP/1.0 200 OK\r\n\r\n{METRICS}"));
        let expected = PhpWorkers {
            busy_seconds: Some(1.75),
            busy: Some(3),
            queued: Some(2),
            memory_bytes: None,
        };
        assert_eq!(sample(&url).expect("metrics"), expected);
    }

    #[test]
    fn the_version_is_read_where_the_page_names_it() {
        let info = "haulier_build_info{version=\"0.1.0\",target=\"x\"} 1";
        let named = answering(format!("HTTP/1.0 200 OK\r\n\r\n{METRICS}{info}\n"));
        assert_eq!(version(&named).expect("metrics").as_deref(), Some("0.1.0"));
        let silent = answering(format!("HTTP/1.0 200 OK\r\n\r\n{METRICS}"));
        assert_eq!(version(&silent).expect("metrics"), None);
    }

    #[test]
    fn the_status_of_fpm_is_read() {
        let page = r#"{"pool":"www","active processes":4,"listen queue":7,"total processes":8}"#;
        let url = answering(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{page}"
        ));
        let found = sample(&url).expect("a status");
        assert_eq!((found.busy, found.queued, found.busy_seconds), (Some(4), Some(7), None));
    }

    #[test]
    fn another_page_is_no_figure() {
        assert!(sample(&answering("HTTP/1.0 200 OK\r\n\r\n<html>".to_owned())).is_err());
        assert!(sample(&answering("HTTP/1.0 404 Not Found\r\n\r\n".to_owned())).is_err());
        assert!(sample(&answering(String::new())).is_err());
    }
}
