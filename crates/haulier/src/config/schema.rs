//! JSON Schema of the configuration, for editors.

use haulier_settings::{Below, SettingsTable, ValueKind, Word};
use serde_json::{Map, Value, json};

use super::tables::TOP;

/// The whole schema.
pub(crate) fn schema() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "haulier configuration",
    });
    if let (Value::Object(schema), Value::Object(top)) = (&mut schema, table(&TOP)) {
        schema.extend(top);
    }
    schema
}

fn table(words: &SettingsTable) -> Value {
    let mut properties = Map::new();
    for word in words.words {
        properties.insert(word.name.to_owned(), property(word));
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

fn property(word: &Word) -> Value {
    let mut forms: Vec<Value> = word.kinds.iter().map(value).collect();
    match word.below {
        Below::Nothing => {}
        Below::Table(below) => forms.push(table(below)),
        Below::List(below) => forms.push(json!({"type": "array", "items": table(below)})),
        Below::Named(below) => forms.push(json!({"type": "object", "additionalProperties": table(below)})),
    }
    let mut property = match forms.len() {
        1 => forms.swap_remove(0),
        _ => json!({"anyOf": forms}),
    };
    property["description"] = word.about().into();
    if let Some(default) = word.literal_default() {
        property["default"] = default;
    }
    property
}

fn value(kind: &ValueKind) -> Value {
    match kind {
        ValueKind::Text => json!({"type": "string"}),
        ValueKind::Choice(words) => json!({"type": "string", "enum": words()}),
        ValueKind::Count => json!({"type": "integer"}),
        ValueKind::Flag => json!({"type": "boolean"}),
        ValueKind::Texts => json!({"type": "array", "items": {"type": "string"}}),
        ValueKind::Counts => json!({"type": "array", "items": {"type": "integer"}}),
        ValueKind::Pairs => {
            json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})
        }
    }
}

#[cfg(test)]
mod tests {
    use haulier_server::RouteTable;
    use haulier_settings::Report;
    use haulier_settings::declare::Declared;

    use super::*;
    use crate::config::file;
    use crate::config::tables::CONFIGURATION;

    /// The type errors of one setting with this value.
    fn type_errors(table: &SettingsTable, word: &Word, value: &str) -> Vec<Value> {
        let header = table.name.replace("NAME", "x");
        let text = if header.is_empty() {
            format!("{} = {value}\n", word.name)
        } else {
            let is_list = table.name == RouteTable::TABLE.name;
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

    const FORMS: [(&str, &str); 6] = [
        ("string", "\"x\""),
        ("integer", "7"),
        ("boolean", "true"),
        ("strings", "[\"x\"]"),
        ("integers", "[7]"),
        ("pairs", "{ x = \"y\" }"),
    ];

    fn form(kind: &ValueKind) -> &'static str {
        match kind {
            ValueKind::Text | ValueKind::Choice(_) => "string",
            ValueKind::Count => "integer",
            ValueKind::Flag => "boolean",
            ValueKind::Texts => "strings",
            ValueKind::Counts => "integers",
            ValueKind::Pairs => "pairs",
        }
    }

    #[test]
    fn every_setting_takes_what_its_schema_says_and_nothing_else() {
        for table in CONFIGURATION.tables {
            for word in table.words.iter().filter(|word| matches!(word.below, Below::Nothing)) {
                let forms: Vec<&str> = word.kinds.iter().map(form).collect();
                for (name, example) in FORMS {
                    let errors = type_errors(table, word, example);
                    let shown = format!("`{}` in `[{}]` as {name}: {errors:?}", word.name, table.name);
                    assert_eq!(errors.is_empty(), forms.contains(&name), "{shown}");
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
