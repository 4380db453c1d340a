//! An object store that fails in every way there is: a resized image is asked for each time. It is the store's failure
//! (502), soon, and never a short image; and when the store is well again, so are we.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, Request};
use crate::support::images::{Images, jpeg, picture, upload};
use crate::support::wait_until;

/// What the store does with requests for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    /// A little at a time.
    Slow,
    /// Always this status.
    Status(u16),
    /// Half of the object, then the end of the connection.
    Cut,
    /// One bit of the object is another one.
    Rotten,
    /// Bytes that are no HTTP.
    Garbage,
    /// The connection is reset at once.
    Reset,
    /// Nothing is ever said.
    Silent,
}

/// As much of S3 as one image needs.
struct Store {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    /// Requests for the object.
    asked: Arc<AtomicUsize>,
}

impl Store {
    fn start(object: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let store = Self {
            address: listener.local_addr().expect("an address"),
            mood: Arc::new(Mutex::new(Mood::Well)),
            asked: Arc::default(),
        };
        let (mood, asked) = (Arc::clone(&store.mood), Arc::clone(&store.asked));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (mood, asked, object) = (Arc::clone(&mood), Arc::clone(&asked), object.clone());
                thread::spawn(move || {
                    // The client may be gone: that is what is tested.
                    let _ = answer(stream, &object, &mood, &asked);
                });
            }
        });
        store
    }

    fn is(&self, mood: Mood) {
        *self.mood.lock().expect("nobody panics with it") = mood;
    }

    fn table(&self) -> String {
        format!(
            "[store.bucket]\nendpoint = \"http://{}\"\nregion = \"x\"\nkey = \"k\"\nsecret = \"s\"\n",
            self.address
        )
    }
}

fn answer(mut stream: TcpStream, object: &[u8], mood: &Mutex<Mood>, asked: &AtomicUsize) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut piece = [0; 64 * 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        head.extend_from_slice(&piece[..read]);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    if text.starts_with("PUT ") {
        let begin = text.find("\r\n\r\n").map_or(0, |end| end + 4);
        let mut received = head.len() - begin;
        while received < object.len() {
            received += stream.read(&mut piece)?.max(1);
        }
        return stream.write_all(b"HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    asked.fetch_add(1, Ordering::Relaxed);
    let whole = format!(
        "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nLast-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        object.len()
    );
    let body = if text.starts_with("HEAD ") { &[][..] } else { object };
    let mood = *mood.lock().expect("nobody panics with it");
    match mood {
        Mood::Well => {
            stream.write_all(whole.as_bytes())?;
            stream.write_all(body)
        }
        Mood::Slow => {
            stream.write_all(whole.as_bytes())?;
            for piece in body.chunks(body.len() / 8 + 1) {
                stream.write_all(piece)?;
                thread::sleep(Duration::from_millis(30));
            }
            Ok(())
        }
        Mood::Status(status) => {
            let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: 4\r\nConnection: close\r\n\r\n<no>");
            stream.write_all(answer.as_bytes())
        }
        Mood::Cut => {
            stream.write_all(whole.as_bytes())?;
            stream.write_all(&body[..body.len() / 2])
        }
        Mood::Rotten => {
            let mut rotten = body.to_vec();
            if let Some(byte) = rotten.get_mut(object.len() / 2) {
                *byte ^= 1;
            }
            stream.write_all(whole.as_bytes())?;
            stream.write_all(&rotten)
        }
        Mood::Garbage => stream.write_all(b"\0\x01SSH-2.0-nobody\r\n\r\n"),
        Mood::Reset => {
            // What was not read makes the end a reset.
            drop(stream);
            Ok(())
        }
        Mood::Silent => {
            thread::sleep(Duration::from_secs(600));
            Ok(())
        }
    }
}

#[test]
fn every_failure_of_the_object_store_is_told_as_its_own_and_none_outlives_it() {
    let image = jpeg(640, 480, 0);
    let store = Store::start(image.clone());
    let haulier = Images::new()
        .store("s3://bucket/originals")
        .with("cache = [\"memory:8MiB\"]")
        .more(&store.table())
        .start();
    let id = upload(&haulier, &image);
    assert_eq!(picture(haulier.get(&format!("/{id}?w=100"))).1, 100);
    let bad = [
        Mood::Status(500),
        Mood::Status(503),
        Mood::Status(403),
        Mood::Cut,
        Mood::Garbage,
        Mood::Reset,
    ];
    for (number, mood) in bad.into_iter().enumerate() {
        let width = 200 + number as u32;
        let target = format!("/{id}?w={width}");
        store.is(mood);
        let before = store.asked.load(Ordering::Relaxed);
        let answer = haulier.get(&target);
        assert_eq!(answer.status(), 502, "{mood:?}: {}", answer.text());
        let tries = store.asked.load(Ordering::Relaxed) - before;
        assert!((1..=3).contains(&tries), "{mood:?}: {tries} tries");
        // What is cached goes on without the store.
        haulier.get(&format!("/{id}?w=100")).expect(200);
        store.is(Mood::Well);
        assert_eq!(picture(haulier.get(&target)).1, width, "after {mood:?}");
    }
    store.is(Mood::Slow);
    assert_eq!(picture(haulier.get(&format!("/{id}?w=300"))).1, 300);
    store.is(Mood::Silent);
    // Within the patience of the client, which is shorter than the silence.
    haulier.get(&format!("/{id}?w=301")).expect(502);
    let series = "haulier_errors_total{site=\"img\",reason=\"store_failed\"}";
    wait_until("the failures to be counted", || {
        haulier.metrics().count(series) == bad.len() as u64 + 1
    });
}

#[test]
fn a_long_original_that_breaks_off_is_never_a_whole_answer() {
    let image = jpeg(4000, 3000, 0);
    let store = Store::start(image.clone());
    let haulier = Images::new()
        .store("s3://bucket/originals")
        .more(&store.table())
        .start();
    let id = upload(&haulier, &image);
    let target = format!("/{id}");
    assert!(haulier.get(&target).expect(200).body == image);
    store.is(Mood::Cut);
    let answer = Connection::open(haulier.address()).try_ask(&Request::get(&target));
    // The head was sent when nobody knew: then the body ends before its length, and the client sees that.
    if let Ok(answer) = answer {
        assert_eq!(answer.status(), 502, "a short body is not an answer");
    }
    store.is(Mood::Well);
    assert!(haulier.get(&target).expect(200).body == image);
}

#[test]
fn an_object_that_is_not_what_its_id_says_is_never_a_whole_answer() {
    for image in [jpeg(640, 480, 0), jpeg(4000, 3000, 0)] {
        let store = Store::start(image.clone());
        let haulier = Images::new()
            .store("s3://bucket/originals")
            .with("cache = [\"memory:8MiB\"]")
            .more(&store.table())
            .start();
        let id = upload(&haulier, &image);
        store.is(Mood::Rotten);
        haulier.get(&format!("/{id}?w=100")).expect(502);
        let target = format!("/{id}");
        match Connection::open(haulier.address()).try_ask(&Request::get(&target)) {
            Ok(answer) => assert_eq!(answer.status(), 502),
            // It is sent as it comes: what was not known at its head is seen in that it breaks off.
            Err(_) => assert!(image.len() > 1 << 20, "a short one is compared first"),
        }
        haulier.wait_for_line("store_damaged: an original does not match its id");
        store.is(Mood::Well);
        assert!(haulier.get(&target).expect(200).body == image);
        assert_eq!(picture(haulier.get(&format!("/{id}?w=100"))).1, 100);
    }
}
