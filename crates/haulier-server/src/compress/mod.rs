//! Compression of every body that gains by it, in the client's preferred coding.
//!
//! `policy` chooses, `codec` codes, `load` measures the machine's load. A complete body is coded here. A body that PHP
//! is still making is coded between PHP and the spool (`body_coder`), so that a coder lives no longer than its worker
//! is busy. Files have compressed copies, made once (`store`, and `files::coded`).
//!
//! Negotiation follows RFC 9110 §12.5.3 and §15.5.7, entity tags §8.8.3.

pub(crate) mod body_coder;
pub(crate) mod codec;
pub(crate) mod dictionary;
pub(crate) mod file;
mod load;
pub(crate) mod media_type;
pub(crate) mod policy;
mod reflected;
pub(crate) mod settings;
mod site_coding;
pub(crate) mod store;
pub(crate) mod tag;
mod vary;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use haulier_http::{Body, Compressed, FileSlice, Handler, Head, Response};
use haulier_proto::accept::{Accepted, Coding};
use haulier_proto::field::{Fields, Known, tokens};
use haulier_proto::head::{Method, RequestHead};

use self::load::CpuLoad;
use self::policy::{BodyExtent, Choice};
pub(crate) use self::site_coding::SiteCoding;
pub(crate) use self::vary::{add_vary, vary_by};
use crate::clock;

/// The trace of a coding by this choice.
fn compressed(choice: Choice, load: CpuLoad) -> Arc<Compressed> {
    Compressed::new(choice.coding, choice.level, load.as_str())
}

/// Runs a coder and records its time and the bytes before and after.
fn counted<T>(compressed: &Compressed, taken: usize, code: impl FnOnce() -> T, made: impl FnOnce(&T) -> usize) -> T {
    let begun = clock::now();
    let result = code();
    let spent = clock::now().saturating_duration_since(begun);
    compressed.add(taken, made(&result), spent);
    result
}

/// Reasons to send a body uncoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skip {
    Off,
    NoAcceptEncoding,
    Type,
    Small,
    Grew,
    Already,
    NoTransform,
    Range,
    Secret,
    /// The limit of open contexts is reached.
    Busy,
    /// The file is too large, or the pieces of the body are in files.
    File,
    Failed,
}

impl Skip {
    fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::NoAcceptEncoding => "no-ae",
            Self::Type => "mime",
            Self::Small => "small",
            Self::Grew => "grew",
            Self::Already => "already",
            Self::NoTransform => "no-transform",
            Self::Range => "range",
            Self::Secret => "secret",
            Self::Busy => "busy",
            Self::File => "file",
            Self::Failed => "failed",
        }
    }
}

/// Codes a complete body, and adds `Vary`. Bodies that PHP is still making, and copies of files, were decided on
/// before.
pub(crate) fn on_response(site: &SiteCoding, head: &RequestHead, response: &mut Response) {
    let is_plain_file = matches!(&response.head, Head::Prepared(prepared) if !prepared.is_negotiable);
    if !site.development && (is_plain_file || is_prepared_and_unasked(head, response)) {
        return;
    }
    let skip = code(site, head, response).err();
    if site.development {
        explain(response, skip);
    }
}

/// The common case of a file: no Accept-Encoding, and a prepared head.
fn is_prepared_and_unasked(head: &RequestHead, response: &Response) -> bool {
    matches!(response.head, Head::Prepared(_)) && head.fields().known(Known::AcceptEncoding).is_none()
}

/// Adds a field in development that names the coding, or the reason for none.
fn explain(response: &mut Response, skip: Option<Skip>) {
    let value = match (&response.trace.compressed, skip) {
        (Some(compressed), _) => compressed.label(),
        (None, Some(skip)) => format!("skip={}", skip.as_str()),
        (None, None) => return,
    };
    let fields = response.head.fields_mut();
    fields.set("X-Haulier-Encoding", value);
    if let Some(compressed) = &response.trace.compressed {
        let nanoseconds = compressed.nanoseconds.load(Ordering::Relaxed);
        // A body that is still being made has taken no time yet.
        if nanoseconds > 0 {
            fields.append("Server-Timing", format!("compress;dur={:.1}", nanoseconds as f64 / 1e6));
        }
    }
}

fn code(site: &SiteCoding, head: &RequestHead, response: &mut Response) -> Result<(), Skip> {
    let settings = &site.settings;
    if !settings.is_on() {
        return Err(Skip::Off);
    }
    // A file that a script hands off is a download: it keeps its ranges and its length.
    if matches!(response.trace.handler, Handler::Handed | Handler::Offloaded) {
        return Err(Skip::File);
    }
    if response.status == 304 {
        return not_modified(head, response);
    }
    let negotiable = is_negotiable(site, response.head.fields());
    if negotiable.is_ok() && !matches!(response.head, Head::Prepared(_)) {
        add_vary(response.head.fields_mut());
    }
    negotiable?;
    if response.status == 206 || response.head.fields().contains("Content-Range") {
        return Err(Skip::Range);
    }
    let length = response.body.length();
    if length.is_some_and(|length| length < settings.min_size) {
        return Err(Skip::Small);
    }
    let accepted = Accepted::of(head.fields());
    let load = load::now(clock::now());
    let extent = length.map_or(BodyExtent::Long(None), BodyExtent::Whole);
    let choice = policy::choose(settings, &accepted, extent, load);
    let (choice, dictionary) = match (&mut response.head, response.trace.handler) {
        (Head::Fields(fields), Handler::Php) => {
            dictionary::choose(site, head, response.status, fields, &accepted, choice)
        }
        _ => choice.map(|choice| (choice, None)),
    }
    .ok_or(Skip::NoAcceptEncoding)?;
    if let Body::Unsent(length) = &mut response.body {
        // A GET would get another length, which is unknown (RFC 9110 §8.6 lets HEAD omit it).
        *length = None;
        return Ok(());
    }
    match &response.body {
        Body::Bytes(bytes) => {
            let bytes = bytes.clone();
            if settings.no_secrets && reflected::is_secret_beside(response.head.fields(), head, &bytes) {
                return Err(Skip::Secret);
            }
            whole(response, choice, dictionary.as_deref(), load, &bytes)
        }
        Body::File(slice) => {
            let slice = slice.clone();
            file(response, settings, &accepted, load, slice, head.method())
        }
        _ => Err(Skip::File),
    }
}

fn whole(
    response: &mut Response,
    choice: Choice,
    dictionary: Option<&codec::Dictionary>,
    load: CpuLoad,
    bytes: &Bytes,
) -> Result<(), Skip> {
    let compressed = compressed(choice, load);
    let coded = counted(
        &compressed,
        bytes.len(),
        || codec::whole_with(choice, dictionary, bytes),
        |coded| coded.as_ref().map_or(0, Vec::len),
    );
    let coded = coded.map_err(failed)?;
    if coded.len() >= bytes.len() {
        return Err(Skip::Grew);
    }
    mark(response.head.fields_mut(), choice.coding);
    response.body = exact(coded).into();
    response.trace.compressed = Some(compressed);
    Ok(())
}

fn failed(error: codec::CodecError) -> Skip {
    tracing::error!(%error, "cannot compress a response; it is sent uncoded");
    Skip::Failed
}

/// Gives back the unused room of a coder's output.
fn exact(mut coded: Vec<u8>) -> Bytes {
    coded.shrink_to_fit();
    coded.into()
}

/// Longer files are coded piece by piece.
const WHOLE_FILE: u64 = 64 * 1024;

/// Codes a file without a compressed copy.
fn file(
    response: &mut Response,
    settings: &settings::CompressSettings,
    accepted: &Accepted,
    load: CpuLoad,
    slice: FileSlice,
    method: Method,
) -> Result<(), Skip> {
    if slice.len() <= WHOLE_FILE {
        let extent = BodyExtent::Whole(slice.len());
        let choice = policy::choose(settings, accepted, extent, load).ok_or(Skip::NoAcceptEncoding)?;
        let bytes = file::content(&slice).ok_or(Skip::File)?;
        return whole(response, choice, None, load, &bytes);
    }
    let choice = policy::choose(settings, accepted, BodyExtent::Endless, load).ok_or(Skip::NoAcceptEncoding)?;
    if method == Method::Head {
        file::check(&slice)?;
        mark(response.head.fields_mut(), choice.coding);
        response.body = Body::Unsent(None);
        return Ok(());
    }
    let compressed = compressed(choice, load);
    let stream = file::CodedFile::begin(slice, choice, &compressed)?;
    mark(response.head.fields_mut(), choice.coding);
    response.body = Body::Stream(Box::new(stream));
    response.trace.compressed = Some(compressed);
    Ok(())
}

/// Checks that the response could be coded, for another client or at another length.
fn is_negotiable(site: &SiteCoding, fields: &Fields) -> Result<(), Skip> {
    if fields.contains("Content-Encoding") {
        return Err(Skip::Already);
    }
    let types = site.settings.types.as_deref();
    if !fields
        .known(Known::ContentType)
        .is_some_and(|value| media_type::is_compressible(value, types))
    {
        return Err(Skip::Type);
    }
    if is_fixed(fields) {
        return Err(Skip::NoTransform);
    }
    Ok(())
}

/// True if a file of this length with these fields has codings.
pub(crate) fn has_codings(site: &SiteCoding, fields: &Fields, length: u64) -> bool {
    let settings = &site.settings;
    settings.is_on() && length >= settings.min_size.max(1) && is_negotiable(site, fields).is_ok()
}

/// True for `no-transform` (RFC 9111 §5.2.2.6), and for digests of the uncoded body (RFC 9530 §3).
fn is_fixed(fields: &Fields) -> bool {
    let no_transform = fields
        .get_all("Cache-Control")
        .flat_map(tokens)
        .any(|directive| directive.eq_ignore_ascii_case(b"no-transform"));
    no_transform
        || ["Content-Digest", "Repr-Digest", "Digest", "Content-MD5"]
            .iter()
            .any(|name| fields.contains(name))
}

/// A 304 has the Vary of the 200 (RFC 9110 §15.4.5). A client may hold PHP's response under the tag of a coding; that
/// tag is returned then.
fn not_modified(head: &RequestHead, response: &mut Response) -> Result<(), Skip> {
    if response.trace.handler != Handler::Php {
        return Err(Skip::Already);
    }
    let fields = response.head.fields_mut();
    add_vary(fields);
    let known = fields
        .get("ETag")
        .and_then(|tag| tag::named_by_client(tag, head.fields()));
    if let Some(known) = known {
        fields.set("ETag", known);
    }
    Err(Skip::Already)
}

/// Sets the fields of a coded body.
fn mark(fields: &mut Fields, coding: Coding) {
    fields.set("Content-Encoding", coding.as_str());
    fields.remove("Accept-Ranges");
    if let Some(tag) = fields.get("ETag").and_then(|value| tag::of_coding(value, coding)) {
        fields.set("ETag", tag);
    }
}

#[cfg(test)]
mod tests;
