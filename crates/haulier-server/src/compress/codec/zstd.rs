//! Zstandard (RFC 8878). Every frame declares a window that browsers accept (RFC 9659: at most 8 MiB).

use std::cell::RefCell;

use bytes::Bytes;
use haulier_proto::accept::Coding;
use haulier_proto::dictionary::Hash;
use sha2::{Digest, Sha256};
use zstd_safe::{CCtx, CDict, CParameter, InBuffer, OutBuffer, ResetDirective, compress_bound};

use super::CodecError;
use crate::compress::policy::Choice;

thread_local! {
    /// Reused contexts: creating one costs more than coding a small page.
    static CONTEXTS: RefCell<Vec<CCtx<'static>>> = const { RefCell::new(Vec::new()) };
}

/// Contexts a thread keeps between bodies: one in use, one for the next body.
const KEEP: usize = 2;
/// Larger contexts are freed, bytes: level 19 takes 80 MiB and more.
const KEEP_BYTES: usize = 16 << 20;

/// Output reserved for each step of a stream, bytes.
const STEP: usize = 16 * 1024;

/// A context set up for one body.
struct Context(Option<CCtx<'static>>);

impl Context {
    fn new(choice: Choice) -> Result<Self, CodecError> {
        let kept = CONTEXTS.with_borrow_mut(Vec::pop);
        let mut context = match kept {
            Some(context) => context,
            None => CCtx::try_create().ok_or(CodecError::new(Coding::Zstd, "no memory for a context"))?,
        };
        context
            .reset(ResetDirective::SessionAndParameters)
            .and_then(|_| context.set_parameter(CParameter::CompressionLevel(choice.level)))
            .map_err(error)?;
        if let Some(window) = choice.window {
            context.set_parameter(CParameter::WindowLog(window)).map_err(error)?;
        }
        Ok(Self(Some(context)))
    }

    fn get(&mut self) -> &mut CCtx<'static> {
        self.0.as_mut().expect("taken by drop only")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Some(context) = self.0.take().filter(|context| context.sizeof() <= KEEP_BYTES) else {
            return;
        };
        // The next body must not be coded with this one's dictionary.
        let mut context = context;
        if context.reset(ResetDirective::SessionAndParameters).is_err() {
            return;
        }
        // Fails in a thread that is ending.
        let _ = CONTEXTS.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEEP {
                kept.push(context);
            }
        });
    }
}

pub(super) fn whole(choice: Choice, body: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::with_capacity(compress_bound(body.len()));
    Context::new(choice)?.get().compress2(&mut out, body).map_err(error)?;
    Ok(out)
}

/// Bytes before a frame coded with a dictionary: a skippable frame with its hash (RFC 9842 §5).
const DICTIONARY_HEAD: [u8; 8] = [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0x00, 0x00, 0x00];
/// Magic number of a dictionary in zstd's own format, which the coder would interpret and RFC 9842 does not.
const FORMATTED: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];
/// Above this level a dictionary gains little for its time (docs/compression.md).
const DICTIONARY_LEVEL: i32 = 3;

/// A dictionary prepared for many bodies, which takes longer than coding a page with it.
pub(crate) struct Dictionary {
    pub(crate) hash: Hash,
    pub(crate) content: Bytes,
    prepared: CDict<'static>,
}

impl Dictionary {
    /// Prepares a dictionary; `None` if these bytes cannot be one, or memory is short.
    pub(crate) fn prepare(content: Bytes) -> Option<Self> {
        if content.starts_with(&FORMATTED) {
            return None;
        }
        Some(Self {
            hash: Sha256::digest(&content).into(),
            prepared: CDict::try_create(&content, DICTIONARY_LEVEL)?,
            content,
        })
    }

    fn head(&self) -> Vec<u8> {
        [&DICTIONARY_HEAD[..], &self.hash].concat()
    }
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "dictionary of {} bytes", self.content.len())
    }
}

pub(super) fn whole_with(choice: Choice, dictionary: &Dictionary, body: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut frame = Vec::with_capacity(compress_bound(body.len()));
    Context::new(choice)?
        .get()
        .compress_using_cdict(&mut frame, body, &dictionary.prepared)
        .map_err(error)?;
    let mut out = dictionary.head();
    out.append(&mut frame);
    Ok(out)
}

/// Codes the difference between two files at the highest effort. `None` if `from` cannot be a dictionary.
pub(super) fn difference(choice: Choice, from: &[u8], body: &[u8]) -> Result<Option<Vec<u8>>, CodecError> {
    if from.starts_with(&FORMATTED) {
        return Ok(None);
    }
    let mut context = Context::new(choice)?;
    context.get().load_dictionary(from).map_err(error)?;
    let mut frame = Vec::with_capacity(compress_bound(body.len()));
    context.get().compress2(&mut frame, body).map_err(error)?;
    let hash: Hash = Sha256::digest(from).into();
    Ok(Some([&DICTIONARY_HEAD[..], &hash, &frame].concat()))
}

/// A frame in pieces.
pub(crate) struct Stream {
    context: Context,
    /// Sent before the first byte of the frame.
    head: Vec<u8>,
}

impl Stream {
    pub(super) fn new(choice: Choice, length: Option<u64>) -> Result<Self, CodecError> {
        let mut context = Context::new(choice)?;
        context.get().set_pledged_src_size(length).map_err(error)?;
        Ok(Self {
            context,
            head: Vec::new(),
        })
    }

    pub(super) fn with(choice: Choice, dictionary: &Dictionary, length: Option<u64>) -> Result<Self, CodecError> {
        let mut stream = Self::new(choice, length)?;
        stream
            .context
            .get()
            .load_dictionary(&dictionary.content)
            .map_err(error)?;
        stream.head = dictionary.head();
        Ok(stream)
    }

    pub(super) fn write(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.append(&mut self.head);
        let context = self.context.get();
        let mut input = InBuffer::around(body);
        while input.pos() < body.len() {
            step(out, |output| context.compress_stream(output, &mut input))?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let context = self.context.get();
        while step(out, |output| context.flush_stream(output))? > 0 {}
        Ok(())
    }

    pub(super) fn finish(mut self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.append(&mut self.head);
        let context = self.context.get();
        while step(out, |output| context.end_stream(output))? > 0 {}
        Ok(())
    }
}

/// Calls the codec with room at the end of `out`.
fn step(
    out: &mut Vec<u8>,
    call: impl FnOnce(&mut OutBuffer<'_, Vec<u8>>) -> Result<usize, usize>,
) -> Result<usize, CodecError> {
    out.reserve(STEP);
    let end = out.len();
    let mut output = OutBuffer::around_pos(out, end);
    call(&mut output).map_err(error)
}

fn error(code: usize) -> CodecError {
    CodecError::new(Coding::Zstd, zstd_safe::get_error_name(code))
}

/// The window in bytes that the first frame of `bytes` requires; `None` if there is no frame.
#[must_use]
pub(crate) fn window_of(bytes: &[u8]) -> Option<u64> {
    // RFC 8878 §3.1.1: magic, descriptor, then a window byte unless the content is one segment.
    let rest = bytes.strip_prefix(&[0x28, 0xb5, 0x2f, 0xfd])?;
    let (&descriptor, rest) = rest.split_first()?;
    let is_single_segment = descriptor & 0x20 != 0;
    if !is_single_segment {
        let window = *rest.first()?;
        let base = 1_u64 << (10 + (window >> 3));
        return Some(base + (base / 8) * u64::from(window & 7));
    }
    // The content is its own window.
    let dictionary_id = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let (length, add) = match descriptor >> 6 {
        0 => (1, 0),
        1 => (2, 256),
        2 => (4, 0),
        _ => (8, 0),
    };
    let field = rest.get(dictionary_id..dictionary_id + length)?;
    let mut size = [0; 8];
    size[..length].copy_from_slice(field);
    Some(u64::from_le_bytes(size).saturating_add(add))
}
