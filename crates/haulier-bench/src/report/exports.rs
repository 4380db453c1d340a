//! Figures of a run as files for other programs: CSV, gnuplot, HdrHistogram logs.

use std::fmt::Write;

use crate::campaign::Measured;
use crate::sample::{RequestTimes, Tally};

/// Percentiles as CSV in the form of ab: the shortest time at 0, then every percent.
#[must_use]
pub fn csv(tally: &Tally) -> String {
    let mut text = "Percentage served,Time in ms\n".to_owned();
    for percent in 0..=100u32 {
        let time = if percent == 0 {
            tally.latency.min()
        } else {
            tally.latency.percentile(f64::from(percent))
        };
        let _ = writeln!(text, "{percent},{:.3}", time as f64 / 1e3);
    }
    text
}

/// Requests as lines for gnuplot in the form of ab: the shortest first, times in whole ms.
pub fn gnuplot(times: &mut [RequestTimes]) -> String {
    times.sort_by_key(|one| one.total);
    let mut text = "starttime\tseconds\tctime\tdtime\tttime\twait\n".to_owned();
    let ms = |microseconds: u64| (microseconds + 500) / 1000;
    for one in times {
        let seconds = one.started / 1_000_000;
        let processing = one.total.saturating_sub(one.connect);
        let _ = writeln!(
            text,
            "{}\t{seconds}\t{}\t{}\t{}\t{}",
            ctime(seconds),
            ms(one.connect),
            ms(processing),
            ms(one.total),
            ms(one.wait)
        );
    }
    text
}

/// `Sat Nov 21 17:00:57 2026`, UTC.
fn ctime(seconds: u64) -> String {
    let date = haulier_proto::date::format(seconds);
    let date = String::from_utf8_lossy(&date);
    // `Sat, 21 Nov 2026 17:00:57 GMT`
    let parts: Vec<&str> = date.split([' ', ',']).filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [weekday, day, month, year, time, _] => format!("{weekday} {month} {day} {time} {year}"),
        _ => date.into_owned(),
    }
}

/// An HdrHistogram log with a line for each point. Values are in µs, the longest time in ms.
#[must_use]
pub fn hdr_log(measured: &Measured) -> String {
    let run = &measured.run;
    let mut text = format!(
        "#[haulier bench, {}]\n#[Histogram log format version 1.3]\n#[values: microseconds]\n\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        run.started
    );
    for (point, tally) in run.points.iter().zip(&measured.tallies) {
        let name: String = run.targets[point.target]
            .name
            .chars()
            .map(|letter| if ", \r\n\t".contains(letter) { '_' } else { letter })
            .collect();
        let start = point.slices.first().map_or(0.0, |slice| slice.start_s);
        let _ = writeln!(
            text,
            "Tag={name}:c{}{},{start:.3},{:.3},{:.3},{}",
            point.connections,
            point.rate.map_or_else(String::new, |rate| format!(":r{rate:.0}")),
            point.total.duration_s,
            tally.latency.max() as f64 / 1e3,
            tally.latency.encode()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_ab() {
        let mut tally = Tally::default();
        for time in 1..=100 {
            tally.latency.record(time * 1_000_000);
        }
        let text = csv(&tally);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 102);
        assert_eq!((lines[0], lines[1]), ("Percentage served,Time in ms", "0,1.000"));
        assert!(lines[101].starts_with("100,100."), "{}", lines[101]);
    }

    #[test]
    fn requests_are_lines_for_gnuplot() {
        let mut times = [
            RequestTimes {
                started: 1_795_280_457_000_000,
                connect: 1_400,
                wait: 2_000,
                total: 9_600,
            },
            RequestTimes {
                started: 0,
                connect: 0,
                wait: 0,
                total: 100,
            },
        ];
        let text = gnuplot(&mut times);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "Thu Jan 01 00:00:00 1970\t0\t0\t0\t0\t0");
        assert_eq!(lines[2], "Sat Nov 21 17:00:57 2026\t1795280457\t1\t8\t10\t2");
    }
}
