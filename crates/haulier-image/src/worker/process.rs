//! A worker process: enters the sandbox, then carries out orders until the socket is closed.

use std::cell::RefCell;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use crate::error::ImageError;
use crate::original::Original;
use crate::pipeline;
use crate::worker::mapping::Mapping;
use crate::worker::message::{Made, Report, WorkerOrder};
use crate::worker::sandbox::{self, Resident};
use crate::worker::socket;

/// The first argument that makes haulier a worker: the binary calls [`main`] before anything else then.
pub const SUBCOMMAND: &str = "image-worker";

/// Most memory that a worker takes without a request, bytes; enough for most images.
const UNASKED: u64 = 16 << 20;

thread_local! {
    /// Source location of the last panic.
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a worker. Standard input is the socket to the server, standard output the result file.
#[must_use]
pub fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE, // stderr is closed
    }
}

/// Added to the OOM score of a worker, so that the kernel kills it before the server.
const OOM_SCORE_MORE: i32 = 500;

/// Makes the kernel kill this worker first when memory runs out. A failure is ignored.
fn raise_oom_score() {
    const SCORE: &str = "/proc/self/oom_score_adj";
    let inherited = std::fs::read_to_string(SCORE).unwrap_or_default();
    let inherited: i32 = inherited.trim().parse().unwrap_or_default();
    let _ = std::fs::write(SCORE, (inherited + OOM_SCORE_MORE).min(1000).to_string());
}

fn work() -> io::Result<()> {
    raise_oom_score();
    // Panic messages go to the server as errors, not to stderr.
    panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        PANIC_PLACE.set(place);
    }));
    let orders = io::stdin();
    let mut results = std::fs::File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let resident = Resident::open()?;
    let without = sandbox::enter()?;
    socket::send(&orders, &Report::Ready { without }, None)?;
    while let Some((order, original)) = socket::receive_with::<WorkerOrder>(&orders)? {
        let original = original.ok_or(io::ErrorKind::InvalidData)?;
        let report = answer(&orders, order, &original, &mut results, &resident);
        drop(original);
        socket::send(&orders, &report, None)?;
    }
    Ok(())
}

fn answer(
    orders: &io::Stdin,
    order: WorkerOrder,
    original: &OwnedFd,
    results: &mut std::fs::File,
    resident: &Resident,
) -> Report {
    let done = panic::catch_unwind(AssertUnwindSafe(|| {
        carry_out(orders, order, original, results, resident)
    }));
    match done {
        Ok(Ok(report)) => report,
        Ok(Err(error)) => Report::Failed(error.into()),
        Err(cause) => Report::Failed(ImageError::Crashed(message_of(&*cause)).into()),
    }
}

fn message_of(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().copied();
    let text = text.or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    let text: String = text.unwrap_or("a decoder panicked").chars().take(200).collect();
    format!("{text}, {}", PANIC_PLACE.take())
}

fn carry_out(
    orders: &io::Stdin,
    order: WorkerOrder,
    original: &OwnedFd,
    results: &mut std::fs::File,
    resident: &Resident,
) -> Result<Report, ImageError> {
    let mapping = Mapping::of(original)?;
    match order {
        WorkerOrder::Go => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        WorkerOrder::Probe { limits } => Ok(Report::Probed(Original::read(mapping.bytes(), &limits)?)),
        WorkerOrder::Render { transform, limits } => {
            let rendered = pipeline::render_with(mapping.bytes(), &transform, &limits, &mut |memory| {
                ask_for(orders, memory)
            })?;
            drop(mapping);
            results.set_len(0)?;
            results.rewind()?;
            results.write_all(&rendered.bytes)?;
            let made = Made {
                format: rendered.format,
                width: rendered.width,
                height: rendered.height,
                frames: rendered.frames,
                length: rendered.bytes.len() as u64,
                times: rendered.times.micros(),
                resident: 0,
            };
            drop(rendered);
            Ok(Report::Rendered(Made {
                resident: resident.read()?,
                ..made
            }))
        }
    }
}

/// Waits until the server grants this memory.
fn ask_for(orders: &io::Stdin, memory: u64) -> Result<(), ImageError> {
    if memory <= UNASKED {
        return Ok(());
    }
    socket::send(orders, &Report::Need { memory }, None)?;
    match socket::receive(orders)? {
        Some(WorkerOrder::Go) => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}
