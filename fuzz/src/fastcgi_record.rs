//! FastCGI records from an application.

use haulier_proto::fastcgi::{EndRequest, FilePart, Record, RecordError, RecordReader};

/// What all records so far come to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Contents {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    files: Vec<FilePart>,
    ends: Vec<EndRequest>,
}

/// The same contents and the same error whatever the pieces.
pub fn check(data: &[u8]) {
    let whole = read([data]);
    for pieces in super::cuts(data) {
        assert_eq!(read(pieces), whole);
    }
    assert_eq!(read(data.chunks(1)), whole, "byte by byte");
    let found = whole.0;
    assert!(found.stdout.len() + found.stderr.len() + 24 * found.files.len() + 16 * found.ends.len() <= data.len());
}

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Contents, Option<RecordError>) {
    let (mut reader, mut contents) = (RecordReader::new().with_files(), Contents::default());
    for mut piece in pieces {
        loop {
            match reader.next(&mut piece) {
                Ok(None) => break,
                Ok(Some(Record::Stdout(bytes))) => contents.stdout.extend_from_slice(bytes),
                Ok(Some(Record::Stderr(bytes))) => contents.stderr.extend_from_slice(bytes),
                Ok(Some(Record::File(part))) => contents.files.push(part),
                Ok(Some(Record::End(end))) => contents.ends.push(end),
                Err(error) => return (contents, Some(error)),
            }
        }
        assert!(piece.is_empty(), "a reader that wants more has taken everything");
    }
    (contents, None)
}
