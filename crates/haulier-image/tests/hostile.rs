//! Hostile files: each must end in an error, and quickly.
//!
//! C decoders run without their sandbox here, so a memory fault in one ends the test program. `HAULIER_FUZZ_SECONDS`
//! prolongs the mutations.

mod support;

use std::time::{Duration, Instant};

use haulier_image::{Excess, Format, FormatChoice, ImageError, Limits, Size, Transform, probe, render};
use support::bombs;
use support::photo::Photo;

fn thumbnail(bytes: &[u8], limits: &Limits) -> Result<(), ImageError> {
    let transform = Transform {
        size: Size {
            width: 40,
            height: 40,
            ..Size::default()
        },
        format: FormatChoice::As(Format::Jpeg),
        ..Transform::default()
    };
    render(bytes, &transform, limits).map(|_| ())
}

/// Small limits, so that accepted images are small.
fn limits() -> Limits {
    Limits {
        pixels: 1_000_000,
        side: 4096,
        memory: 16 << 20,
        frames: 20,
        ..Limits::default()
    }
}

#[test]
fn bombs_are_refused_by_their_headers() {
    for (name, bytes, expected) in [
        ("a JPEG of 4 gigapixels", bombs::jpeg(65_500, 65_500), Excess::Side),
        ("a JPEG of 41 megapixels", bombs::jpeg(8_200, 5_000), Excess::Pixels),
        (
            "a PNG whose sides overflow",
            bombs::lying_png(u32::MAX >> 1, u32::MAX >> 1),
            Excess::Side,
        ),
        (
            "a PNG of 256 megapixels",
            bombs::lying_png(16_000, 16_000),
            Excess::Pixels,
        ),
        ("a WebP of 268 megapixels", bombs::webp(), Excess::Pixels),
        ("a GIF of 65535 × 65535", bombs::gif(65_535, 65_535, 1), Excess::Side),
    ] {
        let limits = Limits::default();
        for result in [thumbnail(&bytes, &limits), probe(&bytes, &limits).map(|_| ())] {
            match result {
                Err(ImageError::TooLarge { what, .. }) => assert_eq!(what, expected, "{name}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_file_beyond_the_limit_is_not_looked_at() {
    let mut bytes = bombs::png(1, 1);
    bytes.resize(2000, 0);
    let limits = Limits {
        file: 1999,
        ..Limits::default()
    };
    assert!(matches!(
        thumbnail(&bytes, &limits),
        Err(ImageError::TooLarge {
            what: Excess::Bytes,
            found: 2000,
            ..
        })
    ));
}

#[test]
fn an_animation_of_thousands_is_refused_and_its_first_picture_shown() {
    let bytes = bombs::gif(100, 100, 5_000);
    let transform = Transform {
        format: FormatChoice::As(Format::WebP),
        ..Transform::default()
    };
    let result = render(&bytes, &transform, &Limits::default());
    assert!(
        matches!(
            result,
            Err(ImageError::TooLarge {
                what: Excess::Frames,
                limit: 100,
                ..
            })
        ),
        "{result:?}"
    );
    assert!(thumbnail(&bytes, &Limits::default()).is_ok());
    let large = bombs::gif(1_000, 1_000, 90);
    let result = render(&large, &transform, &Limits::default());
    assert!(
        matches!(
            result,
            Err(ImageError::TooLarge {
                what: Excess::Pixels,
                ..
            })
        ),
        "{result:?}"
    );
}

#[test]
fn headers_that_lie_about_what_follows_are_errors() {
    for bytes in [
        bombs::lying_png(1_000, 1_000),
        bombs::lying_gif(),
        bombs::jpeg(2_000, 2_000)[..30].to_vec(),
    ] {
        let result = thumbnail(&bytes, &Limits::default());
        assert!(matches!(result, Err(ImageError::Malformed(_))), "{result:?}");
    }
}

#[test]
fn a_text_that_inflates_without_end_is_not_inflated() {
    assert!(thumbnail(&bombs::text_png(100 << 20), &limits()).is_ok());
}

#[test]
fn a_thousand_scans_are_not_decoded() {
    let photo = Photo::new(64, 64);
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
    encoder.set_progressive(true);
    encoder
        .encode(&photo.data, 64, 64, jpeg_encoder::ColorType::Rgb)
        .expect("it is written");
    // Repeats the last scan a thousand times.
    let last = bytes.windows(2).rposition(|pair| pair == [0xff, 0xda]).expect("a scan");
    let scan = bytes[last..bytes.len() - 2].to_vec();
    bytes.truncate(bytes.len() - 2);
    for _ in 0..1_000 {
        bytes.extend(&scan);
    }
    bytes.extend([0xff, 0xd9]);
    // Decoded or refused, but without a thousand passes, which would exceed the test's time.
    let whole = Transform {
        format: FormatChoice::As(Format::Png),
        ..Transform::default()
    };
    let result = render(&bytes, &whole, &Limits::default());
    assert!(result.is_ok() || matches!(result, Err(ImageError::Malformed(_))));
}

#[test]
fn what_names_a_file_or_a_program_is_no_image() {
    for bytes in [
        &b"push graphic-context\nviewbox 0 0 640 480\nfill 'url(https://127.0.0.1/x\"|ls \"-la)'\npop graphic-context"
            [..],
        b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        b"%!PS\n(/etc/passwd) (r) file",
        b"#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\nconcat:file:///etc/passwd",
        b"\0\0\0\x18ftypheic",
        b"BM\0\0\0\0",
        b"II*\0\x08\0\0\0",
    ] {
        assert!(matches!(thumbnail(bytes, &limits()), Err(ImageError::Unknown)));
    }
}

/// Small originals of all formats we read.
fn corpus() -> Vec<Vec<u8>> {
    let photo = Photo::new(48, 32);
    let as_png = {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 48, 32);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().expect("a header");
        writer.write_image_data(&photo.data).expect("pixels");
        writer.finish().expect("an end");
        bytes
    };
    let mut corpus = vec![bombs::gif(48, 32, 4)];
    for format in [Format::Jpeg, Format::WebP, Format::Gif] {
        let transform = Transform {
            format: FormatChoice::As(format),
            ..Transform::default()
        };
        corpus.push(
            render(&as_png, &transform, &limits())
                .expect("it is made")
                .bytes
                .to_vec(),
        );
    }
    let mut progressive = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut progressive, 80);
    encoder.set_progressive(true);
    encoder
        .encode(&photo.data, 48, 32, jpeg_encoder::ColorType::Rgb)
        .expect("it is written");
    corpus.push(progressive);
    let animated = Transform {
        format: FormatChoice::As(Format::WebP),
        ..Transform::default()
    };
    corpus.push(
        render(&corpus[0], &animated, &limits())
            .expect("it is made")
            .bytes
            .to_vec(),
    );
    corpus.push(as_png);
    corpus
}

fn damaged(bytes: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.usize(1..6) {
        // Most fields worth changing are at the beginning.
        let reach = if random.bool() {
            bytes.len().min(64)
        } else {
            bytes.len()
        };
        let at = random.usize(..reach);
        match random.u8(..6) {
            0 => bytes[at] = random.u8(..),
            1 => bytes[at] ^= 1 << random.u8(..8),
            2 => bytes[at] = *[0, 0x7f, 0x80, 0xff].get(random.usize(..4)).expect("one of four"),
            3 => bytes.truncate(at.max(1)),
            4 => bytes.insert(at, random.u8(..)),
            _ => {
                let (from, length) = (random.usize(..bytes.len()), random.usize(1..32));
                let piece: Vec<u8> = bytes[from..].iter().take(length).copied().collect();
                bytes.splice(at..at, piece);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[test]
fn damaged_files_give_errors_and_nothing_worse() {
    let seconds = std::env::var("HAULIER_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let corpus = corpus();
    let mut random = fastrand::Rng::with_seed(42);
    let (mut tried, mut refused) = (0, 0);
    while Instant::now() < deadline {
        let bytes = damaged(&corpus[tried % corpus.len()], &mut random);
        let result = std::panic::catch_unwind(|| thumbnail(&bytes, &limits()));
        match result {
            Ok(Ok(())) => {}
            Ok(Err(_)) => refused += 1,
            // A library may panic; the worker turns that into an error. Our own code may not.
            Err(cause) => panic!("{cause:?} of {bytes:?}"),
        }
        tried += 1;
    }
    println!("{refused} of {tried} damaged files were refused");
    assert!(refused > 0 && refused < tried);
}
