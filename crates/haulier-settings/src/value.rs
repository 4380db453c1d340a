//! Values with units, and text with variables.

use std::time::Duration;

/// `10s`, `500ms`, `1.5h`: a number and one of ms, s, m, h, d, w, y.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        "y" => 31_536_000.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok()
}

/// `64KiB`, `20MB`, `512B`: a number and a unit, in bytes.
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let factor: u64 = match unit {
        "B" => 1,
        "KB" | "kB" => 1000,
        "MB" => 1000 * 1000,
        "GB" => 1000 * 1000 * 1000,
        "TB" => 1000 * 1000 * 1000 * 1000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    let bytes = number * factor as f64;
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

/// Requests in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Number of requests.
    pub count: u32,
    /// The time that they are counted over.
    pub period: Duration,
    /// Most requests at once.
    pub burst: u32,
}

/// `20/s`, `100/m burst 20`: requests a second, minute, hour or day, and most of them at once.
pub fn rate(text: &str) -> Option<Rate> {
    let mut words = text.split_whitespace();
    let (count, unit) = words.next()?.split_once('/')?;
    let count: u32 = count.replace('_', "").parse().ok().filter(|count| *count > 0)?;
    let burst = match (words.next(), words.next(), words.next()) {
        (None, ..) => count,
        (Some("burst"), Some(burst), None) => burst.replace('_', "").parse().ok().filter(|burst| *burst > 0)?,
        _ => return None,
    };
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    Some(Rate {
        count,
        period: Duration::from_secs(seconds),
        burst,
    })
}

/// A size in the largest unit that fits.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit < UNITS.len() - 1 {
        amount /= 1024.0;
        unit += 1;
    }
    let digits = if amount.fract() < 0.05 || unit == 0 { 0 } else { 1 };
    format!("{amount:.digits$} {}", UNITS[unit])
}

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.' && character != '_')?;
    let (number, unit) = text.split_at(end);
    let number = number.replace('_', "");
    if !number.starts_with(|character: char| character.is_ascii_digit()) {
        return None;
    }
    Some((number.parse().ok()?, unit.trim_start()))
}

/// `${…}` in a text has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    #[error("`${{{0}}}` is not set")]
    Unset(String),
    #[error("`${{` without its `}}`")]
    Open,
    #[error("cannot read {path}: {why}")]
    File { path: String, why: String },
}

/// Expands `${VAR}`, `${VAR:-default}` and `${file:/path}`; `$${` is a plain `${`.
///
/// # Errors
/// A variable that is not set and has no default, a file that cannot be read, a brace that stays open.
pub fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        let end = inside.find('}').ok_or(ExpandError::Open)?;
        out.push_str(&look_up(&inside[..end], variable)?);
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn look_up(name: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, ExpandError> {
    if let Some(path) = name.strip_prefix("file:") {
        return std::fs::read_to_string(path)
            .map(|text| text.trim_end_matches(['\n', '\r']).to_owned())
            .map_err(|error| ExpandError::File {
                path: path.to_owned(),
                why: error.to_string(),
            });
    }
    let (name, default) = match name.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (name, None),
    };
    let value = variable(name).filter(|value| !value.is_empty() || default.is_none());
    value
        .or_else(|| default.map(str::to_owned))
        .ok_or_else(|| ExpandError::Unset(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("10s"), Some(Duration::from_secs(10)));
        assert_eq!(duration("1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(duration("250 ms"), Some(Duration::from_millis(250)));
        for wrong in ["10", "s", "", "-1s", "10 seconds", "1e3s", ".s"] {
            assert_eq!(duration(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn rates_are_requests_in_a_time() {
        let shown = |text| rate(text).map(|rate| (rate.count, rate.period.as_secs(), rate.burst));
        assert_eq!(shown("20/s"), Some((20, 1, 20)));
        assert_eq!(shown("1_000/h burst 50"), Some((1000, 3600, 50)));
        for wrong in [
            "20",
            "0/s",
            "20/w",
            "/s",
            "20 / s",
            "20/s burst",
            "20/s burst 0",
            "20/s 5",
            "20/s burst 5 6",
            "-1/s",
            "",
        ] {
            assert_eq!(rate(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn sizes_count_in_thousands_or_in_1024s() {
        assert_eq!(size("64KiB"), Some(65_536));
        assert_eq!(size("20MB"), Some(20_000_000));
        assert_eq!(size("1_000 B"), Some(1000));
        for wrong in ["64", "64K", "128 kilobytes", "", "-1B", "99999999999999999999TiB"] {
            assert_eq!(size(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        let shown: Vec<String> = [512, 65_536, 1_610_612_736].into_iter().map(show_size).collect();
        assert_eq!(shown, ["512 B", "64 KiB", "1.5 GiB"]);
    }

    #[test]
    fn variables_are_put_in_once() {
        let variable = |name: &str| match name {
            "HOME" => Some("/srv".to_owned()),
            "NESTED" => Some("${HOME}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let expand = |text| expand(text, &variable);
        assert_eq!(expand("${HOME}/a").as_deref(), Ok("/srv/a"));
        assert_eq!(expand("${NESTED}").as_deref(), Ok("${HOME}"));
        assert_eq!(expand("${NOPE:-b}c").as_deref(), Ok("bc"));
        assert_eq!(expand("${EMPTY:-b}").as_deref(), Ok("b"));
        assert_eq!(expand("${EMPTY}").as_deref(), Ok(""));
        assert_eq!(expand("$${HOME} costs $5").as_deref(), Ok("${HOME} costs $5"));
        assert_eq!(expand("${NOPE}"), Err(ExpandError::Unset("NOPE".to_owned())));
        assert_eq!(expand("${HOME"), Err(ExpandError::Open));
    }
}
