//! Originals made by common programs must be read as those programs read them, and variants must be readable by them.
//! Tests of a program that is not installed are skipped with a message.

mod support;

#[cfg(feature = "avif")]
use haulier_image::Excess;
use haulier_image::{
    Background, Format, FormatChoice, ImageError, Limits, Mode, Quality, Region, Rendered, Size, Transform, probe,
    render,
};
use support::photo::Photo;
use support::reference::run;

fn whole(format: Format) -> Transform {
    Transform {
        format: FormatChoice::As(format),
        quality: Quality::Fixed(100),
        ..Transform::default()
    }
}

fn sized(width: u32, height: u32, mode: Mode, format: Format) -> Transform {
    Transform {
        size: Size {
            width,
            height,
            ..Size::default()
        },
        mode,
        ..whole(format)
    }
}

fn made(bytes: &[u8], transform: &Transform) -> Rendered {
    render(bytes, transform, &Limits::default()).expect("it is made")
}

/// The pixels of one of our PNGs.
fn pixels(png: &[u8]) -> Photo {
    Photo::from_png(png)
}

fn cjpeg(photo: &Photo, arguments: &[&str]) -> Option<Vec<u8>> {
    run("cjpeg", arguments, &photo.ppm())
}

fn djpeg(bytes: &[u8], arguments: &[&str]) -> Option<Photo> {
    let arguments = [&["-pnm"], arguments].concat();
    run("djpeg", &arguments, bytes).map(|pnm| Photo::from_pnm(&pnm))
}

/// A JPEG with an author in its XMP.
fn credited() -> Option<Vec<u8>> {
    let packet = "http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><dc:creator><rdf:Seq><rdf:li>A. Miller</rdf:li></rdf:Seq>\
         </dc:creator><dc:rights><rdf:Alt><rdf:li xml:lang=\"x-default\">Owner &amp; Co</rdf:li></rdf:Alt></dc:rights>";
    let plain = cjpeg(&Photo::new(61, 43), &[])?;
    let length = (packet.len() as u16 + 2).to_be_bytes();
    Some([&plain[..2], b"\xff\xe1", &length, packet.as_bytes(), &plain[2..]].concat())
}

#[test]
fn the_copyright_of_a_variant_is_what_imagemagick_finds_there() {
    let Some(original) = credited() else { return };
    for (format, names) in [
        (Format::Jpeg, "%[EXIF:Artist]|%[EXIF:Copyright]|%wx%h"),
        (Format::Gif, "%c|%wx%h"),
    ] {
        let transform = Transform {
            copyright: true,
            ..sized(30, 0, Mode::Fit, format)
        };
        let rendered = made(&original, &transform);
        let file = format!("{format}:-");
        let Some(said) = run("identify", &["-format", names, &file], &rendered.bytes) else {
            return;
        };
        let expected = match format {
            Format::Gif => "Owner & Co, A. Miller|30x21",
            _ => "A. Miller|Owner & Co|30x21",
        };
        assert_eq!(String::from_utf8_lossy(&said), expected, "{format}");
        let without = made(&original, &sized(30, 0, Mode::Fit, format));
        assert!(without.bytes.len() < rendered.bytes.len(), "{format}");
    }
}

#[test]
fn the_copyright_of_a_webp_goes_on_to_what_is_made_of_it() {
    let Some(original) = credited() else { return };
    let credited = |width, format| Transform {
        copyright: true,
        ..sized(width, 0, Mode::Fit, format)
    };
    let webp = made(&original, &credited(40, Format::WebP));
    let png = made(&webp.bytes, &credited(30, Format::Png));
    assert_eq!((png.width, png.height), (30, 21));
    assert!(png.bytes.windows(9).any(|window| window == b"A. Miller"));
}

#[test]
fn the_copyright_of_a_png_is_in_its_exif_chunk() {
    let Some(original) = credited() else { return };
    let transform = Transform {
        copyright: true,
        ..sized(30, 0, Mode::Fit, Format::Png)
    };
    let rendered = made(&original, &transform);
    let reader = png::Decoder::new(std::io::Cursor::new(&rendered.bytes)).read_info();
    let reader = reader.expect("a PNG");
    let exif = reader.info().exif_metadata.as_deref().expect("an eXIf chunk");
    assert!(exif.starts_with(b"MM\0*"));
    let has = |text: &[u8]| exif.windows(text.len()).any(|window| window == text);
    assert!(has(b"A. Miller\0") && has(b"Owner & Co\0"));
}

#[test]
fn every_kind_of_jpeg_is_read_as_djpeg_reads_it() {
    let photo = Photo::new(203, 131);
    for arguments in [
        &["-quality", "90"][..],
        &["-quality", "90", "-progressive"],
        &["-quality", "90", "-optimize"],
        &["-quality", "90", "-arithmetic"],
        &["-quality", "90", "-grayscale"],
        &["-quality", "90", "-sample", "1x1"],
        &["-quality", "90", "-sample", "2x1"],
        &["-quality", "90", "-sample", "1x2"],
        &["-quality", "90", "-sample", "4x1"],
        &["-quality", "90", "-restart", "2"],
        &["-quality", "90", "-progressive", "-restart", "1"],
        &["-quality", "90", "-rgb"],
        &["-quality", "15"],
    ] {
        let Some(bytes) = cjpeg(&photo, arguments) else { return };
        let Some(expected) = djpeg(&bytes, &[]) else { return };
        let found = pixels(&made(&bytes, &whole(Format::Png)).bytes);
        let difference = found.difference(&expected);
        assert!(difference < 1.5, "{arguments:?}: {difference}");
    }
}

#[test]
fn one_scan_for_each_component_is_read_right() {
    // jpeg-encoder's output with optimised tables, which at least one decoder misreads.
    let photo = Photo::new(160, 120);
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
    encoder.set_optimized_huffman_tables(true);
    encoder
        .encode(&photo.data, 160, 120, jpeg_encoder::ColorType::Rgb)
        .expect("it is written");
    assert!(bytes.windows(2).filter(|pair| pair == &[0xff, 0xda]).count() >= 3);
    assert!(pixels(&made(&bytes, &whole(Format::Png)).bytes).difference(&photo) < 5.0);
}

#[test]
fn djpeg_reads_what_we_write() {
    let photo = Photo::new(300, 200);
    let Some(bytes) = cjpeg(&photo, &["-quality", "95"]) else {
        return;
    };
    for quality in [30, 75, 95] {
        let transform = Transform {
            quality: Quality::Fixed(quality),
            ..whole(Format::Jpeg)
        };
        let Some(found) = djpeg(&made(&bytes, &transform).bytes, &[]) else {
            return;
        };
        let ssim = found.ssim(&photo);
        assert!(ssim > if quality < 50 { 0.6 } else { 0.85 }, "{quality}: {ssim}");
    }
}

#[test]
fn a_scaled_picture_is_as_good_as_one_from_imagemagick() {
    let photo = Photo::new(1200, 900);
    let Some(bytes) = cjpeg(&photo, &["-quality", "92"]) else {
        return;
    };
    for (width, height) in [(100, 75), (149, 112), (400, 300), (800, 600)] {
        let geometry = format!("{width}x{height}!");
        let arguments = [
            "ppm:-", "-filter", "Lanczos", "-resize", &geometry, "-depth", "8", "ppm:-",
        ];
        let Some(expected) = run("/usr/bin/convert", &arguments, &photo.ppm()) else {
            return;
        };
        let found = pixels(&made(&bytes, &sized(width, height, Mode::Fill, Format::Png)).bytes);
        let ssim = found.ssim(&Photo::from_pnm(&expected));
        assert!(ssim > 0.96, "{width}×{height}: {ssim}");
    }
}

#[test]
fn exif_orientations_come_out_upright() {
    let photo = Photo::new(160, 96);
    let Some(bytes) = cjpeg(&photo, &["-quality", "95"]) else {
        return;
    };
    for orientation in 1..=8_u8 {
        let mut tiff = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
        tiff.extend([orientation, 0, 0, 0, 0, 0, 0]);
        let mut turned = bytes[..2].to_vec();
        turned.extend([0xff, 0xe1]);
        turned.extend((tiff.len() as u16 + 2).to_be_bytes());
        turned.extend(&tiff);
        turned.extend(&bytes[2..]);
        let original = probe(&turned, &Limits::default()).expect("a header");
        assert_eq!(original.orientation.number(), orientation);
        let found = made(&turned, &sized(80, 0, Mode::Fit, Format::Png));
        let expected = if orientation < 5 { (80, 48) } else { (80, 133) };
        assert_eq!((found.width, found.height), expected, "{orientation}");
        // ImageMagick rotates it upright too.
        let Some(upright) = run(
            "/usr/bin/convert",
            &["jpeg:-", "-auto-orient", "-depth", "8", "ppm:-"],
            &turned,
        ) else {
            return;
        };
        let whole = pixels(&made(&turned, &whole(Format::Png)).bytes);
        let difference = whole.difference(&Photo::from_pnm(&upright));
        assert!(difference < 2.0, "{orientation}: {difference}");
    }
}

#[test]
fn nothing_of_the_metadata_is_left() {
    let photo = Photo::new(64, 48);
    let Some(bytes) = cjpeg(&photo, &["-quality", "90"]) else {
        return;
    };
    let secret = b"GPS 48.2N 16.3E of somebody's home";
    let mut tagged = bytes[..2].to_vec();
    for (marker, name) in [
        (0xe1, &b"Exif\0\0"[..]),
        (0xe1, b"http://ns.adobe.com/xap/1.0/\0"),
        (0xfe, b""),
    ] {
        tagged.extend([0xff, marker]);
        tagged.extend(((name.len() + secret.len()) as u16 + 2).to_be_bytes());
        tagged.extend(name);
        tagged.extend(secret);
    }
    tagged.extend(&bytes[2..]);
    for format in [Format::Jpeg, Format::Png, Format::WebP, Format::Gif] {
        let variant = made(&tagged, &whole(format)).bytes;
        assert!(!variant.windows(3).any(|bytes| bytes == b"GPS"), "{format}");
    }
}

#[test]
fn inks_are_shown_as_imagemagick_shows_them() {
    let photo = Photo::new(160, 96);
    let arguments = ["ppm:-", "-colorspace", "CMYK", "-quality", "95", "jpeg:-"];
    let Some(bytes) = run("/usr/bin/convert", &arguments, &photo.ppm()) else {
        return;
    };
    assert_eq!(probe(&bytes, &Limits::default()).expect("a header").channels, 4);
    let found = pixels(&made(&bytes, &whole(Format::Png)).bytes);
    assert!(found.ssim(&photo) > 0.9, "{}", found.ssim(&photo));
    assert!(found.difference(&photo) < 6.0, "{}", found.difference(&photo));
}

#[test]
fn pngs_of_every_depth_are_read_as_imagemagick_reads_them() {
    let photo = Photo::new(160, 96);
    for arguments in [
        &["-depth", "16", "png48:-"][..],
        &["-colorspace", "Gray", "-depth", "16", "png:-"],
        &[
            "-colorspace",
            "Gray",
            "-depth",
            "2",
            "-define",
            "png:color-type=0",
            "png:-",
        ],
        &["-colors", "64", "png8:-"],
        &["-interlace", "PNG", "png24:-"],
    ] {
        let Some(bytes) = run("/usr/bin/convert", &[&["ppm:-"], arguments].concat(), &photo.ppm()) else {
            return;
        };
        let Some(expected) = run("/usr/bin/convert", &["png:-", "-depth", "8", "ppm:-"], &bytes) else {
            return;
        };
        let found = pixels(&made(&bytes, &whole(Format::Png)).bytes);
        let difference = found.difference(&Photo::from_pnm(&expected));
        assert!(difference < 1.0, "{arguments:?}: {difference}");
    }
}

#[test]
fn webp_goes_both_ways() {
    let photo = Photo::new(300, 200);
    let Some(bytes) = run("cwebp", &["-quiet", "-q", "95", "-o", "-", "--", "-"], &photo.ppm()) else {
        return;
    };
    assert!(pixels(&made(&bytes, &whole(Format::Png)).bytes).ssim(&photo) > 0.9);
    let lossless = run(
        "cwebp",
        &["-quiet", "-lossless", "-exact", "-o", "-", "--", "-"],
        &photo.ppm(),
    );
    let Some(lossless) = lossless else { return };
    assert_eq!(pixels(&made(&lossless, &whole(Format::Png)).bytes), photo);
    let Some(ours) = run(
        "dwebp",
        &["-quiet", "-ppm", "-o", "-", "--", "-"],
        &made(&lossless, &whole(Format::WebP)).bytes,
    ) else {
        return;
    };
    assert!(Photo::from_pnm(&ours).ssim(&photo) > 0.9);
}

#[test]
fn what_is_to_stay_an_animation_is_no_single_picture() {
    let head = b"GIF89a\x01\0\x01\0\x80\0\0\xff\0\0\0\0\xff".to_vec();
    let frame = b"\x21\xf9\x04\0\x0a\0\0\0\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0";
    let gif = |frames: usize| [&head[..], &frame.repeat(frames), b";"].concat();
    let moving = Transform {
        moving: true,
        ..whole(Format::Png)
    };
    assert_eq!(made(&gif(1), &moving).frames, 1);
    let refused = render(&gif(2), &moving, &Limits::default());
    assert!(
        matches!(refused, Err(ImageError::Animated { format: Format::Png })),
        "{refused:?}"
    );
}

#[test]
fn an_animation_stays_one_where_it_may() {
    let frames: Vec<Photo> = (0..4).map(|number| Photo::new(60 + number, 40)).collect();
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, 64, 40, &[]).expect("an encoder");
    encoder.set_repeat(gif::Repeat::Infinite).expect("a loop");
    for photo in &frames {
        let mut frame = gif::Frame::from_rgb(photo.width as u16, photo.height as u16, &photo.data);
        frame.delay = 12;
        encoder.write_frame(&frame).expect("a frame");
    }
    drop(encoder);
    let small = |format, still| {
        let transform = Transform {
            still,
            ..sized(32, 0, Mode::Fit, format)
        };
        made(&bytes, &transform)
    };
    for format in [Format::Gif, Format::WebP] {
        let moving = small(format, false);
        assert_eq!((moving.frames, moving.width, moving.height), (4, 32, 20));
        let again = probe(&moving.bytes, &Limits::default()).expect("a header");
        assert_eq!((again.frames, again.width), (4, 32), "{format}");
        assert_eq!(small(format, true).frames, 1);
        let kept = Transform {
            moving: true,
            ..sized(32, 0, Mode::Fit, format)
        };
        assert_eq!(made(&bytes, &kept).frames, 4);
        assert_ne!(kept.key(), sized(32, 0, Mode::Fit, format).key());
        // Then back, as a still of another format.
        assert_eq!(made(&moving.bytes, &whole(Format::Png)).frames, 1);
    }
    assert_eq!(small(Format::Jpeg, false).frames, 1);
    let limits = Limits {
        frames: 3,
        ..Limits::default()
    };
    let many = render(&bytes, &sized(32, 0, Mode::Fit, Format::Gif), &limits);
    assert!(matches!(many, Err(ImageError::TooLarge { limit: 3, .. })));
    assert!(
        render(&bytes, &sized(32, 0, Mode::Fit, Format::Jpeg), &limits).is_ok(),
        "a still needs one frame only"
    );
}

#[test]
fn a_transparent_picture_becomes_white_or_what_is_asked_for() {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 40, 20);
    encoder.set_color(png::ColorType::Rgba);
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&[0; 40 * 20 * 4]).expect("pixels");
    writer.finish().expect("an end");
    let corner = |background| {
        let transform = Transform {
            background,
            ..sized(20, 10, Mode::Fit, Format::Jpeg)
        };
        let jpeg = made(&bytes, &transform).bytes;
        pixels(&made(&jpeg, &whole(Format::Png)).bytes).data[..3].to_vec()
    };
    assert!(corner(None).iter().all(|&value| value > 250));
    let red = corner(Some(Background([255, 0, 0, 255])));
    assert!(red[0] > 245 && red[1] < 12 && red[2] < 12, "{red:?}");
    let webp = made(&bytes, &whole(Format::WebP)).bytes;
    assert!(probe(&webp, &Limits::default()).expect("a header").alpha);
}

#[test]
fn a_region_is_the_part_that_djpeg_crops() {
    let photo = Photo::new(320, 240);
    let Some(bytes) = cjpeg(&photo, &["-quality", "95"]) else {
        return;
    };
    let transform = Transform {
        region: Some(Region {
            x: 64,
            y: 32,
            width: 128,
            height: 96,
        }),
        ..whole(Format::Png)
    };
    let Some(expected) = djpeg(&bytes, &["-crop", "128x96+64+32"]) else {
        return;
    };
    assert!(pixels(&made(&bytes, &transform).bytes).difference(&expected) < 1.5);
}

#[test]
fn grey_is_one_channel() {
    let photo = Photo::new(320, 240);
    let Some(bytes) = cjpeg(&photo, &["-quality", "95"]) else {
        return;
    };
    let transform = Transform {
        grey: true,
        ..sized(100, 100, Mode::Cover, Format::Jpeg)
    };
    let variant = made(&bytes, &transform);
    let original = probe(&variant.bytes, &Limits::default()).expect("a header");
    assert_eq!((original.channels, original.width, original.height), (1, 100, 100));
}

#[cfg(feature = "avif")]
#[test]
fn avif_is_read_by_others() {
    let photo = Photo::new(128, 96);
    let Some(bytes) = cjpeg(&photo, &["-quality", "95"]) else {
        return;
    };
    let variant = made(&bytes, &whole(Format::Avif));
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = (directory.path().join("a.avif"), directory.path().join("a.ppm"));
    std::fs::write(&from, &variant.bytes).expect("it is written");
    let paths = [from.to_str().expect("UTF-8"), to.to_str().expect("UTF-8")];
    if run("vips", &["copy", paths[0], paths[1]], b"").is_some() {
        let found = Photo::from_pnm(&std::fs::read(&to).expect("it is there"));
        assert!(found.ssim(&photo) > 0.9);
    }
}

#[cfg(feature = "avif")]
#[test]
fn an_avif_that_would_take_too_long_is_refused_before_any_work() {
    let mut bytes = Vec::new();
    jpeg_encoder::Encoder::new(&mut bytes, 90)
        .encode(&Photo::new(8, 8).data, 8, 8, jpeg_encoder::ColorType::Rgb)
        .expect("a JPEG");
    let rendered = |width, height, format| {
        let transform = sized(width, height, Mode::Fill, format);
        render(&bytes, &transform, &Limits::default())
    };
    for (side, expected) in [(4096, Excess::AvifPixels), (2000, Excess::Enlarged)] {
        let error = rendered(side, side, Format::Avif).expect_err("it would take seconds");
        assert!(
            matches!(error, ImageError::TooLarge { what, .. } if what == expected),
            "{error}"
        );
    }
    rendered(64, 64, Format::Avif).expect("a small one is made");
    rendered(2000, 2000, Format::Jpeg).expect("other formats are quick");
}
