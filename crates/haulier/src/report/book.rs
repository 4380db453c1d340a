//! What a report is about: pages of measured runs and of tables that scripts made.
//!
//! A plan's run is stored as one book. A single run becomes a book of one page, so that there is one way to show things.

use std::collections::BTreeMap;

use haulier_client::bench::result::{Machine, Run};
use serde::{Deserialize, Serialize};

/// The version of this document.
pub(crate) const SCHEMA: u32 = 1;

/// A report: what is on its pages, not how it looks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Book {
    /// [`SCHEMA`] of the program that wrote it. The name also tells a book from a run.
    pub(crate) book: u32,
    pub(crate) title: String,
    /// The program, `haulier 0.1.0`.
    pub(crate) tool: String,
    /// The command line as it was given.
    pub(crate) command: Vec<String>,
    /// UTC, RFC 3339.
    pub(crate) started: String,
    pub(crate) duration_s: f64,
    pub(crate) machine: Machine,
    pub(crate) pages: Vec<Page>,
}

/// One plan, or one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Page {
    pub(crate) title: String,
    /// Paragraphs, parted by empty lines.
    #[serde(default)]
    pub(crate) about: String,
    /// The plan's file.
    #[serde(default)]
    pub(crate) plan: Option<String>,
    pub(crate) parts: Vec<Part>,
    /// Server → what it says of itself.
    #[serde(default)]
    pub(crate) versions: Vec<(String, String)>,
    /// Who took no part, and why.
    #[serde(default)]
    pub(crate) left_out: Vec<(String, String)>,
}

/// A section of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub(crate) enum Part {
    /// What `haulier bench` measured.
    Run {
        #[serde(default)]
        title: String,
        #[serde(default)]
        about: String,
        run: Box<Run>,
    },
    /// What a script measured.
    Script {
        title: String,
        #[serde(default)]
        about: String,
        outcome: Outcome,
    },
    /// It could not be measured.
    Failed { title: String, why: String },
}

/// What a script of a plan writes to its standard output, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outcome {
    /// What came out, in sentences.
    #[serde(default)]
    pub(crate) sentences: Vec<String>,
    #[serde(default)]
    pub(crate) tables: Vec<Table>,
    #[serde(default)]
    pub(crate) charts: Vec<Chart>,
}

/// A table of a script.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    #[serde(default)]
    pub(crate) title: String,
    /// What its figures mean, below it.
    #[serde(default)]
    pub(crate) note: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

/// A column; the first one of a table has the names of the rows and is not listed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) unit: Unit,
    #[serde(default)]
    pub(crate) best: Best,
}

/// How a number is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    #[default]
    Number,
    /// Microseconds.
    Time,
    Bytes,
    /// 0 to 1.
    Share,
}

/// Which figure of a column is marked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Best {
    #[default]
    None,
    Least,
    Most,
}

/// A line of a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) cells: Vec<Cell>,
}

/// A figure, words, or nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Cell {
    Number(f64),
    Text(String),
    Nothing,
}

/// Points of several series, joined by lines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    pub(crate) series: Vec<Series>,
}

/// An axis of a chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scale {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) unit: Unit,
    #[serde(default)]
    pub(crate) log: bool,
}

/// Points that belong together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Book {
    /// A book of one page with one run.
    pub(crate) fn of_run(run: Run) -> Self {
        let names: Vec<&str> = run.targets.iter().map(|target| target.name.as_str()).collect();
        Self {
            book: SCHEMA,
            title: names.join(" · "),
            tool: run.tool.clone(),
            command: run.command.clone(),
            started: run.started.clone(),
            duration_s: run.duration_s,
            machine: run.machine.clone(),
            pages: vec![Page {
                title: names.join(" · "),
                about: String::new(),
                plan: None,
                versions: servers(&run),
                left_out: Vec::new(),
                parts: vec![Part::Run {
                    title: String::new(),
                    about: String::new(),
                    run: Box::new(run),
                }],
            }],
        }
    }

    /// All measured runs.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.pages
            .iter()
            .flat_map(|page| &page.parts)
            .filter_map(|part| match part {
                Part::Run { run, .. } => Some(&**run),
                Part::Script { .. } | Part::Failed { .. } => None,
            })
    }

    /// All measured runs, to be changed.
    pub(crate) fn runs_mut(&mut self) -> impl Iterator<Item = &mut Run> {
        let parts = self.pages.iter_mut().flat_map(|page| &mut page.parts);
        parts.filter_map(|part| match part {
            Part::Run { run, .. } => Some(&mut **run),
            Part::Script { .. } | Part::Failed { .. } => None,
        })
    }
}

/// What the servers of a run called themselves in their answers, and the version their metrics name.
fn servers(run: &Run) -> Vec<(String, String)> {
    let named = run.targets.iter().filter_map(|target| {
        let server = target.answer.as_ref().and_then(|answer| answer.server.clone());
        let text = match (server, &target.version) {
            (Some(server), Some(version)) if !server.contains(version.as_str()) => format!("{server} {version}"),
            (None, Some(version)) => version.clone(),
            (Some(server), _) if server.contains(|letter: char| letter.is_ascii_digit()) => server,
            (Some(server), _) => format!("{server}, which does not tell its version"),
            (None, None) => return None,
        };
        Some((target.name.clone(), text))
    });
    let once: BTreeMap<String, String> = named.collect();
    let in_order = run.targets.iter().filter_map(|target| once.get_key_value(&target.name));
    in_order.map(|(name, text)| (name.clone(), text.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_may_leave_out_what_it_does_not_have() {
        let said = r#"{"tables": [{"columns": [{"name": "s", "unit": "time", "best": "least"}, {"name": "why"}],
            "rows": [{"name": "curl", "cells": [12.5, "ok"]}, {"name": "axel", "cells": [null, ""]}]}]}"#;
        let outcome: Outcome = serde_json::from_str(said).expect("an outcome");
        let table = &outcome.tables[0];
        assert_eq!((table.columns[0].unit, table.columns[1].best), (Unit::Time, Best::None));
        assert_eq!(table.rows[0].cells, [Cell::Number(12.5), Cell::Text("ok".to_owned())]);
        assert_eq!(table.rows[1].cells[0], Cell::Nothing);
    }

    #[test]
    fn a_server_without_a_version_is_not_listed_as_if_it_had_one() {
        let mut run = super::super::samples::pair();
        run.targets[1].version = Some("0.1.0".to_owned());
        let texts = servers(&run).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts, ["haulier, which does not tell its version", "haulier 0.1.0"]);
        run.targets[0].answer.as_mut().expect("asked").server = Some("nginx/1.22.1".to_owned());
        assert_eq!(servers(&run)[0].1, "nginx/1.22.1");
    }

    #[test]
    fn a_word_that_means_nothing_is_refused() {
        assert!(serde_json::from_str::<Outcome>(r#"{"table": []}"#).is_err());
    }
}
