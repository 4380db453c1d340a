//! Generated pictures, so that the tests need no files: a landscape with a sun, waves and grain.

/// An image in red, green and blue, eight bits each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Photo {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) data: Vec<u8>,
}

impl Photo {
    /// The landscape in any size, always with the same grain.
    pub(crate) fn new(width: u32, height: u32) -> Self {
        let mut random = fastrand::Rng::with_seed(7);
        let mut data = Vec::with_capacity(width as usize * height as usize * 3);
        for y in 0..height {
            for x in 0..width {
                let (u, v) = (f64::from(x) / f64::from(width), f64::from(y) / f64::from(height));
                let grain = f64::from(random.u8(..)) / 32.0 - 4.0;
                data.extend(colour(u, v).map(|value| (value + grain).clamp(0.0, 255.0) as u8));
            }
        }
        Self { width, height, data }
    }

    /// As a binary PPM, for the reference programs.
    pub(crate) fn ppm(&self) -> Vec<u8> {
        let mut ppm = format!("P6\n{} {}\n255\n", self.width, self.height).into_bytes();
        ppm.extend(&self.data);
        ppm
    }

    /// Reads the output of the reference programs: P5 and P6 with 8 bits. Grey becomes colour.
    pub(crate) fn from_pnm(pnm: &[u8]) -> Self {
        let mut at = 0;
        let mut word = || {
            loop {
                while pnm[at].is_ascii_whitespace() {
                    at += 1;
                }
                if pnm[at] != b'#' {
                    break;
                }
                while pnm[at] != b'\n' {
                    at += 1;
                }
            }
            let start = at;
            while !pnm[at].is_ascii_whitespace() {
                at += 1;
            }
            String::from_utf8(pnm[start..at].to_vec()).expect("a header of ASCII")
        };
        let kind = word();
        let (width, height) = (word().parse().expect("a width"), word().parse().expect("a height"));
        assert_eq!(word(), "255");
        let pixels = &pnm[at + 1..];
        let data = match kind.as_str() {
            "P6" => pixels.to_vec(),
            "P5" => pixels.iter().flat_map(|&value| [value; 3]).collect(),
            other => panic!("{other} is not read here"),
        };
        Self { width, height, data }
    }

    /// Reads a PNG of eight bits per channel. One with an opacity channel must be opaque everywhere.
    pub(crate) fn from_png(png: &[u8]) -> Self {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(png));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().expect("a header");
        let mut data = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut data).expect("pixels");
        let data = match info.color_type {
            png::ColorType::Rgb => data,
            png::ColorType::Rgba => {
                assert!(data.chunks_exact(4).all(|pixel| pixel[3] == 255), "it is opaque");
                data.chunks_exact(4)
                    .flat_map(|pixel| [pixel[0], pixel[1], pixel[2]])
                    .collect()
            }
            png::ColorType::Grayscale => data.iter().flat_map(|&value| [value; 3]).collect(),
            other => panic!("{other:?} is not compared here"),
        };
        Self {
            width: info.width,
            height: info.height,
            data,
        }
    }

    /// Brightness of each pixel.
    fn luma(&self) -> Vec<f64> {
        let luma =
            |pixel: &[u8]| 0.299 * f64::from(pixel[0]) + 0.587 * f64::from(pixel[1]) + 0.114 * f64::from(pixel[2]);
        self.data.chunks_exact(3).map(luma).collect()
    }

    /// Structural similarity of the brightness (Wang et al. 2004) in blocks of 8 × 8; 1 is equal.
    pub(crate) fn ssim(&self, other: &Self) -> f64 {
        assert_eq!((self.width, self.height), (other.width, other.height), "of one size");
        let (one, two) = (self.luma(), other.luma());
        let (width, height) = (self.width as usize, self.height as usize);
        let mut sum = 0.0;
        let mut blocks = 0.0;
        for top in (0..height.saturating_sub(7)).step_by(4) {
            for left in (0..width.saturating_sub(7)).step_by(4) {
                let block = |luma: &[f64]| -> Vec<f64> {
                    let rows = (top..top + 8).map(|y| &luma[y * width + left..][..8]);
                    rows.flatten().copied().collect()
                };
                sum += similarity(&block(&one), &block(&two));
                blocks += 1.0;
            }
        }
        sum / blocks
    }

    /// Mean difference of all channels.
    pub(crate) fn difference(&self, other: &Self) -> f64 {
        assert_eq!((self.width, self.height), (other.width, other.height), "of one size");
        let sum: u64 = self
            .data
            .iter()
            .zip(&other.data)
            .map(|(a, b)| u64::from(a.abs_diff(*b)))
            .sum();
        sum as f64 / self.data.len() as f64
    }
}

fn colour(u: f64, v: f64) -> [f64; 3] {
    let hill = 0.6 + 0.08 * (u * 9.0).sin() + 0.05 * (u * 23.0).cos() + 0.01 * (u * 190.0).sin();
    let sun = (-((u - 0.7).powi(2) + (v - 0.3).powi(2)) * 90.0).exp();
    if v < hill {
        let cloud = 30.0 * ((u * 17.0 + v * 5.0).sin() * (v * 31.0).cos()).max(0.0);
        return [
            90.0 + 160.0 * sun + cloud,
            140.0 + 90.0 * sun + cloud,
            215.0 - 60.0 * sun + cloud,
        ];
    }
    let field = 35.0 * ((u * 140.0).sin() * (v * 170.0).sin()) + 25.0 * (v - hill);
    [70.0 + field, 110.0 + field * 1.2, 45.0 + field * 0.6]
}

fn similarity(one: &[f64], two: &[f64]) -> f64 {
    let count = one.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
    let (mean_one, mean_two) = (mean(one), mean(two));
    let (mut var_one, mut var_two, mut both) = (0.0, 0.0, 0.0);
    for (a, b) in one.iter().zip(two) {
        var_one += (a - mean_one).powi(2) / (count - 1.0);
        var_two += (b - mean_two).powi(2) / (count - 1.0);
        both += (a - mean_one) * (b - mean_two) / (count - 1.0);
    }
    let (c1, c2) = (6.5025, 58.5225);
    (2.0 * mean_one * mean_two + c1) * (2.0 * both + c2)
        / ((mean_one.powi(2) + mean_two.powi(2) + c1) * (var_one + var_two + c2))
}
