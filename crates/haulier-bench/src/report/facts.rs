//! Facts about a run, everything needed to repeat it: pairs of a name and a text.

use crate::result::{Machine, Run, RunLoad};

use super::document::{PagePart, Report};
use super::figures::{bytes, count, number};

/// A name and a text.
pub(crate) type Fact = (&'static str, String);

/// The time of a part, if it was measured before the report was begun.
pub(crate) fn earlier(report: &Report, part: &PagePart) -> Option<String> {
    let measured = part.measured.as_deref()?;
    // Both are UTC in RFC 3339: they sort as text.
    (measured < report.started.as_str()).then(|| format!("Measured on {}.", when(measured)))
}

/// The load of a run.
pub(crate) fn of_load(run: &Run) -> Vec<Fact> {
    let load = &run.load;
    let mut facts = vec![
        ("command", quoted(&run.command)),
        ("load", load_words(load)),
        ("requests", request_words(load)),
    ];
    if load.rounds > 1 {
        let order = format!("{} rounds, in random order; seed {}", load.rounds, run.seed);
        facts.push(("order", order));
    }
    facts.push(("generator", generator_words(load)));
    facts.push(("when", format!("{}, {} s in all", run.started, number(run.duration_s))));
    facts
}

fn load_words(load: &RunLoad) -> String {
    let mut levels: Vec<String> = load.connections.iter().map(|level| count(u64::from(*level))).collect();
    levels.dedup();
    let mut words = match levels.as_slice() {
        [one] if one == "1" => "1 connection".to_owned(),
        _ => format!("{} connections", levels.join(", ")),
    };
    match (load.rate, &load.arrivals) {
        (Some(rate), Some(arrivals)) => words.push_str(&format!(", open loop of {}/s, {arrivals}", number(rate))),
        (Some(rate), None) => words.push_str(&format!(", open loop of {}/s", number(rate))),
        (None, Some(arrivals)) => words.push_str(&format!(", open loop, {arrivals}")),
        (None, None) => words.push_str(", closed loop: the next request waits for the answer"),
    }
    let requests = load.requests.map(|requests| format!("{} requests", count(requests)));
    let time = load.slice_s.map(|seconds| format!("{} s", number(seconds)));
    let limits: Vec<_> = requests.into_iter().chain(time).collect();
    if !limits.is_empty() {
        words.push_str(&format!("; {} a slice", limits.join(" or ")));
    }
    if load.warmup_s > 0.0 {
        words.push_str(&format!("; {} s of warm-up, not counted", number(load.warmup_s)));
    }
    words
}

fn request_words(load: &RunLoad) -> String {
    let kept = if load.keep_alive {
        "connections kept"
    } else {
        "a new connection for each request"
    };
    let mut words = format!("{} {}, {kept}", load.method, load.protocol);
    if let Some(streams) = load.streams {
        words.push_str(&format!(", {streams} streams a connection"));
    }
    if load.body_bytes > 0 {
        words.push_str(&format!(", body of {}", bytes(load.body_bytes as f64)));
    }
    if let Some(accept) = &load.accept {
        words.push_str(&format!(", Accept-Encoding: {accept}"));
    }
    for (rate, what) in [(load.read_rate, "readers"), (load.send_rate, "senders")] {
        if let Some(rate) = rate {
            words.push_str(&format!(", {what} of {}/s", bytes(rate as f64)));
        }
    }
    words.push_str(&format!(", timeout {} s", number(load.timeout_s)));
    words
}

fn generator_words(load: &RunLoad) -> String {
    let threads = if load.threads == 1 {
        "1 thread".to_owned()
    } else {
        format!("{} threads", load.threads)
    };
    match load.processes {
        0 | 1 => threads,
        processes => format!("{processes} processes of {threads}"),
    }
}

/// The machine.
pub(crate) fn of_machine(machine: &Machine) -> Vec<Fact> {
    let cores = if machine.cores == 1 {
        "1 core".to_owned()
    } else {
        format!("{} cores", machine.cores)
    };
    let mut facts = vec![
        ("processor", format!("{}, {cores}", or_unknown(&machine.cpu))),
        ("memory", bytes(machine.memory_bytes as f64)),
        (
            "system",
            format!("{}, {}", or_unknown(&machine.os), or_unknown(&machine.kernel)),
        ),
        ("load before", format!("{:.2}", machine.load_before)),
    ];
    if let Some(governor) = &machine.governor {
        facts.push(("governor", governor.clone()));
    }
    if let Some(synchronised) = machine.clock_synchronised {
        let words = if synchronised {
            "synchronised by NTP"
        } else {
            "not synchronised"
        };
        facts.push(("clock", words.to_owned()));
    }
    facts.push(("descriptors", count(machine.descriptors)));
    if !machine.sysctls.is_empty() {
        let settings = machine.sysctls.iter().map(|(name, value)| format!("{name} = {value}"));
        facts.push(("kernel settings", settings.collect::<Vec<_>>().join("; ")));
    }
    facts
}

/// The machine in one line.
pub(crate) fn machine_line(machine: &Machine) -> String {
    let cores = if machine.cores == 1 {
        "1 core".to_owned()
    } else {
        format!("{} cores", machine.cores)
    };
    let parts = [
        or_unknown(&machine.cpu),
        &cores,
        &bytes(machine.memory_bytes as f64),
        or_unknown(&machine.kernel),
    ];
    parts.join(", ")
}

/// `2026-11-20T12:04:31Z` → `2026-11-20 12:04 UTC`; other texts stay as they are.
pub(crate) fn when(started: &str) -> String {
    match (
        started.get(..10),
        started.get(10..11),
        started.get(11..16),
        started.ends_with('Z'),
    ) {
        (Some(date), Some("T"), Some(time), true) => format!("{date} {time} UTC"),
        _ => started.to_owned(),
    }
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

/// A command line, quoted for a shell.
pub(crate) fn quoted(command: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty()
            && word
                .chars()
                .all(|letter| letter.is_alphanumeric() || "-_./:=,@%+".contains(letter))
    };
    let words = command.iter().map(|word| match plain(word) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_given_to_a_shell_again() {
        let command = ["haulier", "bench", "-H", "A: b'c", "http://x/?a=1", ""].map(str::to_owned);
        assert_eq!(quoted(&command), "haulier bench -H 'A: b'\\''c' 'http://x/?a=1' ''");
    }

    #[test]
    fn dates_lose_their_letters() {
        assert_eq!(when("2026-11-20T12:04:31Z"), "2026-11-20 12:04 UTC");
        assert_eq!(when("yesterday"), "yesterday");
        assert_eq!(when("2026–11"), "2026–11");
    }
}
