//! Many requests instead of one: a file of paths with templates, or an access log to replay.
//!
//! A mix is spelt out before the run, as a list of requests and their order. The same seed gives the same requests.

use std::collections::HashMap;

use fastrand::Rng;

/// Requests of a mix with templates or weights.
const MOST: usize = 10_000;

/// The reason that a mix cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    #[error("line {0}: expected [WEIGHT] [METHOD] /path")]
    Line(usize),
    #[error("line {line}: {{{template}}} is no template; {{1..100}} and {{a|b|c}} are")]
    Template { line: usize, template: String },
    #[error("it contains no request")]
    Empty,
}

/// One request of a mix: the method and the path with its query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MixRequest {
    pub method: String,
    pub target: String,
}

/// Requests, their order, and perhaps their times.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mix {
    pub requests: Vec<MixRequest>,
    /// Indices into `requests`.
    pub order: Vec<u32>,
    /// Due time of each entry of `order`, ns since the start; empty for a list of paths.
    pub times: Vec<u64>,
}

impl Mix {
    fn push(&mut self, known: &mut HashMap<MixRequest, u32>, asked: MixRequest) {
        let place = *known.entry(asked).or_insert_with_key(|asked| {
            self.requests.push(asked.clone());
            self.requests.len() as u32 - 1
        });
        self.order.push(place);
    }

    /// Reads a file of lines `[WEIGHT] [METHOD] /path`. In a path, `{1..100}` stands for a number of that range and
    /// `{a|b|c}` for one of the words; `{{` is a brace. A path that begins with `?` keeps the target's path. Empty lines
    /// and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// [`MixError`] names the line.
    pub fn parse(text: &str, seed: u64) -> Result<Self, MixError> {
        let lines: Vec<MixLine> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
            .map(|(number, line)| MixLine::parse(number + 1, line))
            .collect::<Result<_, _>>()?;
        let total: u64 = lines.iter().map(|line| line.weight).sum();
        if total == 0 {
            return Err(MixError::Empty);
        }
        let mut random = Rng::with_seed(seed);
        let mut mix = Self::default();
        let mut known = HashMap::new();
        let is_plain = lines.iter().all(|line| line.weight == 1 && line.parts.len() <= 1);
        if is_plain {
            for line in &lines {
                mix.push(&mut known, line.spell(&mut random));
            }
        } else {
            for _ in 0..MOST {
                let line = pick(&lines, random.u64(..total));
                mix.push(&mut known, line.spell(&mut random));
            }
        }
        Ok(mix)
    }

    /// Reads an access log in common or combined form; `speed` is a multiple of the log's.
    ///
    /// The requests of one second are spread over it, because a log is no finer. Lines that are no request are left out,
    /// and so are methods that may change something, unless `all`. The second value is the number of lines left out.
    ///
    /// # Errors
    /// [`MixError::Empty`] if no line is left.
    pub fn replay(log: &str, speed: f64, all: bool) -> Result<(Self, usize), MixError> {
        let mut entries: Vec<(i64, MixRequest)> = Vec::new();
        let mut left_out = 0;
        for line in log.lines().filter(|line| !line.is_empty()) {
            match log_line(line) {
                Some((time, asked)) if all || matches!(asked.method.as_str(), "GET" | "HEAD") => {
                    entries.push((time, asked));
                }
                _ => left_out += 1,
            }
        }
        entries.sort_by_key(|(time, _)| *time);
        let first = entries.first().map(|(time, _)| *time).ok_or(MixError::Empty)?;
        let mut in_second: HashMap<i64, u64> = HashMap::new();
        for (time, _) in &entries {
            *in_second.entry(*time).or_default() += 1;
        }
        let mut mix = Self::default();
        let (mut known, mut second, mut place) = (HashMap::new(), i64::MIN, 0u64);
        for (time, asked) in entries {
            place = if time == second { place + 1 } else { 0 };
            second = time;
            let offset = (time - first) as f64 + place as f64 / in_second[&time] as f64;
            mix.times.push((offset * 1e9 / speed) as u64);
            mix.push(&mut known, asked);
        }
        Ok((mix, left_out))
    }
}

#[derive(Debug)]
struct MixLine {
    weight: u64,
    method: String,
    parts: Vec<PathPart>,
}

#[derive(Debug)]
enum PathPart {
    Text(String),
    Number(u64, u64),
    Word(Vec<String>),
}

impl MixLine {
    fn parse(number: usize, line: &str) -> Result<Self, MixError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (weight, words) = match words.split_first() {
            Some((first, rest)) if first.bytes().all(|byte| byte.is_ascii_digit()) => (first.parse().ok(), rest),
            _ => (Some(1), words.as_slice()),
        };
        let (method, path) = match words {
            [path] => ("GET", *path),
            [method, path] if method.bytes().all(|byte| byte.is_ascii_uppercase()) => (*method, *path),
            _ => return Err(MixError::Line(number)),
        };
        if !path.starts_with(['/', '?']) {
            return Err(MixError::Line(number));
        }
        Ok(Self {
            weight: weight.ok_or(MixError::Line(number))?,
            method: method.to_owned(),
            parts: parts(number, path)?,
        })
    }

    fn spell(&self, random: &mut Rng) -> MixRequest {
        let target = self.parts.iter().map(|part| match part {
            PathPart::Text(text) => text.clone(),
            PathPart::Number(first, last) => random.u64(*first..=*last).to_string(),
            PathPart::Word(words) => words[random.usize(..words.len())].clone(),
        });
        MixRequest {
            method: self.method.clone(),
            target: target.collect(),
        }
    }
}

fn parts(number: usize, mut path: &str) -> Result<Vec<PathPart>, MixError> {
    let (mut parts, mut text) = (Vec::new(), String::new());
    while let Some(at) = path.find('{') {
        text.push_str(&path[..at]);
        path = &path[at + 1..];
        if let Some(rest) = path.strip_prefix('{') {
            text.push('{');
            path = rest;
            continue;
        }
        let (template, rest) = path.split_once('}').unwrap_or((path, ""));
        let part = part(template).ok_or_else(|| MixError::Template {
            line: number,
            template: template.to_owned(),
        })?;
        parts.push(PathPart::Text(std::mem::take(&mut text)));
        parts.push(part);
        path = rest;
    }
    text.push_str(path);
    parts.push(PathPart::Text(text));
    Ok(parts)
}

fn part(template: &str) -> Option<PathPart> {
    if let Some((first, last)) = template.split_once("..") {
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        return (first <= last).then_some(PathPart::Number(first, last));
    }
    let words: Vec<String> = template.split('|').map(str::to_owned).collect();
    (words.len() > 1).then_some(PathPart::Word(words))
}

fn pick(lines: &[MixLine], mut at: u64) -> &MixLine {
    for line in lines {
        if at < line.weight {
            return line;
        }
        at -= line.weight;
    }
    &lines[lines.len() - 1]
}

/// Time in seconds and request of one line: `… [10/Oct/2026:13:55:36 +0200] "GET /a HTTP/1.1" …`.
fn log_line(line: &str) -> Option<(i64, MixRequest)> {
    let (_, rest) = line.split_once('[')?;
    let (time, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once('"')?;
    let (request, _) = rest.split_once('"')?;
    let mut words = request.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_request = target.starts_with('/') && version.starts_with("HTTP/") && words.next().is_none();
    let asked = MixRequest {
        method: method.to_owned(),
        target: target.to_owned(),
    };
    Some((log_time(time)?, asked)).filter(|_| is_request)
}

/// `10/Oct/2026:13:55:36 +0200` as seconds since 1970.
fn log_time(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (date, zone) = text.split_once(' ')?;
    let parts: Vec<&str> = date.split(['/', ':']).collect();
    let [day, month, year, hour, minute, second] = parts.as_slice() else {
        return None;
    };
    let month = MONTHS.iter().position(|name| name == month)? as i64 + 1;
    let number = |text: &&str| text.parse::<i64>().ok();
    let days = days_since_1970(number(year)?, month, number(day)?);
    let local = ((days * 24 + number(hour)?) * 60 + number(minute)?) * 60 + number(second)?;
    let (sign, digits) = zone.split_at_checked(1)?;
    let offset = digits.parse::<i64>().ok()?;
    let offset = (offset / 100 * 60 + offset % 100) * 60;
    Some(if sign == "-" { local + offset } else { local - offset })
}

/// Hinnant's formula for the proleptic Gregorian calendar.
pub(super) fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(mix: &Mix) -> Vec<&str> {
        mix.order
            .iter()
            .map(|place| mix.requests[*place as usize].target.as_str())
            .collect()
    }

    #[test]
    fn a_plain_list_is_sent_in_its_order() {
        let mix = Mix::parse("/a\n# a remark\n\nHEAD /b\n/a\n", 1).expect("good");
        assert_eq!(targets(&mix), ["/a", "/b", "/a"]);
        assert_eq!(mix.requests.len(), 2, "equal requests are kept once");
        assert_eq!(mix.requests[1].method, "HEAD");
    }

    #[test]
    fn weights_and_templates_are_spelt_out_before_the_run() {
        let text = "3 /item/{1..50}\n1 /page?sort={name|date}&x={{\n";
        let mix = Mix::parse(text, 7).expect("good");
        let items = targets(&mix)
            .iter()
            .filter(|target| target.starts_with("/item/"))
            .count();
        assert!((7_000..8_000).contains(&items), "{items} of 10,000 at three in four");
        assert_eq!(mix.requests.len(), 52);
        assert!(mix.requests.iter().any(|asked| asked.target == "/page?sort=date&x={"));
        assert_eq!(
            mix,
            Mix::parse(text, 7).expect("good"),
            "the same seed, the same requests"
        );
    }

    #[test]
    fn a_line_that_is_not_understood_is_named() {
        assert_eq!(Mix::parse("/a\nb\n", 1), Err(MixError::Line(2)));
        assert_eq!(Mix::parse("get /a\n", 1), Err(MixError::Line(1)));
        let template = Mix::parse("/a/{b}\n", 1);
        assert!(
            matches!(template, Err(MixError::Template { line: 1, .. })),
            "{template:?}"
        );
        assert_eq!(Mix::parse("# nothing\n", 1), Err(MixError::Empty));
    }

    const LOG: &str = concat!(
        "1.2.3.4 - - [10/Oct/2026:13:55:36 +0200] \"GET /a HTTP/1.1\" 200 5 \"-\" \"x\"\n",
        "1.2.3.4 - - [10/Oct/2026:13:55:36 +0200] \"GET /b?c HTTP/1.1\" 200 5 \"-\" \"x\"\n",
        "1.2.3.4 - - [10/Oct/2026:11:55:38 +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"x\"\n",
        "1.2.3.4 - - [10/Oct/2026:13:55:39 +0200] \"POST /form HTTP/1.1\" 200 5 \"-\" \"x\"\n",
        "1.2.3.4 - - [10/Oct/2026:13:55:39 +0200] \"\\x16\\x03\" 400 0 \"-\" \"-\"\n",
    );

    #[test]
    fn a_log_is_replayed_at_its_own_times_or_faster() {
        let (mix, left_out) = Mix::replay(LOG, 1.0, false).expect("requests");
        assert_eq!(targets(&mix), ["/a", "/b?c", "/a"]);
        assert_eq!(mix.times, [0, 500_000_000, 2_000_000_000]);
        assert_eq!(left_out, 2);
        let (fast, _) = Mix::replay(LOG, 4.0, true).expect("requests");
        assert_eq!(fast.times, [0, 125_000_000, 500_000_000, 750_000_000]);
        assert_eq!(Mix::replay("nonsense\n", 1.0, true), Err(MixError::Empty));
    }

    #[test]
    fn days_are_counted_over_leap_years() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 3, 1), 11_017);
        assert_eq!(days_since_1970(2026, 10, 10), 20_736);
    }
}
