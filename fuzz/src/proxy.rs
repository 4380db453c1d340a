//! The PROXY header: never a panic, and one answer however it arrives.

use haulier_proto::proxy::parse;

/// What is complete stays the same whatever follows it, and is never complete before its last byte.
pub fn check(data: &[u8]) {
    match parse(data) {
        Ok(Some(header)) => {
            assert!(header.length <= data.len(), "longer than the input");
            assert_eq!(
                parse(&data[..header.length]),
                Ok(Some(header)),
                "what follows changed it"
            );
            for cut in 0..header.length {
                assert_eq!(parse(&data[..cut]), Ok(None), "complete or wrong before its end");
            }
        }
        Ok(None) => assert!(data.len() < 4096, "it would be waited for without end"),
        Err(error) => {
            let mut more = data.to_vec();
            more.extend_from_slice(b"\r\n");
            assert_eq!(parse(&more), Err(error), "more bytes made a header of what is none");
        }
    }
}
