//! A file to standard output, in order, by one connection.
//!
//! A broken connection is continued with a range bound to the same state. Without that the download fails, because
//! bytes that were written cannot be taken back.

use std::io::{self, Write};
use std::path::PathBuf;

use sha2::Digest;

use super::error::{DownloadError, Remedy};
use super::event::{DownloadEvent, Finished};
use super::plan::{DownloadPlan, Requested, decide};
use super::segment::{bound, check_length};
use super::validators::Validators;
use super::verify::{Algorithm, Checksum};
use super::{Download, worthwhile};
use crate::decode::Decoder;
use crate::exchange::Exchange;
use crate::request::Request;
use crate::retry;

const READ: usize = 256 * 1024;

/// The bytes written so far.
#[derive(Default)]
struct Sent {
    /// Bytes of the representation.
    at: u64,
    validators: Validators,
    total: Option<u64>,
    sha256: sha2::Sha256,
    /// A coded body cannot be continued.
    is_coded: bool,
}

pub(super) async fn run(download: &Download) -> Result<Finished, DownloadError> {
    let (mut sent, mut tries, mut best) = (Sent::default(), 0, 0);
    loop {
        let error = match attempt(download, &mut sent).await {
            Ok(()) => return conclude(download, sent),
            Err(error) => error,
        };
        if sent.at >= best + worthwhile(sent.total) {
            (best, tries) = (sent.at, 0);
        }
        let Remedy::Wait(asked) = error.remedy() else {
            return Err(error);
        };
        if sent.at > 0 && (sent.is_coded || sent.validators.if_range().is_none()) {
            return Err(error);
        }
        tries += 1;
        download.wait(tries, asked, error).await?;
    }
}

async fn attempt(download: &Download, sent: &mut Sent) -> Result<(), DownloadError> {
    let mut fields = download.options.fields.clone();
    fields.append("Accept-Encoding", download.options.accept_encoding());
    let mut request = Request {
        fields,
        ..Request::get(download.url.clone())
    };
    let range = (sent.at > 0).then_some((sent.at, sent.total));
    if let Some((start, end)) = range {
        request = bound(request, start, end, &sent.validators);
    }
    let (exchange, _) = download.client.fetch(request).await?;
    let validators = sent.validators.clone();
    let requested = Requested {
        range,
        validators: &validators,
        total: sent.total,
    };
    match decide(exchange.head(), &requested, retry::now())? {
        DownloadPlan::Whole if sent.at == 0 => {
            sent.validators = Validators::of(exchange.head());
            sent.total = exchange.body_length();
            let coding = exchange.head().fields().get("content-encoding");
            let decoder = if download.options.compressed {
                Decoder::new(coding)?
            } else {
                None
            };
            sent.is_coded = decoder.is_some();
            download.observer.event(&DownloadEvent::Started {
                target: PathBuf::from("-"),
                total: sent.total,
                kept: 0,
            });
            copy(download, exchange, decoder, sent).await
        }
        DownloadPlan::Part { start, end, .. } => {
            check_length(&exchange, end - start)?;
            copy(download, exchange, None, sent).await
        }
        DownloadPlan::NothingMore { .. } => Ok(()),
        DownloadPlan::Whole | DownloadPlan::Unchanged => Err(DownloadError::CannotGoBack),
    }
}

async fn copy(
    download: &Download,
    mut exchange: Exchange,
    mut decoder: Option<Decoder>,
    sent: &mut Sent,
) -> Result<(), DownloadError> {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        input.clear();
        let piece = download.pace.as_ref().map_or(READ, |pace| pace.piece());
        let read = exchange.read(&mut input, piece).await?;
        if read == 0 {
            break;
        }
        match &mut decoder {
            None => write(&input, sent)?,
            Some(decoder) => {
                decoder.feed(&input, &mut output)?;
                write(&output, sent)?;
                output.clear();
            }
        }
        if let Some(pace) = &download.pace {
            pace.pay(read).await;
        }
    }
    if let Some(decoder) = decoder {
        decoder.finish(&mut output)?;
        write(&output, sent)?;
    } else if sent.total.is_some_and(|total| sent.at < total) {
        // The server sent less than the rest; the next attempt requests the missing bytes.
        return Err(crate::error::ClientError::ShortBody {
            received: sent.at,
            expected: sent.total.unwrap_or_default(),
        }
        .into());
    }
    download.client.give_back(exchange);
    Ok(())
}

fn write(bytes: &[u8], sent: &mut Sent) -> Result<(), DownloadError> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|source| DownloadError::File {
        path: PathBuf::from("-"),
        source,
    })?;
    sent.sha256.update(bytes);
    sent.at += bytes.len() as u64;
    Ok(())
}

/// Verifies SHA-256, which is made while the bytes pass; other checksums need the file.
fn conclude(download: &Download, sent: Sent) -> Result<Finished, DownloadError> {
    let found = sent.sha256.finalize().to_vec();
    let expected: Vec<Checksum> = download
        .options
        .expected
        .iter()
        .filter(|checksum| checksum.algorithm == Algorithm::Sha256)
        .cloned()
        .collect();
    if let Some(wrong) = expected.iter().find(|checksum| checksum.value != found) {
        return Err(DownloadError::Checksum {
            algorithm: wrong.algorithm.name(),
            source_name: wrong.source.name(),
            expected: wrong.hex(),
            found: super::verify::hex(&found),
        });
    }
    if download.options.require_digest && expected.is_empty() {
        return Err(DownloadError::NoDigest);
    }
    Ok(Finished {
        path: None,
        length: sent.at,
        received: sent.at,
        was_complete: false,
        verified: expected,
        etag: sent.validators.etag,
    })
}
