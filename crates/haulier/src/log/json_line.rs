//! One JSON object on one line, its fields in the order given.

use serde_json::Value;

/// `{"level":"info","msg":"listening"}` and a newline.
pub(crate) fn json_line<'f>(fields: impl IntoIterator<Item = (&'f str, Value)>) -> String {
    let fields: Vec<String> = fields
        .into_iter()
        .map(|(name, value)| format!("{}:{value}", Value::from(name)))
        .collect();
    format!("{{{}}}\n", fields.join(","))
}
