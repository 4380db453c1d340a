//! Scripts that stream large bodies, each with the rule that takes the bodies off PHP.

use haulier_server::metrics::StreamingScript;
use serde::{Deserialize, Serialize};

/// A script that streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamingState {
    pub(crate) site: String,
    pub(crate) script: String,
    pub(crate) media_type: Option<String>,
    pub(crate) responses: u64,
    pub(crate) bytes: u64,
    /// The lines to add to the configuration.
    pub(crate) rule: String,
}

/// PHP's default media type: a rule for it would apply to every page.
const DEFAULT_TYPE: &str = "text/html";

pub(crate) fn streaming_states(scripts: Vec<StreamingScript>) -> Vec<StreamingState> {
    let rules: Vec<_> = scripts.iter().map(|script| rule_for(script, &scripts)).collect();
    let states = scripts.into_iter().zip(rules).map(|(script, rule)| StreamingState {
        rule,
        site: script.site,
        script: script.script,
        media_type: script.media_type,
        responses: script.responses,
        bytes: script.bytes,
    });
    states.collect()
}

/// The configuration table that takes bodies of these types off PHP, for all scripts of the site. Names of sites need no
/// quotes.
fn rule_for(script: &StreamingScript, scripts: &[StreamingScript]) -> String {
    let says_nothing = |kind: &str| kind.is_empty() || kind == DEFAULT_TYPE;
    if script.media_type.as_deref().is_none_or(says_nothing) {
        let name = &script.script;
        return format!("# have {name} send the Content-Type of what it streams, or name the file (X-Sendfile)");
    }
    let mut types = script.listed.clone();
    for other in scripts.iter().filter(|other| other.site == script.site) {
        match &other.media_type {
            Some(kind) if !says_nothing(kind) && !types.contains(kind) => types.push(kind.clone()),
            _ => {}
        }
    }
    let quoted: Vec<_> = types
        .into_iter()
        .map(|kind| serde_json::Value::from(kind).to_string())
        .collect();
    format!("[site.{}.offload]\ntypes = [{}]", script.site, quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_of_a_site_can_be_pasted_and_names_all_its_types() {
        let script = |script: &str, media_type: Option<&str>| StreamingScript {
            site: "shop".into(),
            script: script.into(),
            media_type: media_type.map(str::to_owned),
            responses: 1,
            bytes: 1,
            listed: vec!["video/*".into()],
        };
        let states = streaming_states(vec![
            script("/a.php", Some("application/zip")),
            script("/b.php", Some("application/pdf")),
            script("/c.php", Some("application/zip")),
            script("/page.php", Some("text/html")),
            script("/says-nothing.php", None),
        ]);
        assert_eq!(states[0].rule, states[1].rule);
        let rule: toml::Table = states[0].rule.parse().expect("TOML");
        let types = &rule["site"]["shop"]["offload"]["types"];
        assert_eq!(
            types.to_string(),
            r#"["video/*", "application/zip", "application/pdf"]"#
        );
        for state in &states[3..] {
            let advice = format!("# have {} send the Content-Type", state.script);
            assert!(state.rule.starts_with(&advice), "{state:?}");
        }
    }
}
