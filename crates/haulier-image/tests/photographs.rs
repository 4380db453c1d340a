//! Variants of real photographs, compared with golden pictures of another program (`photos/README.md`) by structural
//! similarity and colours, so that a different encoder passes and a shifted picture fails.

mod support;

use std::path::PathBuf;

use haulier_image::{Defaults, Format, Limits, Rendered, Request, native, probe, render};
use support::photo::Photo;

fn photo(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/photos")
        .join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The variant of an original by a query.
#[track_caller]
fn made(original: &[u8], query: &str) -> Rendered {
    let Ok(Request::Transform(transform)) = native::parse(query, &Defaults::default(), &[]) else {
        panic!("{query} is no variant");
    };
    render(original, &transform, &Limits::default()).unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// The pixels of one of our images.
fn pixels(image: &[u8]) -> Photo {
    Photo::from_png(&made(image, "f=png").bytes)
}

/// The structural similarity of two pictures, and their mean difference in colour.
fn compared(found: &Photo, golden: &str) -> (f64, f64) {
    let golden = Photo::from_png(&photo(&format!("golden/{golden}.png")));
    (found.ssim(&golden), found.difference(&golden))
}

#[test]
fn variants_look_like_those_another_program_made() {
    for (original, query, golden) in [
        ("tower.jpg", "w=160", "tower-160"),
        ("tower.jpg", "w=120&h=50", "tower-cover-120x50"),
        ("tower-grey.jpg", "w=100", "tower-grey-100"),
        ("parrots.jpg", "w=192", "parrots-192"),
        ("parrots.jpg", "w=96&r=90", "parrots-turned"),
        ("parrots.jpg", "crop=200,40,120,90&w=80", "parrots-part"),
        ("parrots.jpg", "w=96&h=100&mode=contain&bg=204060", "parrots-contain"),
        ("parrots-16bit.png", "w=96", "parrots-96"),
        ("parrots-alpha.png", "w=96&bg=c02020", "parrots-on-red"),
    ] {
        let found = Photo::from_png(&made(&photo(original), &format!("{query}&f=png")).bytes);
        let (ssim, difference) = compared(&found, golden);
        println!("{original} {query}: SSIM {ssim:.4}, {difference:.2} apart");
        assert!(
            ssim > 0.97 && difference < 2.5,
            "{original} {query}: {ssim} {difference}"
        );
    }
}

#[test]
fn every_format_and_quality_still_looks_like_it() {
    let original = photo("parrots.jpg");
    let formats = Format::ALL
        .into_iter()
        .filter(|format| format.is_written() && format.is_read());
    for format in formats {
        for (quality, least) in [(50, 0.88), (75, 0.92), (95, 0.95)] {
            let variant = made(&original, &format!("w=192&q={quality}&f={format}"));
            let (ssim, difference) = compared(&pixels(&variant.bytes), "parrots-192");
            println!(
                "{format} {quality}: SSIM {ssim:.4}, {difference:.2} apart, {} bytes",
                variant.bytes.len()
            );
            // A GIF has at most 256 colours.
            let least = if format == Format::Gif { 0.8 } else { least };
            assert!(
                ssim > least && difference < 8.0,
                "{format} {quality}: {ssim} {difference}"
            );
        }
    }
}

#[test]
fn colours_of_another_space_come_out_as_they_were_meant() {
    let (ssim, difference) = compared(
        &pixels(&made(&photo("parrots-p3.jpg"), "w=192&q=100").bytes),
        "parrots-192",
    );
    assert!(ssim > 0.97 && difference < 2.5, "Display P3: {ssim} {difference}");
    let (ssim, difference) = compared(
        &pixels(&made(&photo("parrots-cmyk.jpg"), "w=192&q=100").bytes),
        "parrots-192",
    );
    assert!(ssim > 0.95 && difference < 6.0, "inks: {ssim} {difference}");
}

#[test]
fn grey_stays_grey_and_is_the_brightness_of_the_colours() {
    let stays = made(&photo("tower-grey.jpg"), "w=100");
    assert_eq!(probe(&stays.bytes, &Limits::default()).expect("a header").channels, 1);
    let becomes = made(&photo("tower.jpg"), "w=100&g=1");
    assert_eq!(probe(&becomes.bytes, &Limits::default()).expect("a header").channels, 1);
    let (ssim, difference) = compared(&pixels(&becomes.bytes), "tower-grey-100");
    assert!(ssim > 0.93 && difference < 4.0, "{ssim} {difference}");
}

/// The photograph with another orientation in an Exif block before its own.
fn turned(orientation: u8) -> Vec<u8> {
    let bytes = photo("parrots.jpg");
    let mut exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
    let length = (exif.len() as u16 + 2).to_be_bytes();
    [&bytes[..2], &[0xff, 0xe1], &length, &exif, &bytes[2..]].concat()
}

/// Maps a pixel of the upright picture to the stored one (TIFF 6.0, Orientation).
fn stored_place(orientation: u8, (x, y): (u32, u32), (width, height): (u32, u32)) -> (u32, u32) {
    let (right, below) = (width - 1, height - 1);
    match orientation {
        2 => (right - x, y),
        3 => (right - x, below - y),
        4 => (x, below - y),
        5 => (y, x),
        6 => (y, below - x),
        7 => (right - y, below - x),
        8 => (right - y, x),
        _ => (x, y),
    }
}

#[test]
fn every_orientation_is_the_same_photograph_upright() {
    let stored = pixels(&photo("parrots.jpg"));
    let size = (stored.width, stored.height);
    for orientation in 1..=8 {
        let found = pixels(&turned(orientation));
        let upright = if orientation < 5 { size } else { (size.1, size.0) };
        assert_eq!((found.width, found.height), upright, "{orientation}");
        let mut expected = found.clone();
        for y in 0..found.height {
            for x in 0..found.width {
                let (from_x, from_y) = stored_place(orientation, (x, y), size);
                let from = (from_y * stored.width + from_x) as usize * 3;
                let to = (y * found.width + x) as usize * 3;
                expected.data[to..to + 3].copy_from_slice(&stored.data[from..from + 3]);
            }
        }
        assert!(
            found.difference(&expected) < 0.5,
            "{orientation}: {}",
            found.difference(&expected)
        );
    }
}

#[test]
fn what_the_camera_wrote_about_the_place_is_not_in_a_variant() {
    let original = photo("tower.jpg");
    let has = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(has(&original, b"ONEPLUS") && has(&original, b"http://ns.adobe.com/xap/"));
    for format in Format::ALL.into_iter().filter(|format| format.is_written()) {
        let variant = made(&original, &format!("w=100&f={format}")).bytes;
        for secret in [&b"ONEPLUS"[..], b"Exif", b"ns.adobe.com", b"GIMP"] {
            assert!(!has(&variant, secret), "{format} {}", String::from_utf8_lossy(secret));
        }
    }
}

#[test]
fn an_image_is_as_small_as_was_asked_for() {
    let original = photo("tower.jpg");
    let usual = made(&original, "w=300&q=90").bytes.len();
    for format in [Format::Jpeg, Format::WebP] {
        let most = usual / 3;
        let variant = made(&original, &format!("w=300&q=90&f={format}&bytes={most}"));
        assert!(
            variant.bytes.len() <= most,
            "{format}: {} of {most}",
            variant.bytes.len()
        );
        assert!(
            variant.bytes.len() > most / 2,
            "{format}: as good as fits, {} of {most}",
            variant.bytes.len()
        );
        assert_eq!(variant.width, 300);
    }
}
