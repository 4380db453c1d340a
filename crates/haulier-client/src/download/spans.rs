//! The ranges of a file that are there, as the record of a `.part` file keeps them.

use serde::{Deserialize, Serialize};

/// Half-open runs of bytes, sorted, neither touching nor overlapping.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Spans(Vec<(u64, u64)>);

/// Sorts and merges the ranges of a record, so that a damaged one cannot break the invariant.
impl From<Vec<(u64, u64)>> for Spans {
    fn from(pairs: Vec<(u64, u64)>) -> Self {
        let mut spans = Self::default();
        for (start, end) in pairs {
            spans.insert(start, end);
        }
        spans
    }
}

impl From<Spans> for Vec<(u64, u64)> {
    fn from(spans: Spans) -> Self {
        spans.0
    }
}

impl Spans {
    /// Adds the bytes from `start` up to `end`, which is not included.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.0.partition_point(|&(_, before)| before < start);
        let behind = self.0.partition_point(|&(from, _)| from <= end);
        let (mut start, mut end) = (start, end);
        if first < behind {
            start = start.min(self.0[first].0);
            end = end.max(self.0[behind - 1].1);
        }
        self.0.splice(first..behind, [(start, end)]);
    }

    /// Takes the bytes from `start` up to `end` out.
    pub fn remove(&mut self, start: u64, end: u64) {
        let kept = self
            .0
            .iter()
            .flat_map(|&(from, to)| [(from, to.min(start)), (from.max(end), to)]);
        self.0 = kept.filter(|(from, to)| from < to).collect();
    }

    /// True if all bytes from `start` up to `end` are there.
    #[must_use]
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let behind = self.0.partition_point(|&(from, _)| from <= start);
        self.0[..behind].last().is_some_and(|&(_, to)| to >= end)
    }

    /// True if at least one byte from `start` up to `end` is there.
    #[must_use]
    pub fn touches(&self, start: u64, end: u64) -> bool {
        let behind = self.0.partition_point(|&(from, _)| from < end);
        self.0[..behind].last().is_some_and(|&(_, to)| to > start)
    }

    /// The number of bytes in all.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The length of the part that is whole from the first byte.
    #[must_use]
    pub fn prefix(&self) -> u64 {
        match self.0.first() {
            Some(&(0, end)) => end,
            _ => 0,
        }
    }

    /// The missing ranges of `total` bytes, in order.
    #[must_use]
    pub fn gaps(&self, total: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for &(start, end) in &self.0 {
            if at < start.min(total) {
                gaps.push((at, start.min(total)));
            }
            at = end;
        }
        if at < total {
            gaps.push((at, total));
        }
        gaps
    }

    /// True if no byte lies beyond `total`.
    #[must_use]
    pub fn fits(&self, total: u64) -> bool {
        self.0.last().is_none_or(|&(_, end)| end <= total)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_that_touch_become_one() {
        let mut spans = Spans::default();
        for (start, end) in [(10, 20), (30, 40), (20, 30), (0, 5), (7, 7)] {
            spans.insert(start, end);
        }
        assert_eq!(Vec::from(spans.clone()), [(0, 5), (10, 40)]);
        assert_eq!((spans.len(), spans.prefix()), (35, 5));
        assert_eq!(spans.gaps(50), [(5, 10), (40, 50)]);
        assert_eq!(spans.gaps(12), [(5, 10)]);
        assert!(spans.fits(40) && !spans.fits(39));
        assert!(spans.covers(10, 40) && spans.covers(0, 5) && !spans.covers(4, 11) && !spans.covers(5, 6));
        assert!(spans.touches(4, 11) && spans.touches(39, 50) && !spans.touches(5, 10) && !spans.touches(40, 41));
        spans.remove(3, 12);
        spans.remove(20, 30);
        spans.remove(39, 90);
        assert_eq!(Vec::from(spans), [(0, 3), (12, 20), (30, 39)]);
    }

    proptest! {
        #[test]
        fn the_map_agrees_with_a_byte_by_byte_one(
            runs in proptest::collection::vec((0u64..64, 0u64..64), 0..20),
            total in 0u64..64,
        ) {
            let mut plain = [false; 64];
            let mut spans = Spans::default();
            for (start, end) in runs {
                spans.insert(start, end);
                (start..end).for_each(|byte| plain[byte as usize] = true);
            }
            prop_assert_eq!(spans.len(), plain.iter().filter(|there| **there).count() as u64);
            let missing: Vec<u64> = (0..total).filter(|&byte| !plain[byte as usize]).collect();
            let gaps: Vec<u64> = spans.gaps(total).into_iter().flat_map(|(start, end)| start..end).collect();
            prop_assert_eq!(gaps, missing);
            let text = serde_json::to_string(&spans).expect("numbers");
            prop_assert_eq!(serde_json::from_str::<Spans>(&text).expect("our own"), spans);
        }
    }
}
