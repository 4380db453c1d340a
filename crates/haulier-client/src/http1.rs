//! Requests as HTTP/1.1 sends them: the head, then the body by its length or in chunks (RFC 9112 §6, §7.1).

use std::task::{Context, Poll, ready};

use bytes::Buf;
use haulier_proto::chunked::{LAST_CHUNK, write_chunk_head, write_end};

use crate::error::ClientError;
use crate::request::{Request, RequestBody};
use crate::stream::Stream;
use crate::upload::Upload;

/// Pieces up to this many bytes are copied after the head or the chunk size, so that one write sends both.
const SMALL: usize = 16 * 1024;

/// The progress of the body.
enum SendStep {
    More,
    /// The source has nothing yet.
    Waiting,
    Sent,
}

/// Sends one request.
#[derive(Debug)]
pub(crate) struct Http1Sender {
    /// Head, chunk sizes and small pieces, to be written before the piece of the upload.
    output: Vec<u8>,
    is_chunked: bool,
    /// The end of the piece at hand is the end of a chunk.
    owes_line_end: bool,
    /// The last chunk is in the output.
    has_ended: bool,
}

impl Http1Sender {
    /// A sender with the head in its output.
    pub(crate) fn new<B: RequestBody>(request: &Request<B>, absolute: bool) -> Self {
        let mut output = Vec::with_capacity(512);
        request.write_head(&mut output, absolute);
        Self {
            output,
            is_chunked: request.body.length().is_none(),
            owes_line_end: false,
            has_ended: false,
        }
    }

    /// Sends as much as source and socket allow; ready when everything has been sent.
    pub(crate) fn poll_send<B: RequestBody>(
        &mut self,
        upload: &mut Upload<B>,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ClientError>> {
        loop {
            let next = self.prepare(upload, context)?;
            while !self.output.is_empty() {
                let written = ready!(stream.poll_write(context, &self.output)).map_err(ClientError::Broken)?;
                self.output.drain(..written);
                upload.note_moved();
            }
            while !upload.piece.is_empty() {
                let written = ready!(stream.poll_write(context, &upload.piece)).map_err(ClientError::Broken)?;
                upload.piece.advance(written);
                upload.note_moved();
            }
            match next {
                SendStep::More => {}
                SendStep::Waiting => {
                    let _ = stream.poll_flush(context).map_err(ClientError::Broken)?;
                    return Poll::Pending;
                }
                SendStep::Sent => return stream.poll_flush(context).map_err(ClientError::Broken),
            }
        }
    }

    /// Puts the framing before the next piece into the output.
    fn prepare<B: RequestBody>(
        &mut self,
        upload: &mut Upload<B>,
        context: &mut Context<'_>,
    ) -> Result<SendStep, ClientError> {
        if !upload.piece.is_empty() {
            return Ok(SendStep::More);
        }
        if std::mem::take(&mut self.owes_line_end) {
            self.output.extend_from_slice(b"\r\n");
        }
        match upload.poll_piece(context)? {
            Poll::Pending => Ok(SendStep::Waiting),
            Poll::Ready(false) => {
                self.end(upload);
                Ok(SendStep::Sent)
            }
            Poll::Ready(true) => {
                if self.is_chunked {
                    write_chunk_head(&mut self.output, upload.piece.len() as u64);
                    self.owes_line_end = true;
                }
                if upload.piece.len() <= SMALL {
                    self.output.extend_from_slice(&upload.piece);
                    upload.piece.clear();
                    if std::mem::take(&mut self.owes_line_end) {
                        self.output.extend_from_slice(b"\r\n");
                    }
                }
                Ok(SendStep::More)
            }
        }
    }

    fn end<B: RequestBody>(&mut self, upload: &mut Upload<B>) {
        if !self.is_chunked || std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        match upload.trailers() {
            Some(trailers) => write_end(&mut self.output, &trailers),
            None => self.output.extend_from_slice(LAST_CHUNK),
        }
    }
}
