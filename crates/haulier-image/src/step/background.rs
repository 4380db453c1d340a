//! Puts the background below transparent pixels.

use crate::error::ImageError;
use crate::options::Background;
use crate::raster::PixelKind;
use crate::step::frame::Frame;

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    let wanted = frame.transform.background;
    if !frame.raster.kind.has_alpha() || (wanted.is_none() && frame.format.has_alpha()) {
        return Ok(());
    }
    let Background(colour) = wanted.unwrap_or(Background::WHITE);
    // In a format without transparency, white is below a background that is itself transparent.
    let opaque = colour[3] == 255 || !frame.format.has_alpha();
    let colour = if opaque {
        over([colour[0], colour[1], colour[2], colour[3]], [255; 4])
    } else {
        colour
    };
    let is_grey = frame.raster.kind == PixelKind::GreyAlpha;
    let painted = frame.raster.map(PixelKind::Rgba, |pixel| {
        let pixel = if is_grey {
            [pixel[0], pixel[0], pixel[0], pixel[1]]
        } else {
            [pixel[0], pixel[1], pixel[2], pixel[3]]
        };
        over(pixel, colour)
    });
    let grey_background = colour[0] == colour[1] && colour[1] == colour[2];
    let stays_grey = is_grey && (grey_background || frame.transform.grey);
    frame.raster = match (opaque, stays_grey) {
        (true, true) => painted.map(PixelKind::Grey, |pixel| [pixel[0]]),
        (true, false) => painted.map(PixelKind::Rgb, |pixel| [pixel[0], pixel[1], pixel[2]]),
        (false, true) => painted.map(PixelKind::GreyAlpha, |pixel| [pixel[0], pixel[3]]),
        (false, false) => painted,
    };
    Ok(())
}

/// Composes one colour over another, neither premultiplied.
fn over(above: [u8; 4], below: [u8; 4]) -> [u8; 4] {
    let top = u32::from(above[3]) * 255;
    let bottom = u32::from(below[3]) * (255 - u32::from(above[3]));
    let all = top + bottom;
    if all == 0 {
        return [255, 255, 255, 0];
    }
    let mixed = |channel: usize| {
        let sum = u32::from(above[channel]) * top + u32::from(below[channel]) * bottom;
        ((sum + all / 2) / all) as u8
    };
    [mixed(0), mixed(1), mixed(2), ((all + 127) / 255) as u8]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use crate::options::Transform;
    use crate::raster::Raster;
    use crate::step::testing::run;

    fn shown(kind: PixelKind, pixel: &[u8], background: Option<[u8; 4]>, format: Format) -> Raster {
        let transform = Transform {
            background: background.map(Background),
            ..Transform::default()
        };
        run(apply, Raster::filled(1, 1, kind, pixel), &transform, format, 1).expect("it is painted")
    }

    #[test]
    fn white_stands_in_where_there_is_no_transparency() {
        let jpeg = shown(PixelKind::Rgba, &[100, 0, 0, 0], None, Format::Jpeg);
        assert_eq!((jpeg.kind, &jpeg.data[..]), (PixelKind::Rgb, &[255, 255, 255][..]));
        let grey = shown(PixelKind::GreyAlpha, &[0, 128], None, Format::Jpeg);
        assert_eq!((grey.kind, &grey.data[..]), (PixelKind::Grey, &[127][..]));
    }

    #[test]
    fn transparency_stays_where_the_format_has_it() {
        let png = shown(PixelKind::Rgba, &[100, 0, 0, 7], None, Format::Png);
        assert_eq!(png.data, [100, 0, 0, 7]);
    }

    #[test]
    fn a_background_that_is_asked_for_shows() {
        let png = shown(PixelKind::Rgba, &[100, 0, 0, 51], Some([0, 100, 0, 255]), Format::Png);
        assert_eq!((png.kind, &png.data[..]), (PixelKind::Rgb, &[20, 80, 0][..]));
        let coloured = shown(PixelKind::GreyAlpha, &[9, 0], Some([0, 100, 0, 255]), Format::WebP);
        assert_eq!((coloured.kind, &coloured.data[..]), (PixelKind::Rgb, &[0, 100, 0][..]));
    }

    #[test]
    fn a_half_transparent_background_stays_so_or_lies_on_white() {
        let png = shown(PixelKind::Rgba, &[0, 0, 0, 0], Some([0, 0, 0, 128]), Format::Png);
        assert_eq!(png.data, [0, 0, 0, 128]);
        let jpeg = shown(PixelKind::Rgba, &[0, 0, 0, 0], Some([0, 0, 0, 128]), Format::Jpeg);
        assert_eq!(jpeg.data, [127, 127, 127]);
    }
}
