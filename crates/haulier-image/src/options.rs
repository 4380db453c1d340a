//! The parameters of a variant: one normalised [`Transform`] for all spellings of a query.
//!
//! [`zimg::parse`] reads queries as zimg does, [`native::parse`] strictly. Presets are native queries in the
//! configuration. Queries of the same meaning have the same [`Transform::key`].

pub mod accept;
mod extra;
mod hints;
pub mod native;
mod query;
pub mod zimg;

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

pub use self::hints::{Hinted, Hints};

use crate::error::ImageError;
use crate::format::Format;
use crate::limits::Limits;

/// Part of every key. It is raised when the output of an encoder or a step changes, so that stored variants are
/// rendered again.
const GENERATION: u32 = 1;

/// The meaning of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// The bytes of the original, untouched.
    Original,
    /// A variant.
    Transform(Transform),
    /// The variant that a preset of this name describes.
    Preset(String),
}

/// Values of parameters that a query omits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults {
    /// The format of answers; JPEG for zimg.
    pub format: FormatChoice,
    /// Quality from 1 to 100, if the format has one.
    pub quality: u8,
    /// Images may be enlarged (the opposite of zimg's `disable_zoom_up`).
    pub enlarge: bool,
    /// Variants keep author and copyright of the original.
    pub copyright: bool,
    /// Behaviour of zimg 1: the height decides if both sizes are given, nothing is enlarged, answers are JPEG at 75 %
    /// of the original's quality.
    pub first_version: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            format: FormatChoice::Keep,
            quality: 75,
            enlarge: true,
            copyright: false,
            first_version: false,
        }
    }
}

/// A variant: all operations on an original, in the order of the fields. Sizes are in pixels of the upright image. An
/// operation with its default value costs nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transform {
    /// Cut off a border of one colour first: the tolerance per channel, 0 to 255.
    pub trim: Option<u8>,
    /// Region that is cut out before scaling.
    pub region: Option<Region>,
    /// The requested size.
    pub size: Size,
    /// Fitting of the image into the size.
    pub mode: Mode,
    /// The image may be enlarged.
    pub enlarge: bool,
    /// The part that stays visible if the image is cropped.
    pub gravity: Gravity,
    /// Scale in linear light instead of in sRGB values.
    pub linear: bool,
    /// Rotation in degrees clockwise, 0 to 359; the corners are filled with the background.
    pub rotate: u16,
    /// Mirroring, after the rotation.
    pub flip: Flip,
    /// Convert to grey.
    pub grey: bool,
    /// Standard deviation of a Gaussian blur, hundredths of a pixel; 0 is none.
    pub blur: u16,
    /// Strength of an unsharp mask, hundredths; 0 is none.
    pub sharpen: u16,
    /// Border around the image.
    pub pad: Pad,
    /// Colour below transparent pixels and around the image. Without it transparency stays, or becomes white if the
    /// format has none.
    pub background: Option<Background>,
    /// The format of the answer.
    pub format: FormatChoice,
    /// Quality of the encoding.
    pub quality: Quality,
    /// Most bytes of the answer, reached by lowering the quality if the format has one; 0 is no limit.
    pub bytes: u32,
    /// Only the first picture of an animation.
    pub still: bool,
    /// An animation is refused if the format holds only one picture, so that another format of the client can be tried.
    pub moving: bool,
    /// Keep author and copyright of the original; all other metadata is dropped.
    pub copyright: bool,
    /// The query gave a pixel density, and the sizes are multiplied by it, so client hints are ignored. It is not part
    /// of the key, and not sent to workers.
    #[serde(skip)]
    pub has_density: bool,
}

impl Default for Transform {
    /// The whole image in its own format.
    fn default() -> Self {
        Self {
            trim: None,
            region: None,
            size: Size::default(),
            mode: Mode::Cover,
            enlarge: true,
            gravity: Gravity::Centre,
            linear: false,
            rotate: 0,
            flip: Flip::default(),
            grey: false,
            blur: 0,
            sharpen: 0,
            pad: Pad::default(),
            background: None,
            format: FormatChoice::Keep,
            quality: Quality::Fixed(75),
            bytes: 0,
            still: false,
            moving: false,
            copyright: false,
            has_density: false,
        }
    }
}

impl Transform {
    /// Sets the format that [`accept::choose`] found, which completes the key.
    pub fn settle(&mut self, format: Format) {
        self.format = FormatChoice::As(format);
    }

    /// The name of the variant: printable ASCII without spaces and slashes. It is the same for all queries of the same
    /// meaning, and changes with a release that renders other bytes.
    #[must_use]
    pub fn key(&self) -> String {
        let mut key = VariantKey(format!("{GENERATION}"));
        self.write_geometry(&mut key);
        self.write_effects(&mut key);
        self.write_encoding(&mut key);
        key.0
    }

    fn write_geometry(&self, key: &mut VariantKey) {
        if let Some(tolerance) = self.trim {
            key.add(format_args!("trim{tolerance}"));
        }
        if let Some(Region { x, y, width, height }) = self.region {
            key.add(format_args!("cut{x}+{y}+{width}x{height}"));
        }
        if self.size == Size::default() {
            return;
        }
        let unit = if self.size.unit == Unit::Percent { "%" } else { "" };
        let Size { width, height, .. } = self.size;
        key.add(format_args!("{}{width}x{height}{unit}", self.mode.as_str()));
        key.add_if(!self.enlarge && self.mode != Mode::ScaleDown, "small");
        key.add_if(self.linear, "linear");
        match self.gravity {
            Gravity::Centre => {}
            Gravity::Focal { x, y } => key.add(format_args!("at{x}+{y}")),
            named => key.add(format_args!("{}", named.as_str())),
        }
    }

    fn write_effects(&self, key: &mut VariantKey) {
        if self.rotate != 0 {
            key.add(format_args!("turn{}", self.rotate));
        }
        if self.flip != Flip::default() {
            let Flip { horizontal, vertical } = self.flip;
            key.add(format_args!("flip{}{}", u8::from(horizontal), u8::from(vertical)));
        }
        key.add_if(self.grey, "grey");
        if self.blur != 0 {
            key.add(format_args!("blur{}", self.blur));
        }
        if self.sharpen != 0 {
            key.add(format_args!("sharpen{}", self.sharpen));
        }
        if self.pad != Pad::default() {
            let Pad {
                top,
                right,
                bottom,
                left,
            } = self.pad;
            key.add(format_args!("pad{top}+{right}+{bottom}+{left}"));
        }
        if let Some(Background([red, green, blue, alpha])) = self.background {
            key.add(format_args!("on{red:02x}{green:02x}{blue:02x}{alpha:02x}"));
        }
    }

    fn write_encoding(&self, key: &mut VariantKey) {
        match self.quality {
            Quality::Fixed(quality) => key.add(format_args!("q{quality}")),
            Quality::OfOriginal(percent) => key.add(format_args!("q{percent}%")),
        }
        if self.bytes != 0 {
            key.add(format_args!("most{}", self.bytes));
        }
        key.add_if(self.still, "still");
        key.add_if(self.moving, "moving");
        key.add_if(self.copyright, "copyright");
        key.add(format_args!(
            "{}",
            match self.format {
                FormatChoice::Keep => "keep",
                FormatChoice::Auto => "auto",
                FormatChoice::As(format) => format.as_str(),
            }
        ));
    }

    /// Checks the size against the limit of answers, as far as that is possible without the original.
    ///
    /// # Errors
    /// [`ImageError::TooLarge`] with [`crate::Excess::Output`].
    pub fn check(&self, limits: &Limits) -> Result<(), ImageError> {
        if self.size.unit == Unit::Percent {
            return Ok(());
        }
        let Pad {
            top,
            right,
            bottom,
            left,
        } = self.pad;
        let width = self.size.width.saturating_add(left).saturating_add(right);
        let height = self.size.height.saturating_add(top).saturating_add(bottom);
        limits.check_output(width, height)
    }

    /// Multiplies all sizes in pixels by this factor, in hundredths.
    fn times(&mut self, hundredths: u16) {
        let times = |side: u32| (u64::from(side) * u64::from(hundredths) / 100).min(u64::from(u32::MAX)) as u32;
        if self.size.unit == Unit::Pixels {
            self.size.width = times(self.size.width);
            self.size.height = times(self.size.height);
        }
        let Pad {
            top,
            right,
            bottom,
            left,
        } = self.pad;
        self.pad = Pad {
            top: times(top),
            right: times(right),
            bottom: times(bottom),
            left: times(left),
        };
    }

    /// Rounds the longer side up to a step of the ladder, or down to its last, which limits the number of stored
    /// variants. The ratio of the sides stays. An image that is cropped without scaling keeps its size. The ladder must
    /// ascend.
    pub fn round_to(&mut self, ladder: &[u32]) {
        let Size { width, height, unit } = self.size;
        let leading = width.max(height);
        let is_scaled = unit == Unit::Pixels && self.mode != Mode::Crop;
        if !is_scaled || leading == 0 || ladder.is_empty() {
            return;
        }
        let step = ladder.iter().copied().find(|&step| step >= leading);
        let step = u64::from(step.unwrap_or(ladder[ladder.len() - 1]));
        let scaled = |side: u32| ((u64::from(side) * step + u64::from(leading) / 2) / u64::from(leading)) as u32;
        self.size.width = scaled(width).max(u32::from(width > 0));
        self.size.height = scaled(height).max(u32::from(height > 0));
    }
}

/// A key of a variant, in parts.
struct VariantKey(String);

impl VariantKey {
    fn add(&mut self, part: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, ",{part}");
    }

    fn add_if(&mut self, is_set: bool, part: &str) {
        if is_set {
            self.add(format_args!("{part}"));
        }
    }
}

/// A size. A side of 0 follows from the other side and the ratio; if both are 0, the image keeps its size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
    /// Unit of both.
    pub unit: Unit,
}

/// The unit of a size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Pixels.
    #[default]
    Pixels,
    /// Percent of the image's own sides.
    Percent,
}

/// Fitting of an image into a size of another ratio. If only one side is given, every mode keeps the ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Fills the size; overhanging parts are cropped (zimg's p=1).
    Cover,
    /// As large as fits, with background around it up to the size.
    Contain,
    /// As large as fits (zimg's p=4).
    Fit,
    /// Stretched to exactly the size (zimg's p=0 and p=3).
    Fill,
    /// As `Fit`, never enlarged.
    ScaleDown,
    /// Cut out, not scaled (zimg's p=2).
    Crop,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 6] = [
        Self::Cover,
        Self::Contain,
        Self::Fit,
        Self::Fill,
        Self::ScaleDown,
        Self::Crop,
    ];

    /// Its name in queries.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cover => "cover",
            Self::Contain => "contain",
            Self::Fit => "fit",
            Self::Fill => "fill",
            Self::ScaleDown => "scale-down",
            Self::Crop => "crop",
        }
    }
}

/// The part that stays if the picture is cropped, and its position if it is padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gravity {
    /// The middle.
    Centre,
    /// The upper edge.
    North,
    /// The upper right corner.
    NorthEast,
    /// The right edge.
    East,
    /// The lower right corner.
    SouthEast,
    /// The lower edge.
    South,
    /// The lower left corner.
    SouthWest,
    /// The left edge.
    West,
    /// The upper left corner.
    NorthWest,
    /// A point, as near to the middle as the edges allow; thousandths of width and height.
    Focal {
        /// From the left.
        x: u16,
        /// From the top.
        y: u16,
    },
    /// The part with most detail, by the entropy of the brightness.
    Entropy,
    /// The part with most edges, saturated colours and skin colours.
    Attention,
}

impl Gravity {
    /// All values with a name in queries.
    pub const NAMED: [Self; 11] = [
        Self::Centre,
        Self::North,
        Self::NorthEast,
        Self::East,
        Self::SouthEast,
        Self::South,
        Self::SouthWest,
        Self::West,
        Self::NorthWest,
        Self::Entropy,
        Self::Attention,
    ];

    /// Its name in queries.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Centre => "center",
            Self::North => "north",
            Self::NorthEast => "northeast",
            Self::East => "east",
            Self::SouthEast => "southeast",
            Self::South => "south",
            Self::SouthWest => "southwest",
            Self::West => "west",
            Self::NorthWest => "northwest",
            Self::Focal { .. } => "focal",
            Self::Entropy => "entropy",
            Self::Attention => "attention",
        }
    }

    /// Position from 0 (left, top) to 1 (right, bottom). Values that analyse the picture begin in the middle.
    pub(crate) fn anchor(self) -> (f64, f64) {
        match self {
            Self::Centre | Self::Entropy | Self::Attention => (0.5, 0.5),
            Self::North => (0.5, 0.0),
            Self::NorthEast => (1.0, 0.0),
            Self::East => (1.0, 0.5),
            Self::SouthEast => (1.0, 1.0),
            Self::South => (0.5, 1.0),
            Self::SouthWest => (0.0, 1.0),
            Self::West => (0.0, 0.5),
            Self::NorthWest => (0.0, 0.0),
            Self::Focal { x, y } => (f64::from(x) / 1000.0, f64::from(y) / 1000.0),
        }
    }
}

/// A part of the upright image, pixels of the original. A width or height of 0, or beyond the edge, ends at the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// From the left.
    pub x: u32,
    /// From the top.
    pub y: u32,
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
}

/// Mirroring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flip {
    /// Left becomes right.
    pub horizontal: bool,
    /// Top becomes bottom.
    pub vertical: bool,
}

/// Background added at the sides, pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pad {
    /// Above.
    pub top: u32,
    /// At the right.
    pub right: u32,
    /// Below.
    pub bottom: u32,
    /// At the left.
    pub left: u32,
}

/// A colour in sRGB: red, green, blue, opacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background(pub [u8; 4]);

impl Background {
    /// Opaque white.
    pub const WHITE: Self = Self([255; 4]);
}

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FormatChoice {
    /// The original's; JPEG if that cannot be written.
    Keep,
    /// The best format that the client accepts; [`accept::choose`] and [`Transform::settle`] replace it before
    /// rendering.
    Auto,
    /// This one.
    As(Format),
}

/// Quality of an encoding. It is at most that of a JPEG original, whose artefacts would only cost bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quality {
    /// 1 to 100.
    Fixed(u8),
    /// Percent of the original's quality, as in zimg 1.
    OfOriginal(u8),
}

impl Quality {
    /// The quality to encode with, given the original's if that is known.
    pub(crate) fn of(self, original: Option<u8>) -> u8 {
        let quality = match self {
            Self::Fixed(quality) => quality.min(original.unwrap_or(100)),
            Self::OfOriginal(percent) => (u32::from(original.unwrap_or(100)) * u32::from(percent) / 100) as u8,
        };
        quality.clamp(1, 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_plain_variant_is_short() {
        assert_eq!(Transform::default().key(), "1,q75,keep");
    }

    #[test]
    fn the_key_names_all_that_is_asked_for() {
        let transform = Transform {
            trim: Some(10),
            region: Some(Region {
                x: 1,
                y: 2,
                width: 300,
                height: 0,
            }),
            size: Size {
                width: 100,
                height: 50,
                unit: Unit::Pixels,
            },
            enlarge: false,
            gravity: Gravity::Focal { x: 300, y: 1000 },
            linear: true,
            rotate: 90,
            flip: Flip {
                horizontal: true,
                vertical: false,
            },
            grey: true,
            blur: 150,
            sharpen: 50,
            pad: Pad {
                top: 1,
                right: 2,
                bottom: 3,
                left: 4,
            },
            background: Some(Background([255, 0, 128, 255])),
            format: FormatChoice::As(Format::WebP),
            quality: Quality::OfOriginal(75),
            still: true,
            copyright: true,
            ..Transform::default()
        };
        assert_eq!(
            transform.key(),
            "1,trim10,cut1+2+300x0,cover100x50,small,linear,at300+1000,turn90,flip10,grey,blur150,sharpen50,\
             pad1+2+3+4,onff0080ff,q75%,still,copyright,webp"
        );
    }

    #[test]
    fn what_changes_nothing_is_not_in_the_key() {
        let unscaled = Transform {
            mode: Mode::Fit,
            gravity: Gravity::Entropy,
            enlarge: false,
            ..Transform::default()
        };
        assert_eq!(unscaled.key(), Transform::default().key());
    }

    #[test]
    fn a_size_beyond_the_limit_is_refused_without_an_original() {
        let limits = Limits::default();
        let of = |width, height, unit, pad| Transform {
            size: Size { width, height, unit },
            pad,
            ..Transform::default()
        };
        assert!(of(4096, 0, Unit::Pixels, Pad::default()).check(&limits).is_ok());
        assert!(of(9000, 9000, Unit::Pixels, Pad::default()).check(&limits).is_err());
        assert!(of(9000, 9000, Unit::Percent, Pad::default()).check(&limits).is_ok());
        let wide = Pad {
            right: u32::MAX,
            ..Pad::default()
        };
        assert!(of(10, 10, Unit::Pixels, wide).check(&limits).is_err());
    }

    #[test]
    fn sizes_are_rounded_to_a_ladder_and_keep_their_ratio() {
        let ladder = [100, 200, 400];
        for ((width, height), expected) in [
            ((0, 0), (0, 0)),
            ((90, 0), (100, 0)),
            ((100, 50), (100, 50)),
            ((150, 75), (200, 100)),
            ((3, 900), (1, 400)),
        ] {
            let mut transform = Transform {
                size: Size {
                    width,
                    height,
                    unit: Unit::Pixels,
                },
                ..Transform::default()
            };
            transform.round_to(&ladder);
            assert_eq!((transform.size.width, transform.size.height), expected);
        }
    }

    #[test]
    fn quality_never_rises_above_the_originals() {
        assert_eq!(Quality::Fixed(75).of(None), 75);
        assert_eq!(Quality::Fixed(75).of(Some(60)), 60);
        assert_eq!(Quality::Fixed(75).of(Some(98)), 75);
        assert_eq!(Quality::OfOriginal(75).of(Some(80)), 60);
        assert_eq!(Quality::OfOriginal(75).of(Some(1)), 1);
    }

    #[test]
    fn a_transform_survives_the_way_to_its_worker() {
        let transform = Transform {
            gravity: Gravity::Focal { x: 1, y: 2 },
            background: Some(Background::WHITE),
            format: FormatChoice::As(Format::Avif),
            ..Transform::default()
        };
        let sent = serde_json::to_vec(&transform).expect("plain data");
        assert_eq!(
            serde_json::from_slice::<Transform>(&sent).expect("the same data"),
            transform
        );
    }
}
