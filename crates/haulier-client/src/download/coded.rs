//! A body in a content coding: decoded into the file as it comes.
//!
//! Ranges count coded bytes and the file holds decoded ones, so such a body cannot be continued: the record claims no
//! byte before the last one is there.

use super::error::DownloadError;
use super::job::DownloadJob;
use crate::decode::Decoder;
use crate::exchange::Exchange;

const READ: usize = 64 * 1024;

pub(super) async fn fetch(
    job: &DownloadJob,
    mut exchange: Exchange,
    mut decoder: Decoder,
) -> Result<(), DownloadError> {
    let (mut input, mut output, mut at) = (Vec::new(), Vec::new(), 0);
    loop {
        input.clear();
        let read = exchange.read(&mut input, READ.min(job.piece())).await?;
        if read == 0 {
            break;
        }
        decoder.feed(&input, &mut output)?;
        at = write(job, &mut output, at)?;
        job.received.set(job.received.get() + read as u64);
        job.pay(read).await;
    }
    decoder.finish(&mut output)?;
    let length = write(job, &mut output, at)?;
    let mut part = job.part.borrow_mut();
    part.set_total(Some(length))?;
    part.wrote(0, length)?;
    drop(part);
    job.client.give_back(exchange);
    Ok(())
}

fn write(job: &DownloadJob, output: &mut Vec<u8>, at: u64) -> Result<u64, DownloadError> {
    job.part.borrow().write_at(output, at)?;
    let end = at + output.len() as u64;
    output.clear();
    Ok(end)
}
