//! The status of a pool in the words of php-fpm's `pm.status_path`, for tools that know them.
//!
//! haulier answers without asking a worker, so the page works while every worker is busy.

use std::time::{SystemTime, UNIX_EPOCH};

use haulier_php::{Pool, PoolStatus};
use haulier_proto::date;
use serde_json::{Map, Value};

/// The fields in php-fpm's order.
pub(super) struct FpmStatus {
    fields: Vec<(&'static str, Value)>,
    /// Seconds since 1970.
    started: u64,
}

impl FpmStatus {
    /// Of this pool, with its counters over all reloads.
    pub(super) fn of(pool: &Pool, status: &PoolStatus) -> Self {
        let running = pool.started().elapsed().as_secs();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::new(pool, status, now.as_secs().saturating_sub(running), running)
    }

    fn new(pool: &Pool, status: &PoolStatus, started: u64, running: u64) -> Self {
        let settings = pool.settings();
        let idle = status.load.capacity.saturating_sub(status.load.busy);
        let fields = vec![
            ("pool", settings.name.as_str().into()),
            ("process manager", settings.kind.process_manager().into()),
            ("start time", started.into()),
            ("start since", running.into()),
            ("accepted conn", (status.counts.served + status.load.busy as u64).into()),
            ("listen queue", status.load.queued.into()),
            ("max listen queue", status.load.most_queued.into()),
            ("listen queue len", settings.queue_length.into()),
            ("idle processes", idle.into()),
            ("active processes", status.load.busy.into()),
            ("total processes", status.load.capacity.into()),
            ("max active processes", status.load.most_busy.into()),
            ("max children reached", status.load.full.into()),
            ("slow requests", status.counts.slow.into()),
        ];
        Self { fields, started }
    }

    /// As php-fpm prints it.
    pub(super) fn to_text(&self) -> String {
        let line = |(name, value): &(&'static str, Value)| {
            let value = match value {
                Value::String(text) => text.clone(),
                _ if *name == "start time" => common_log_time(self.started),
                number => number.to_string(),
            };
            format!("{:<22}{value}\n", format!("{name}:"))
        };
        self.fields.iter().map(line).collect()
    }

    /// As php-fpm answers `?json`.
    pub(super) fn to_json(&self) -> String {
        let fields = self
            .fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        Value::Object(fields.collect::<Map<_, _>>()).to_string()
    }
}

/// `06/Nov/1994:08:49:37 +0000`
fn common_log_time(seconds: u64) -> String {
    let date = date::format(seconds); // Sun, 06 Nov 1994 08:49:37 GMT
    let part = |range: std::ops::Range<usize>| String::from_utf8_lossy(&date[range]).into_owned();
    format!("{}/{}/{}:{} +0000", part(5..7), part(8..11), part(12..16), part(17..25))
}

#[cfg(test)]
mod tests {
    use haulier_php::{Address, External, PoolCounts, PoolKind, PoolSettings, UpstreamLoad};

    use super::*;

    #[test]
    fn the_fields_are_those_of_php_fpm_in_both_forms() {
        let server = Address::Unix("/run/no-such.sock".into());
        let kind = PoolKind::External(External::new(vec![server]));
        let pool = Pool::start(PoolSettings::new("web", kind)).expect("nobody is called yet");
        let status = PoolStatus {
            load: UpstreamLoad {
                capacity: 32,
                busy: 3,
                most_busy: 9,
                ..UpstreamLoad::default()
            },
            counts: PoolCounts {
                served: 100,
                ..PoolCounts::default()
            },
            ..PoolStatus::default()
        };
        let status = FpmStatus::new(&pool, &status, 784_111_777, 61);
        let text = status.to_text();
        let begin = "pool:                 web\nprocess manager:      external\n\
                     start time:           06/Nov/1994:08:49:37 +0000\nstart since:          61\n\
                     accepted conn:        103\n";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("idle processes:       29\n"), "{text}");
        let json: Value = serde_json::from_str(&status.to_json()).expect("JSON");
        assert_eq!(json["max active processes"], 9);
        assert_eq!(json["start time"], 784_111_777);
        assert_eq!(json.as_object().map(Map::len), Some(14));
    }
}
