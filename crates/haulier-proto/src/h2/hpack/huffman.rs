//! The Huffman code of HPACK (RFC 7541 §5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols. So only the
//! lengths are written here; the compiler computes codes and decoding table from them.

use super::HpackError;

/// The symbol that must never be sent.
const EOS: usize = 256;

/// Bits of the code of each symbol, EOS last.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const CODES: [u32; 257] = codes();

const fn codes() -> [u32; 257] {
    let mut codes = [0; 257];
    let (mut next, mut length) = (0, 5);
    while length <= 30 {
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] == length {
                codes[symbol] = next;
                next += 1;
            }
            symbol += 1;
        }
        next <<= 1;
        length += 1;
    }
    codes
}

/// The effect of four more bits.
#[derive(Clone, Copy)]
struct NibbleStep {
    /// The inner node of the code tree reached.
    node: u8,
    /// The symbol completed on the way; no code is shorter than 5 bits, so there is at most one.
    symbol: u8,
    emits: bool,
    /// The bits contain EOS.
    fails: bool,
}

/// Steps from each inner node of the code tree; node 0 is its root.
static STEPS: [[NibbleStep; 16]; 256] = steps();
/// The nodes at which a string may end: the root, and those at most 7 ones below it.
static MAY_END: [bool; 256] = ends();

/// Children of each inner node: below 256 an inner node, above it 256 + a symbol.
const fn tree() -> [[u16; 2]; 256] {
    let mut tree = [[0; 2]; 256];
    let (mut nodes, mut symbol) = (1, 0);
    while symbol < LENGTHS.len() {
        let (mut node, mut left) = (0, LENGTHS[symbol]);
        while left > 1 {
            left -= 1;
            let bit = (CODES[symbol] >> left & 1) as usize;
            if tree[node][bit] == 0 {
                tree[node][bit] = nodes;
                nodes += 1;
            }
            node = tree[node][bit] as usize;
        }
        tree[node][(CODES[symbol] & 1) as usize] = 256 + symbol as u16;
        symbol += 1;
    }
    tree
}

const fn steps() -> [[NibbleStep; 16]; 256] {
    let tree = tree();
    let nowhere = NibbleStep {
        node: 0,
        symbol: 0,
        emits: false,
        fails: false,
    };
    let mut steps = [[nowhere; 16]; 256];
    let mut start = 0;
    while start < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            steps[start][nibble] = step(&tree, start, nibble);
            nibble += 1;
        }
        start += 1;
    }
    steps
}

const fn step(tree: &[[u16; 2]; 256], start: usize, nibble: usize) -> NibbleStep {
    let mut step = NibbleStep {
        node: 0,
        symbol: 0,
        emits: false,
        fails: false,
    };
    let (mut node, mut bits) = (start, 4);
    while bits > 0 {
        bits -= 1;
        let child = tree[node][nibble >> bits & 1] as usize;
        if child < 256 {
            node = child;
        } else if child == 256 + EOS {
            step.fails = true;
            node = 0;
        } else {
            step.symbol = (child - 256) as u8;
            step.emits = true;
            node = 0;
        }
    }
    step.node = node as u8;
    step
}

const fn ends() -> [bool; 256] {
    let tree = tree();
    let mut ends = [false; 256];
    let (mut node, mut ones) = (0, 0);
    while ones <= 7 {
        ends[node] = true;
        node = tree[node][1] as usize;
        ones += 1;
    }
    ends
}

/// Decodes `coded` and appends the text: at most 8/5 of its length.
///
/// # Errors
/// [`HpackError::Huffman`]; part of the text may have been appended.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    out.reserve(coded.len() * 8 / 5);
    let mut node = 0;
    for &byte in coded {
        for nibble in [byte >> 4, byte & 15] {
            let step = STEPS[usize::from(node)][usize::from(nibble)];
            if step.emits {
                out.push(step.symbol);
            }
            if step.fails {
                return Err(HpackError::Huffman);
            }
            node = step.node;
        }
    }
    if MAY_END[usize::from(node)] {
        Ok(())
    } else {
        Err(HpackError::Huffman)
    }
}

/// Bytes that [`encode`] would append.
#[must_use]
pub fn encoded_length(text: &[u8]) -> usize {
    text.iter()
        .map(|&byte| usize::from(LENGTHS[usize::from(byte)]))
        .sum::<usize>()
        .div_ceil(8)
}

/// Appends the code of `text`, padded with ones to a whole byte.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut waiting) = (0u64, 0u32);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(CODES[usize::from(byte)]);
        waiting += length;
        while waiting >= 8 {
            waiting -= 8;
            out.push((bits >> waiting) as u8);
        }
    }
    if waiting > 0 {
        out.push((bits << (8 - waiting)) as u8 | 0xff >> waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_appendix_b() {
        let samples = [
            (0, 0x1ff8),
            (usize::from(b' '), 0x14),
            (usize::from(b'0'), 0),
            (usize::from(b'a'), 3),
            (usize::from(b'z'), 0x7b),
            (usize::from(b'\\'), 0x7_fff0),
            (127, 0xfff_fffc),
            (200, 0x3ff_ffe2),
            (249, 0xfff_fffe),
            (255, 0x3ff_ffee),
            (EOS, 0x3fff_ffff),
        ];
        for (symbol, code) in samples {
            assert_eq!(CODES[symbol], code, "symbol {symbol}");
        }
    }

    #[test]
    fn every_byte_survives_encoding() {
        let text: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        let mut coded = Vec::new();
        encode(&text, &mut coded);
        assert_eq!(coded.len(), encoded_length(&text));
        let mut back = Vec::new();
        decode(&coded, &mut back).expect("our own code");
        assert_eq!(back, text);
    }

    #[test]
    fn padding_of_eight_bits_or_of_zeros_is_refused() {
        let mut out = Vec::new();
        assert_eq!(decode(b"\x1f", &mut out), Ok(()), "a, then three ones");
        assert_eq!(decode(b"\x1f\xff", &mut out), Err(HpackError::Huffman));
        assert_eq!(decode(b"\x18", &mut out), Err(HpackError::Huffman));
        assert_eq!(decode(b"\xff", &mut out), Err(HpackError::Huffman));
    }

    #[test]
    fn the_end_symbol_is_refused() {
        assert_eq!(decode(b"\xff\xff\xff\xff", &mut Vec::new()), Err(HpackError::Huffman));
    }
}
