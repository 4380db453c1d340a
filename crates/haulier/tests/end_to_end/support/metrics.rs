//! Metrics in the OpenMetrics text format, read strictly.

use std::collections::BTreeMap;

/// All series of one scrape: `name{label="value"}` → value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Metrics {
    series: BTreeMap<String, f64>,
}

impl Metrics {
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.strip_suffix("# EOF\n").expect("the text is complete");
        let mut series = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value in {line:?}"));
            let value = value.parse().unwrap_or_else(|_| panic!("no number in {line:?}"));
            assert!(series.insert(name.to_owned(), value).is_none(), "twice: {line}");
        }
        Self { series }
    }

    /// The value of a series, labels and all.
    #[track_caller]
    pub(crate) fn value(&self, series: &str) -> f64 {
        let found = self.series.get(series).copied();
        found.unwrap_or_else(|| panic!("no {series} among {:#?}", self.names()))
    }

    /// The same for a number that counts something.
    #[track_caller]
    pub(crate) fn count(&self, series: &str) -> u64 {
        self.value(series) as u64
    }

    /// The sum over all series whose name and labels begin so.
    pub(crate) fn sum(&self, prefix: &str) -> f64 {
        let fitting = self.series.iter().filter(|(name, _)| name.starts_with(prefix));
        fitting.map(|(_, value)| value).sum()
    }

    /// Every series with its labels.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.series.keys().map(String::as_str).collect()
    }
}
