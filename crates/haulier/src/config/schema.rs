//! The configuration as JSON Schema, for editors: made of the same list as the reference page and the error texts.

use haulier_settings::{Table, Word};
use serde_json::{Map, Value, json};

use super::words;

/// What may be written as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Count,
    Flag,
    Texts,
    Counts,
    /// Names of the user's own, each with a text; numbers and flags count as PHP's texts for them.
    Pairs,
}

/// Settings whose default does not tell what they take, or that take more than that.
const KINDS: &[(&str, &str, &[Kind])] = &[
    ("", "include", &[Kind::Texts]),
    ("server", "http", &[Kind::Text, Kind::Texts]),
    ("server", "https", &[Kind::Text, Kind::Texts]),
    ("server", "threads", &[Kind::Count]),
    ("server", "user", &[Kind::Text]),
    ("server", "control", &[Kind::Text]),
    ("log", "file", &[Kind::Text]),
    ("limits", "body", &[Kind::Text]),
    ("limits", "body_spool", &[Kind::Text]),
    ("limits", "connections", &[Kind::Count]),
    ("pool.NAME", "workers", &[Kind::Count]),
    ("pool.NAME", "user", &[Kind::Text]),
    ("pool.NAME", "group", &[Kind::Text]),
    ("pool.NAME", "body_timeout", &[Kind::Text]),
    ("pool.NAME", "grace", &[Kind::Text]),
    ("pool.NAME.workers", "max", &[Kind::Count]),
    ("pool.NAME.workers", "spawn_rate", &[Kind::Count]),
    ("pool.NAME.recycle", "memory", &[Kind::Text]),
    ("pool.NAME.recycle", "age", &[Kind::Text]),
    ("pool.NAME.rlimits", "files", &[Kind::Count]),
    ("pool.NAME.rlimits", "processes", &[Kind::Count]),
    ("pool.NAME.rlimits", "memory", &[Kind::Text]),
    ("pool.NAME.rlimits", "file_size", &[Kind::Text]),
    ("pool.NAME.rlimits", "core", &[Kind::Text]),
    ("pool.NAME.health", "path", &[Kind::Text]),
    ("pool.NAME.health", "status", &[Kind::Text]),
    ("pool.NAME.slow", "log", &[Kind::Text]),
    ("pool.NAME", "servers", &[Kind::Texts]),
    ("pool.NAME", "remote_root", &[Kind::Text]),
    ("site.NAME", "root", &[Kind::Text]),
    ("site.NAME", "pool", &[Kind::Text]),
    ("site.NAME", "front", &[Kind::Text]),
    ("limits", "requests_per_ip", &[Kind::Text]),
    ("site.NAME", "canonical", &[Kind::Text]),
    ("site.NAME.limits", "body", &[Kind::Text]),
    ("site.NAME.limits", "requests_per_ip", &[Kind::Text]),
    ("site.NAME.limits", "body_timeout", &[Kind::Text]),
    ("site.NAME.limits", "idle_timeout", &[Kind::Text]),
    ("site.NAME.limits", "send_timeout", &[Kind::Text]),
    ("site.NAME.maintenance", "file", &[Kind::Text]),
    ("site.NAME.maintenance", "page", &[Kind::Text]),
    ("site.NAME.route", "path", &[Kind::Text]),
    ("site.NAME.route", "pool", &[Kind::Text]),
    ("site.NAME.route", "root", &[Kind::Text]),
    ("site.NAME.route", "app", &[Kind::Text]),
    ("site.NAME.route", "front", &[Kind::Text]),
    ("site.NAME.route", "allow", &[Kind::Texts]),
    ("site.NAME.route", "basic_auth", &[Kind::Text]),
    ("site.NAME.route", "rate", &[Kind::Text]),
    ("site.NAME.sendfile", "roots", &[Kind::Texts]),
    ("site.NAME.offload", "types", &[Kind::Texts]),
    ("site.NAME.offload", "extensions", &[Kind::Texts]),
    ("site.NAME.log", "format", &[Kind::Text]),
    ("site.NAME.log", "access", &[Kind::Text]),
    ("site.NAME.log", "file", &[Kind::Text]),
    ("compress", "types", &[Kind::Texts]),
    ("compress", "zstd", &[Kind::Count]),
    ("compress", "br", &[Kind::Count]),
    ("compress", "gzip", &[Kind::Count]),
    ("tls", "cert", &[Kind::Text]),
    ("tls", "key", &[Kind::Text]),
    ("tls", "hsts", &[Kind::Text]),
    ("tls", "email", &[Kind::Text]),
    ("tls", "state", &[Kind::Text]),
    ("site.NAME.tls", "mode", &[Kind::Text]),
    ("site.NAME.tls", "cert", &[Kind::Text]),
    ("site.NAME.tls", "key", &[Kind::Text]),
    ("site.NAME.tls", "redirect", &[Kind::Flag]),
    ("site.NAME.tls", "hsts", &[Kind::Text]),
    ("site.NAME.compress", "level", &[Kind::Text]),
    ("site.NAME.compress", "algorithms", &[Kind::Texts]),
    ("site.NAME.compress", "min_size", &[Kind::Text]),
    ("site.NAME.compress", "types", &[Kind::Texts]),
    ("site.NAME.compress", "zstd", &[Kind::Count]),
    ("site.NAME.compress", "br", &[Kind::Count]),
    ("site.NAME.compress", "gzip", &[Kind::Count]),
    ("site.NAME.compress", "no_secrets", &[Kind::Flag]),
    ("site.NAME.images", "store", &[Kind::Text]),
    ("site.NAME.images", "root", &[Kind::Text]),
    ("site.NAME.images", "format", &[Kind::Text]),
    ("site.NAME.images", "max_pixels", &[Kind::Count]),
    ("site.NAME.images", "widths", &[Kind::Counts]),
    ("site.NAME.images", "download", &[Kind::Texts]),
    ("site.NAME.images", "token", &[Kind::Text]),
    ("site.NAME.images", "sign", &[Kind::Text, Kind::Texts]),
    ("site.NAME.images", "fallback", &[Kind::Text]),
    ("site.NAME.images", "workers", &[Kind::Count]),
    ("store.NAME", "endpoint", &[Kind::Text]),
    ("store.NAME", "region", &[Kind::Text]),
    ("store.NAME", "key", &[Kind::Text]),
    ("store.NAME", "secret", &[Kind::Text]),
];

/// The whole schema.
pub(crate) fn schema() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "haulier configuration",
    });
    if let (Value::Object(schema), Value::Object(top)) = (&mut schema, table(&words::TOP)) {
        schema.extend(top);
    }
    schema
}

fn table(words: &Table) -> Value {
    let mut properties = Map::new();
    for word in words.words {
        properties.insert(word.name.to_owned(), property(words, word));
    }
    let required: Vec<&str> = words
        .words
        .iter()
        .filter(|word| word.default == "required")
        .map(|word| word.name)
        .collect();
    let mut table = json!({"type": "object", "additionalProperties": false, "properties": properties});
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    table
}

fn property(words: &Table, word: &Word) -> Value {
    let below = if words.name.is_empty() {
        word.name.to_owned()
    } else {
        format!("{}.{}", words.name, word.name)
    };
    let mut forms: Vec<Value> = kinds(words, word).iter().map(|kind| value(*kind)).collect();
    if let Some(named) = words::table(&format!("{below}.NAME")) {
        forms = vec![json!({"type": "object", "additionalProperties": table(named)})];
    } else if let Some(words) = words::table(&below) {
        // A table takes the place of the free names that its default stands for.
        forms.retain(|form| form["type"] != "object");
        let is_list = word.about.starts_with("`[[");
        forms.push(match is_list {
            true => json!({"type": "array", "items": table(words)}),
            false => table(words),
        });
    }
    let mut property = match forms.len() {
        1 => forms.swap_remove(0),
        _ => json!({"anyOf": forms}),
    };
    property["description"] = word.about.into();
    if let Some(default) = word.literal_default() {
        property["default"] = default;
    }
    property
}

/// What a setting takes; empty if neither the list above nor its default tells.
fn kinds(words: &Table, word: &Word) -> Vec<Kind> {
    let listed = KINDS
        .iter()
        .find(|(table, name, _)| (*table, *name) == (words.name, word.name));
    if let Some((_, _, kinds)) = listed {
        return kinds.to_vec();
    }
    match word.literal_default() {
        Some(Value::String(_)) => vec![Kind::Text],
        Some(Value::Number(_)) => vec![Kind::Count],
        Some(Value::Bool(_)) => vec![Kind::Flag],
        Some(Value::Array(_)) => vec![Kind::Texts],
        Some(Value::Object(_)) => vec![Kind::Pairs],
        Some(Value::Null) | None => Vec::new(),
    }
}

fn value(kind: Kind) -> Value {
    match kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Count => json!({"type": "integer"}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
        Kind::Counts => json!({"type": "array", "items": {"type": "integer"}}),
        Kind::Pairs => json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file;
    use haulier_settings::Report;

    /// What the reader says about one setting with this value.
    fn type_errors(table: &Table, word: &Word, value: &str) -> Vec<Value> {
        let header = table.name.replace("NAME", "x");
        let text = if header.is_empty() {
            format!("{} = {value}\n", word.name)
        } else {
            let is_list = table.name == words::ROUTE.name;
            let (open, close) = if is_list { ("[[", "]]") } else { ("[", "]") };
            format!("{open}{header}{close}\n{} = {value}\n", word.name)
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("haulier.toml");
        std::fs::write(&path, text).expect("the folder is ours");
        let mut report = Report::default();
        file::load(&path, &mut report, &|_| None).expect("it can be read");
        let findings = report.to_json();
        let findings = findings.as_array().cloned().unwrap_or_default();
        let of_type = |finding: &Value| finding["code"] == "config::type" || finding["code"] == "config::unit";
        findings.into_iter().filter(of_type).collect()
    }

    fn example(kind: Kind) -> &'static str {
        match kind {
            Kind::Text => "\"x\"",
            Kind::Count => "7",
            Kind::Flag => "true",
            Kind::Texts => "[\"x\"]",
            Kind::Counts => "[7]",
            Kind::Pairs => "{ x = \"y\" }",
        }
    }

    #[test]
    fn every_setting_takes_what_its_schema_says_and_nothing_else() {
        let all = [
            Kind::Text,
            Kind::Count,
            Kind::Flag,
            Kind::Texts,
            Kind::Counts,
            Kind::Pairs,
        ];
        for table in words::TABLES {
            for word in table.words {
                let below = format!("{}.{}", table.name, word.name);
                let has_table = [&below, word.name, &format!("{}.NAME", word.name)]
                    .iter()
                    .any(|name| words::table(name).is_some());
                if has_table && (table.name.is_empty() || words::table(&below).is_some()) {
                    continue;
                }
                let kinds = kinds(table, word);
                assert!(
                    !kinds.is_empty(),
                    "`{}` in `[{}]` needs a line in KINDS",
                    word.name,
                    table.name
                );
                for kind in all {
                    let errors = type_errors(table, word, example(kind));
                    let taken = errors.is_empty();
                    let name = format!("`{}` in `[{}]` as {kind:?}: {errors:?}", word.name, table.name);
                    assert_eq!(taken, kinds.contains(&kind), "{name}");
                }
            }
        }
    }

    #[test]
    fn defaults_are_of_the_kind_they_are_for() {
        let site = &schema()["properties"]["site"]["additionalProperties"];
        assert_eq!(
            site["required"],
            json!(null),
            "a site may have a document root, images, or both"
        );
        assert_eq!(site["properties"]["hosts"]["default"], json!(["*"]));
        assert_eq!(site["properties"]["limits"]["properties"]["body"]["type"], "string");
        assert_eq!(
            schema()["properties"]["server"]["properties"]["defer_accept"]["default"],
            true
        );
        assert_eq!(schema()["additionalProperties"], false);
        assert_eq!(
            schema()["properties"]["server"]["properties"]["http"]["anyOf"][1]["type"],
            "array"
        );
    }
}
