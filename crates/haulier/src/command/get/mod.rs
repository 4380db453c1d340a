//! `haulier get`: fetches files from servers, continues and verifies them.

mod environment;
mod narrator;

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use haulier_client::client::{Client, ClientSettings};
use haulier_client::connect::{ConnectSettings, Versions};
use haulier_client::credentials::basic;
use haulier_client::download::error::{Class, DownloadError};
use haulier_client::download::pace::Pace;
use haulier_client::download::{Destination, Download, Options};
use haulier_client::exchange::Timeouts;
use haulier_client::request::Request;
use haulier_client::retry::RetryPolicy;
use haulier_client::url::Url;
use haulier_proto::field::Fields;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};

use self::narrator::{Narrator, Screen};
use crate::cli::Console;
use crate::cli::get::{GetArgs, HttpVersion};
use crate::outcome::CommandOutcome;

/// The largest checksum file, bytes.
const MOST_LIST: usize = 16 * 1024 * 1024;

pub(super) fn run(arguments: &GetArgs, console: &Console) -> CommandOutcome {
    if let Err(wrong) = check(arguments) {
        eprintln!("error: {wrong}");
        return CommandOutcome::Misused;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return CommandOutcome::Failed;
        }
    };
    let screen = Rc::new(Screen::new(arguments.json, arguments.is_to_stdout(), console));
    let local = LocalSet::new();
    let outcome = local.block_on(&runtime, interruptible(arguments, &screen));
    // Downloads under way end here, and leave their `.part` files in order.
    drop(local);
    runtime.shutdown_background();
    screen.leave();
    outcome
}

/// The rules between options that the grammar cannot express.
fn check(arguments: &GetArgs) -> Result<(), &'static str> {
    let several = arguments.urls.len() > 1;
    if several && arguments.output.is_some() {
        return Err("-o names one file, and there are several addresses; -O names a directory");
    }
    if several && (arguments.sha256.is_some() || !arguments.checksum.is_empty()) {
        return Err("one checksum cannot fit several files; --checksums takes a list of them");
    }
    if arguments.is_to_stdout() && arguments.checksums.is_some() {
        return Err("standard output has no name to look up in a checksum file");
    }
    Ok(())
}

async fn interruptible(arguments: &GetArgs, screen: &Rc<Screen>) -> CommandOutcome {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
        return CommandOutcome::Failed;
    };
    let longest = async {
        match arguments.max_time {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        outcome = all(arguments, screen) => outcome,
        _ = interrupt.recv() => CommandOutcome::Interrupted,
        _ = terminate.recv() => CommandOutcome::Interrupted,
        () = longest => {
            screen.problem("--max-time has passed");
            CommandOutcome::FailedWith(code(Class::Timeout))
        }
    }
}

async fn all(arguments: &GetArgs, screen: &Rc<Screen>) -> CommandOutcome {
    let client = match client(arguments) {
        Ok(client) => Rc::new(client),
        Err(problem) => {
            screen.problem(&problem);
            return CommandOutcome::Failed;
        }
    };
    let options = match options(arguments, &client).await {
        Ok(options) => options,
        Err((problem, class)) => {
            screen.problem(&problem);
            return CommandOutcome::FailedWith(code(class));
        }
    };
    let pace = arguments.limit.map(|limit| Rc::new(Pace::new(limit)));
    let places = Rc::new(Semaphore::new(usize::from(arguments.jobs)));
    let worst = Rc::new(Cell::new(CommandOutcome::Done));
    let mut downloads = JoinSet::new();
    for url in &arguments.urls {
        let narrator = Rc::new(Narrator::new(Rc::clone(screen), url.clone()));
        let download = Download {
            client: Rc::clone(&client),
            url: url.clone(),
            options: options.clone(),
            pace: pace.clone(),
            observer: Rc::clone(&narrator) as _,
        };
        let (places, worst) = (Rc::clone(&places), Rc::clone(&worst));
        downloads.spawn_local(async move {
            let _place = places.acquire().await;
            let begun = Instant::now();
            match download.run().await {
                Ok(finished) => narrator.finished(&finished, begun.elapsed()),
                Err(error) => {
                    narrator.failed(&error);
                    worst.set(worse(worst.get(), &error));
                }
            }
        });
    }
    while let Some(ended) = downloads.join_next().await {
        if let Err(panicked) = ended {
            std::panic::resume_unwind(panicked.into_panic());
        }
    }
    worst.get()
}

/// The outcome after one more failure: several of one class have its exit code, several classes 1.
fn worse(before: CommandOutcome, error: &DownloadError) -> CommandOutcome {
    let this = CommandOutcome::FailedWith(code(error.class()));
    if before == CommandOutcome::Done || before == this {
        this
    } else {
        CommandOutcome::Failed
    }
}

/// The exit code of a class of failures.
fn code(class: Class) -> u8 {
    match class {
        Class::Connect => 3,
        Class::Timeout => 4,
        Class::Broken => 5,
        Class::Refused => 6,
        Class::ServerFault => 7,
        Class::Protocol => 8,
        Class::Checksum => 9,
        Class::File => 10,
        Class::Tls => 11,
        Class::Redirect => 12,
    }
}

fn client(arguments: &GetArgs) -> Result<Client, String> {
    let settings = ClientSettings {
        connect: ConnectSettings {
            versions: match arguments.http {
                None => Versions::Best,
                Some(HttpVersion::One) => Versions::Http1,
                Some(HttpVersion::Two) => Versions::Http2,
            },
            timeout: arguments.connect_timeout,
            http_proxy: environment::proxy(arguments.proxy.as_ref(), "http_proxy")?,
            https_proxy: environment::proxy(arguments.proxy.as_ref(), "https_proxy")?,
            no_proxy: environment::no_proxy(),
            public_only: arguments.public_only,
        },
        timeouts: Timeouts {
            first_byte: arguments.answer_timeout,
            stall: arguments.stall_timeout,
        },
        authorization: authorization(arguments),
        netrc: environment::netrc(arguments.netrc.as_deref(), arguments.no_netrc)?,
    };
    Client::new(settings).map_err(|error| format!("no certificate store: {error}"))
}

fn authorization(arguments: &GetArgs) -> Option<String> {
    let user = arguments.user.as_deref().map(|user| {
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        basic(user, password)
    });
    user.or_else(|| arguments.bearer.as_deref().map(haulier_client::credentials::bearer))
}

async fn options(arguments: &GetArgs, client: &Client) -> Result<Options, (String, Class)> {
    let destination = match (&arguments.output, &arguments.directory) {
        (Some(output), _) if output.as_os_str() == "-" => Destination::Stdout,
        (Some(output), _) => Destination::Named(output.clone()),
        (None, directory) => Destination::Directory(directory.clone().unwrap_or_else(|| PathBuf::from("."))),
    };
    let list = match &arguments.checksums {
        Some(place) => Some(list(place, &arguments.urls, client).await?),
        None => None,
    };
    let mut fields = Fields::new();
    for (name, value) in &arguments.fields {
        fields.append(name, value);
    }
    Ok(Options {
        destination,
        connections: usize::from(arguments.connections),
        resume: !arguments.no_resume,
        retry: RetryPolicy {
            most: arguments.retry,
            ..RetryPolicy::default()
        },
        expected: arguments.sha256.iter().chain(&arguments.checksum).cloned().collect(),
        list,
        require_digest: arguments.require_digest,
        compressed: arguments.compressed,
        update: arguments.update,
        sync: arguments.sync,
        fields,
    })
}

/// The text of a checksum file, local or on a server. Credentials are sent only to servers of the files.
async fn list(place: &str, files: &[Url], client: &Client) -> Result<String, (String, Class)> {
    let is_address = place.contains("://") || place.starts_with("unix:");
    if !is_address {
        return fs::read_to_string(place).map_err(|error| (format!("cannot read {place}: {error}"), Class::File));
    }
    let failed = |error: DownloadError| (format!("{place}: {}", narrator::chain(&error)), error.class());
    let url = Url::parse(place).map_err(|error| (format!("{place}: {error}"), Class::Refused))?;
    let is_trusted = files.iter().any(|file| file.origin() == url.origin());
    let request = Request::get(url).with("Accept-Encoding", "identity");
    let fetched = client.fetch_as(request, is_trusted).await;
    let (mut exchange, _) = fetched.map_err(|error| failed(error.into()))?;
    if exchange.head().status() != 200 {
        let status = exchange.head().status();
        return Err((format!("{place}: the server answered {status}"), Class::Refused));
    }
    let mut text = Vec::new();
    while exchange
        .read(&mut text, 64 * 1024)
        .await
        .map_err(|error| failed(error.into()))?
        > 0
    {
        if text.len() > MOST_LIST {
            return Err((format!("{place}: too large for a checksum file"), Class::Refused));
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

impl GetArgs {
    fn is_to_stdout(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.as_os_str() == "-")
    }
}
