//! Image services for tests: pictures made on the spot, a site that keeps them, and the servers caches need.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use haulier_image::{Format, Limits, Original};
use md5::{Digest, Md5};
use tempfile::TempDir;

use super::client::{Request, Response};
use super::haulier::Haulier;
use super::ports::free_port;
use super::{readable_directory, require};

/// Pixels with soft shapes in every channel: a JPEG of them is about as large as one of a photograph.
fn pixels(width: u16, height: u16, seed: u8) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(usize::from(width) * usize::from(height) * 3);
    for y in 0..u32::from(height) {
        for x in 0..u32::from(width) {
            let wave = ((x * x / 37 + y * y / 53 + x * y / 91) % 256) as u8;
            pixels.extend([wave, (x + y * 2) as u8 ^ seed, 255 - wave / 2]);
        }
    }
    pixels
}

/// A JPEG of this size; another seed is another picture.
pub(crate) fn jpeg(width: u16, height: u16, seed: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    jpeg_encoder::Encoder::new(&mut bytes, 85)
        .encode(
            &pixels(width, height, seed),
            width,
            height,
            jpeg_encoder::ColorType::Rgb,
        )
        .expect("a JPEG");
    bytes
}

/// A PNG of this size.
pub(crate) fn png(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width.into(), height.into());
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&pixels(width, height, 0)).expect("its pixels");
    writer.finish().expect("a PNG");
    bytes
}

/// A GIF of two pictures of one pixel, one of either colour.
pub(crate) fn animation() -> Vec<u8> {
    let mut bytes = b"GIF89a\x01\0\x01\0\x80\0\0\xff\0\0\0\0\xff".to_vec();
    // Ten hundredths of a second; clear, the colour, end: three bits each.
    for codes in [b"\x44\x01", b"\x4c\x01"] {
        bytes.extend(b"\x21\xf9\x04\0\x0a\0\0\0\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02");
        bytes.extend(codes);
        bytes.push(0);
    }
    bytes.push(b';');
    bytes
}

/// Format, width and height of an image, as its own header says.
#[track_caller]
pub(crate) fn seen(bytes: &[u8]) -> (Format, u32, u32) {
    let image = Original::read(bytes, &Limits::default()).expect("an image");
    (image.format, image.width, image.height)
}

pub(crate) fn md5(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Uploads a JPEG as zimg wants it and gives its id.
#[track_caller]
pub(crate) fn upload(haulier: &Haulier, image: &[u8]) -> String {
    let answer = haulier.ask(&Request::post("/upload", image).with("Content-Type", "image/jpeg"));
    let told: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(told["ret"], true, "{}", answer.text());
    let id = told["info"]["md5"].as_str().expect("an id").to_owned();
    assert_eq!(id, md5(image));
    id
}

/// What the answer says of itself, if it is an image that was sent whole.
#[track_caller]
pub(crate) fn picture(answer: Response) -> (Format, u32, u32) {
    let answer = answer.expect(200);
    let seen = seen(&answer.body);
    assert_eq!(answer.field("Content-Type"), Some(seen.0.media_type()));
    assert_eq!(answer.field("X-Content-Type-Options"), Some("nosniff"));
    seen
}

/// A site that keeps images, being put together.
#[derive(Debug)]
pub(crate) struct Images {
    directory: TempDir,
    store: String,
    settings: String,
    more: String,
}

impl Images {
    /// Its store is a directory of its own.
    pub(crate) fn new() -> Self {
        let directory = readable_directory();
        let store = directory.path().join("store").display().to_string();
        Self {
            directory,
            store,
            settings: String::new(),
            more: String::new(),
        }
    }

    /// As zimg.
    pub(crate) fn zimg() -> Self {
        Self::new().with("compat = \"zimg\"\nadmin = [\"127.0.0.1\"]")
    }

    /// With these lines in `[site.img.images]`.
    pub(crate) fn with(mut self, settings: &str) -> Self {
        self.settings.push_str(settings);
        self.settings.push('\n');
        self
    }

    /// With these lines behind that table.
    pub(crate) fn more(mut self, more: &str) -> Self {
        self.more.push_str(more);
        self.more.push('\n');
        self
    }

    /// With this store.
    pub(crate) fn store(mut self, store: &str) -> Self {
        store.clone_into(&mut self.store);
        self
    }

    /// A path beside the store.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The directory of the store.
    pub(crate) fn store_path(&self) -> PathBuf {
        PathBuf::from(&self.store)
    }

    #[track_caller]
    pub(crate) fn start(self) -> Haulier {
        let spool = self.path("spool");
        fs::create_dir_all(&spool).expect("the directory is ours");
        let config = self.path("haulier.toml");
        let text = format!(
            "[server]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nspool_dir = {spool:?}\n\
             [site.img.images]\nstore = {:?}\n{}\n{}",
            self.store, self.settings, self.more
        );
        fs::write(&config, text).expect("the directory is ours");
        let mut command = Haulier::command();
        command.arg("run").arg("-c").arg(&config);
        Haulier::start(command, vec![Box::new(self.directory)])
    }
}

/// A server as a child process; it ends with the value.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    pub(crate) port: u16,
    _directory: TempDir,
}

impl Service {
    pub(crate) fn memcached() -> Self {
        require("memcached", "/usr/bin/memcached");
        let port = free_port();
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-U", "0", "-u", "root", "-p", &port.to_string()]);
        Self::start(readable_directory(), port, &mut command)
    }

    pub(crate) fn redis() -> Self {
        require("redis-server", "/usr/bin/redis-server");
        let (directory, port) = (readable_directory(), free_port());
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
        command.arg("--dir").arg(directory.path());
        Self::start(directory, port, &mut command)
    }

    /// An S3 server with an empty bucket `bucket`, if there is one on this machine.
    pub(crate) fn s3() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin"));
        let places = std::env::split_paths(&path).chain(home);
        let program = places
            .map(|place| place.join("versitygw"))
            .find(|program| program.is_file())?;
        let (directory, port) = (readable_directory(), free_port());
        let data = directory.path().join("data");
        fs::create_dir_all(data.join("bucket")).expect("the directory is ours");
        let mut command = Command::new(program);
        command
            .env("ROOT_ACCESS_KEY", "access")
            .env("ROOT_SECRET_KEY", "secret-of-the-test")
            .args(["--port", &format!("127.0.0.1:{port}"), "posix"])
            .arg(&data);
        Some(Self::start(directory, port, &mut command))
    }

    /// The table that says how the bucket of [`Service::s3`] is reached.
    pub(crate) fn s3_table(&self) -> String {
        format!(
            "[store.bucket]\nendpoint = \"http://127.0.0.1:{}\"\nregion = \"us-east-1\"\nkey = \"access\"\n\
             secret = \"secret-of-the-test\"\n",
            self.port
        )
    }

    #[track_caller]
    fn start(directory: TempDir, port: u16, command: &mut Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut service = Self {
            child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")),
            port,
            _directory: directory,
        };
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = service.child.try_wait().expect("our child");
            assert!(ended.is_none() && Instant::now() < end, "{command:?} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        service
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
