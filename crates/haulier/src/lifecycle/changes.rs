//! The changes of a reload, in words: the previous configuration compared with the new one.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Settings of `[server]` that take effect at a start only.
const AT_START: [&str; 8] = [
    "admin",
    "probes",
    "control",
    "defer_accept",
    "reuse_port",
    "threads",
    "user",
    "socket_mode",
];
/// Settings of `[log]` that take effect at a start only: the format of our own messages.
const LOG_AT_START: [&str; 2] = ["format", "level"];

/// The differences of two configurations, as [`Effective::to_json`](crate::config::effective::Effective::to_json)
/// shows them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Changes in effect.
    pub(super) done: Vec<String>,
    /// Changes that take effect at the next start.
    pub(super) later: Vec<String>,
}

impl Changes {
    /// Compares two configurations. `restarted` are pools that start anew with the same settings, and why.
    pub(super) fn between(before: &Value, after: &Value, restarted: &[(String, &str)]) -> Self {
        let mut changes = Self::default();
        for table in ["server", "log", "limits", "compress"] {
            changes.note_table(table, section(before, table), section(after, table));
        }
        for (kind, plural) in [("pool", "pool"), ("site", "site")] {
            changes.note_named(plural, section(before, kind), section(after, kind));
        }
        for (pool, why) in restarted {
            changes.done.push(format!("pool {pool} started anew: {why}"));
        }
        changes.note_others(before, after);
        changes
    }

    /// All in one line.
    pub(super) fn in_words(&self) -> String {
        let mut text = if self.done.is_empty() {
            "nothing changed".to_owned()
        } else {
            self.done.join(", ")
        };
        if !self.later.is_empty() {
            text.push_str(&format!("; {} with the next start", self.later.join(", ")));
        }
        text
    }

    fn note_table(&mut self, table: &str, before: &SettingsTable, after: &SettingsTable) {
        let names = changed(before, after);
        let (later, now): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| waits(table, name));
        if !now.is_empty() {
            self.done.push(format!("[{table}] {} changed", now.join(", ")));
        }
        if !later.is_empty() {
            self.later.push(format!("[{table}] {}", later.join(", ")));
        }
    }

    /// Tables whose names the user chooses.
    fn note_named(&mut self, kind: &str, before: &SettingsTable, after: &SettingsTable) {
        for (name, after) in after {
            let Some(before) = before.get(name) else {
                self.done.push(format!("{kind} {name} added"));
                continue;
            };
            let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
                continue;
            };
            let mut settings = changed(before, after);
            let workers = workers(before)
                .zip(workers(after))
                .filter(|(before, after)| before != after);
            let mut words = Vec::new();
            if let Some((before, after)) = workers {
                settings.retain(|&setting| setting != "workers");
                words.push(format!("{before}→{after} workers"));
            }
            if !settings.is_empty() {
                words.push(format!("{} changed", settings.join(" and ")));
            }
            if !words.is_empty() {
                self.done.push(format!("{kind} {name} {}", words.join(" with ")));
            }
        }
        let removed = before.keys().filter(|name| !after.contains_key(*name));
        self.done.extend(removed.map(|name| format!("{kind} {name} removed")));
    }

    /// All other tables.
    fn note_others(&mut self, before: &Value, after: &Value) {
        let known = ["server", "log", "limits", "compress", "pool", "site"];
        let names = |value: &Value| -> BTreeSet<String> {
            let object = value.as_object().into_iter().flatten();
            object.map(|(name, _)| name.clone()).collect()
        };
        for name in names(before).union(&names(after)) {
            if !known.contains(&name.as_str()) {
                self.note_table(name, section(before, name), section(after, name));
            }
        }
    }
}

type SettingsTable = Map<String, Value>;

fn section<'v>(value: &'v Value, name: &str) -> &'v SettingsTable {
    static EMPTY: std::sync::LazyLock<SettingsTable> = std::sync::LazyLock::new(SettingsTable::new);
    value.get(name).and_then(Value::as_object).unwrap_or(&EMPTY)
}

fn waits(table: &str, setting: &str) -> bool {
    match table {
        "server" => AT_START.contains(&setting),
        "log" => LOG_AT_START.contains(&setting),
        _ => false,
    }
}

/// The settings whose values differ; their places in the file do not count. Values that were computed both times are left
/// out, since they follow from others (connections from workers, PHP's account from ours); those of the project are not.
fn changed<'t>(before: &'t SettingsTable, after: &'t SettingsTable) -> Vec<&'t str> {
    let names: BTreeSet<&str> = before.keys().chain(after.keys()).map(String::as_str).collect();
    let differs = |name: &&str| before.get(*name).map(bare) != after.get(*name).map(bare);
    let says = |name: &&str| *name == "app" || is_written(before, name) || is_written(after, name);
    names.into_iter().filter(differs).filter(says).collect()
}

/// A setting is `{"value":…, "from":…}`; everything else is a table of such, or a list of tables.
fn bare(value: &Value) -> Value {
    match value {
        Value::Object(object) if is_setting(object) => object["value"].clone(),
        Value::Object(object) => {
            let inner = object.iter().map(|(name, value)| (name.clone(), bare(value)));
            Value::Object(inner.collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(bare).collect()),
        other => other.clone(),
    }
}

fn is_setting(object: &SettingsTable) -> bool {
    object.len() == 2 && object.contains_key("value") && object.contains_key("from")
}

/// Tells whether a setting is written in a file.
fn is_written(table: &SettingsTable, name: &str) -> bool {
    table.get(name).is_some_and(|setting| setting["from"] != "found here")
}

/// The most workers of a pool.
fn workers(pool: &SettingsTable) -> Option<u64> {
    match pool.get("workers").map(bare)? {
        Value::Object(table) => table.get("max")?.as_u64(),
        number => number.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: impl Into<Value>, line: usize) -> Value {
        json!({"value": value.into(), "from": format!("haulier.toml:{line}")})
    }

    fn words(before: &Value, after: &Value) -> String {
        Changes::between(before, after, &[]).in_words()
    }

    #[test]
    fn a_setting_that_only_moved_to_another_line_has_not_changed() {
        let at = |line| json!({"site": {"shop": {"root": set(json!("/srv"), line)}}});
        assert_eq!(words(&at(3), &at(9)), "nothing changed");
    }

    #[test]
    fn pools_and_sites_are_named_with_what_is_new() {
        let before = json!({
            "pool": {"php": {"workers": set(json!(8), 1)}, "old": {}},
            "site": {"shop": {"root": set(json!("/srv"), 2), "cache": {"/a": set(json!("1y"), 3)}}},
        });
        let after = json!({
            "pool": {"php": {"workers": set(json!({"max": 12, "min": 2}), 1), "ini": {"a": set(json!("1"), 2)}}},
            "site": {"shop": {"root": set(json!("/srv"), 2), "cache": {"/a": set(json!("2y"), 3)}}, "blog": {}},
        });
        let text = words(&before, &after);
        assert_eq!(
            text,
            "pool php 8→12 workers with ini changed, pool old removed, site blog added, site shop cache changed"
        );
    }

    #[test]
    fn the_account_of_php_has_not_changed_because_we_are_it_by_now() {
        let pool = |user: Value, from: &str| json!({"pool": {"php": {"user": {"value": user, "from": from}}}});
        let (named, ours) = (pool(json!("nobody"), "found here"), pool(Value::Null, "found here"));
        assert_eq!(words(&named, &ours), "nothing changed");
        let written = pool(json!("www-data"), "haulier.toml:3");
        assert_eq!(words(&named, &written), "pool php user changed");
    }

    #[test]
    fn what_waits_for_a_start_is_said_apart() {
        let table = |threads: u64, grace: &str| json!({"server": {"threads": set(json!(threads), 1), "grace": set(json!(grace), 2)}});
        let text = words(&table(2, "30s"), &table(4, "10s"));
        assert_eq!(text, "[server] grace changed; [server] threads with the next start");
        assert_eq!(
            words(&table(2, "30s"), &table(4, "30s")),
            "nothing changed; [server] threads with the next start"
        );
    }

    #[test]
    fn a_pool_that_runs_anew_says_why_and_a_new_kind_of_table_is_not_passed_over() {
        let restarted = [("php".to_owned(), "php.ini or PHP itself changed")];
        let (before, after) = (json!({}), json!({"store": {"main": {"region": set(json!("eu"), 1)}}}));
        let text = Changes::between(&before, &after, &restarted).in_words();
        assert_eq!(
            text,
            "pool php started anew: php.ini or PHP itself changed, [store] main changed"
        );
    }
}
