//! Every coder, level and size returns the original body, for any pieces and flushes.

use std::io::Read;

use proptest::prelude::*;

use super::*;
use crate::compress::policy::DYNAMIC_WINDOW;

/// Text that is neither trivial nor random.
pub(crate) fn text(length: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = ["haulier ", "carries ", "<p>", "the ", "page</p>\n", "swiftly, "][(state >> 16) as usize % 6];
        text.extend_from_slice(word.as_bytes());
        text.extend_from_slice(format!("{:x} ", state >> 22).as_bytes());
    }
    text.truncate(length);
    text
}

/// The original of a coded body; a part of it if its end is missing.
pub(crate) fn decode(coding: Coding, coded: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let result = match coding {
        Coding::Zstd | Coding::DictionaryZstd => {
            let mut context = zstd_safe::DCtx::create();
            let mut input = zstd_safe::InBuffer::around(coded);
            let mut is_full = true;
            while input.pos() < coded.len() || is_full {
                body.reserve(1 << 16);
                let (end, room) = (body.len(), body.capacity());
                let mut output = zstd_safe::OutBuffer::around_pos(&mut body, end);
                context.decompress_stream(&mut output, &mut input).expect("a frame");
                is_full = body.len() == room;
            }
            Ok(0)
        }
        Coding::Brotli => brotlic::DecompressorReader::new(coded).read_to_end(&mut body),
        Coding::Gzip => flate2::read::GzDecoder::new(coded).read_to_end(&mut body),
    };
    // A body without its end is normal after a flush.
    let _ = result;
    body
}

fn choice(coding: Coding, level: i32) -> Choice {
    Choice {
        coding,
        level,
        window: None,
    }
}

#[test]
fn whole_bodies_of_every_size_come_back() {
    for coding in Coding::PLAIN {
        for size in [0, 1, 2, 255, 256, 4403, 16_384, 65_535, 65_536, 300_000, 3_000_000] {
            let body = text(size);
            let coded = whole(choice(coding, 3), &body).expect("memory");
            assert!(decode(coding, &coded) == body, "{coding:?} {size}");
        }
    }
}

#[test]
fn a_long_incompressible_body_comes_back() {
    let mut state = 9_u64;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    let noise: Vec<u8> = bytes.take(200_000).collect();
    for coding in Coding::PLAIN {
        let coded = whole(choice(coding, 3), &noise).expect("memory");
        assert!(coded.len() > 190_000 && decode(coding, &coded) == noise, "{coding:?}");
    }
}

#[test]
fn every_level_gives_the_body_back() {
    let body = text(20_000);
    let levels = [(Coding::Zstd, 1..=19), (Coding::Brotli, 0..=11), (Coding::Gzip, 1..=12)];
    for (coding, levels) in levels {
        for level in levels {
            let coded = whole(choice(coding, level), &body).expect("memory");
            assert!(decode(coding, &coded) == body, "{coding:?} {level}");
            assert!(coded.len() < body.len() / 2, "{coding:?} {level}: {}", coded.len());
            let mut stream = Encoder::new(choice(coding, level), None).expect("memory");
            let mut coded = Vec::new();
            stream.write(&body, &mut coded).expect("room");
            stream.finish(&mut coded).expect("room");
            assert!(decode(coding, &coded) == body, "streamed {coding:?} {level}");
        }
    }
}

/// RFC 9659: browsers refuse more than 8 MiB.
#[test]
fn no_zstd_frame_asks_for_a_window_over_8_mib() {
    for level in 1..=19 {
        for size in [0, 1, 255, 256, 70_000, 9_000_000] {
            if size > 1_000_000 && level != 1 && level != 19 {
                continue;
            }
            let body = text(size);
            let coded = whole(choice(Coding::Zstd, level), &body).expect("memory");
            // The window of a single segment is its content, which the decoder holds anyway: libzstd declares one only
            // if the content is no larger than the window.
            assert!(zstd_window(&coded).expect("a frame") <= 8 << 20, "{level} {size}");
        }
        for window in [None, Some(DYNAMIC_WINDOW), Some(17)] {
            let choice = Choice {
                window,
                ..choice(Coding::Zstd, level)
            };
            let mut stream = Encoder::new(choice, None).expect("memory");
            let mut coded = Vec::new();
            stream.write(&text(100_000), &mut coded).expect("room");
            stream.flush(&mut coded).expect("room");
            let most = window.map_or(8 << 20, |window| 1 << window);
            assert!(zstd_window(&coded).expect("a frame") <= most, "{level} {window:?}");
        }
    }
}

#[test]
fn bytes_that_are_no_frame_have_no_window() {
    assert_eq!(zstd_window(b""), None);
    assert_eq!(zstd_window(b"<html>"), None);
    assert_eq!(zstd_window(&[0x28, 0xb5, 0x2f, 0xfd]), None);
    assert_eq!(zstd_window(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88]), Some(1 << 27));
    assert!(!is_brotli(&[0x11, 0x20]) && is_brotli(&[0x1b]) && !is_brotli(&[]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn after_every_flush_the_client_has_everything(
        pieces in proptest::collection::vec((0..40_000_usize, any::<bool>()), 0..12), level in 1..9,
    ) {
        for coding in Coding::PLAIN {
            let mut encoder = Encoder::new(choice(coding, level), None).expect("memory");
            let (mut body, mut coded) = (Vec::new(), Vec::new());
            for (number, &(length, flush)) in pieces.iter().enumerate() {
                let piece = text(length + number).split_off(number);
                encoder.write(&piece, &mut coded).expect("room");
                body.extend_from_slice(&piece);
                if flush {
                    encoder.flush(&mut coded).expect("room");
                    prop_assert!(decode(coding, &coded) == body, "{:?} at {}", coding, number);
                }
            }
            encoder.finish(&mut coded).expect("room");
            prop_assert!(decode(coding, &coded) == body, "{:?}", coding);
        }
    }

    #[test]
    fn any_bytes_come_back(body in proptest::collection::vec(any::<u8>(), 0..3000)) {
        for coding in Coding::PLAIN {
            prop_assert!(decode(coding, &whole(choice(coding, 5), &body).expect("memory")) == body);
        }
    }

    #[test]
    fn a_dictionary_gives_back_what_was_coded_with_it(cut in 0..20_000_usize, put in ".{0,200}") {
        let content = text(20_000);
        let dictionary = Dictionary::prepare(content.clone().into()).expect("a dictionary");
        let mut body = content.clone();
        body.splice(cut..cut, put.into_bytes());
        let mut streamed = Vec::new();
        let dcz = choice(Coding::DictionaryZstd, 3);
        let mut encoder = Encoder::with(dcz, Some(&dictionary), None).expect("memory");
        for piece in body.chunks(7000) {
            encoder.write(piece, &mut streamed).expect("memory");
            encoder.flush(&mut streamed).expect("memory");
        }
        encoder.finish(&mut streamed).expect("memory");
        let whole = whole_with(dcz, Some(&dictionary), &body).expect("memory");
        let stored = difference(choice(Coding::DictionaryZstd, 19), &content, &body).expect("memory").expect("it may be");
        for coded in [whole, streamed, stored] {
            prop_assert!(coded.len() < 800, "{}", coded.len());
            prop_assert_eq!(&coded[..8], &[0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0]);
            prop_assert_eq!(&coded[8..40], &dictionary.hash);
            let mut context = zstd_safe::DCtx::create();
            let mut decoded = Vec::with_capacity(body.len() + 1);
            context.decompress_using_dict(&mut decoded, &coded[40..], &content).expect("a frame");
            prop_assert!(decoded == body);
        }
        // The next body of this thread is coded without it.
        prop_assert!(decode(Coding::Zstd, &super::whole(choice(Coding::Zstd, 3), &body).expect("memory")) == body);
    }
}

#[test]
fn a_dictionary_of_zstds_own_format_is_refused() {
    let content = [&[0x37, 0xa4, 0x30, 0xec][..], &text(1000)].concat();
    assert!(Dictionary::prepare(content.clone().into()).is_none());
    assert_eq!(
        difference(choice(Coding::DictionaryZstd, 19), &content, &content),
        Ok(None)
    );
}
