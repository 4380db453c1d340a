//! A report as data: pages of measured runs and of tables that scripts made.
//!
//! A plan's run is stored as one report. A single run becomes a report of one page, so that all are shown alike.

use std::collections::BTreeMap;

use crate::result::{Machine, Run};
use serde::{Deserialize, Serialize};

/// The version of this document.
pub const SCHEMA: u32 = 1;

/// A report: the content of its pages, without their form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`] of the program that wrote it. Its name in the document tells a report from a run.
    #[serde(rename = "book")]
    pub schema: u32,
    pub title: String,
    /// The program, `haulier 0.1.0`.
    pub tool: String,
    /// The command line as it was given.
    pub command: Vec<String>,
    /// UTC, RFC 3339.
    pub started: String,
    pub duration_s: f64,
    pub machine: Machine,
    pub pages: Vec<Page>,
}

/// One plan, or one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page {
    pub title: String,
    /// Paragraphs, separated by empty lines.
    #[serde(default)]
    pub about: String,
    /// The plan's file.
    #[serde(default)]
    pub plan: Option<String>,
    pub parts: Vec<PagePart>,
    /// Servers with their versions.
    #[serde(default)]
    pub versions: Vec<(String, String)>,
    /// Servers that were not measured, each with the reason.
    #[serde(default)]
    pub left_out: Vec<(String, String)>,
}

/// A section of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PagePart {
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub about: String,
    /// Time of the measurement: UTC, RFC 3339. A report may keep parts of earlier runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<String>,
    #[serde(flatten)]
    pub content: PartContent,
}

/// The figures of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum PartContent {
    /// Measured by `haulier bench`.
    Run {
        run: Box<Run>,
        /// Columns of its table; empty for all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        show: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        goals: Vec<Judgement>,
    },
    /// Measured by a script.
    Script { outcome: ScriptOutcome },
    /// Not measured.
    Failed { why: String },
}

/// A goal with its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The line of the plan: `CPU/request <= 0.75 of the best other`.
    pub goal: String,
    /// The figure as text, with the compared target if the plan does not name it.
    pub measured: String,
    pub is_reached: bool,
}

impl PagePart {
    /// A part without a time.
    pub fn new(title: impl Into<String>, about: impl Into<String>, content: PartContent) -> Self {
        Self {
            title: title.into(),
            about: about.into(),
            measured: None,
            content,
        }
    }

    /// True if there are no figures.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.content, PartContent::Failed { .. })
    }

    /// Its goals, each with the outcome.
    #[must_use]
    pub fn goals(&self) -> &[Judgement] {
        match &self.content {
            PartContent::Run { goals, .. } => goals,
            PartContent::Script { outcome } => &outcome.goals,
            PartContent::Failed { .. } => &[],
        }
    }
}

impl PartContent {
    /// A run without columns of choice and goals.
    #[must_use]
    pub fn of_run(run: Run) -> Self {
        Self::Run {
            run: Box::new(run),
            show: Vec::new(),
            goals: Vec::new(),
        }
    }
}

/// Output of a script of a plan, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptOutcome {
    /// Results in sentences.
    #[serde(default)]
    pub sentences: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Judgement>,
    #[serde(default)]
    pub tables: Vec<ReportTable>,
    #[serde(default)]
    pub charts: Vec<Chart>,
}

/// A table of a script.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportTable {
    #[serde(default)]
    pub title: String,
    /// Explanation below the table.
    #[serde(default)]
    pub note: String,
    pub columns: Vec<ReportColumn>,
    pub rows: Vec<Row>,
}

/// A column. The names of the rows are not listed as one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportColumn {
    pub name: String,
    #[serde(default)]
    pub unit: Unit,
    #[serde(default)]
    pub best: Best,
}

/// Unit of a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    #[default]
    Number,
    /// Microseconds.
    Time,
    Bytes,
    /// 0 to 1.
    Share,
}

/// The figure of a column to mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Best {
    #[default]
    None,
    Least,
    Most,
}

/// A line of a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub name: String,
    pub cells: Vec<Cell>,
}

/// A figure, a text, or nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    Number(f64),
    Text(String),
    Nothing,
}

/// Points of several series, joined by lines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    pub title: String,
    pub x: Scale,
    pub y: Scale,
    pub series: Vec<Series>,
}

/// An axis of a chart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    pub name: String,
    #[serde(default)]
    pub unit: Unit,
    #[serde(default)]
    pub log: bool,
}

/// Points that belong together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Report {
    /// A report of one page with one run.
    pub fn of_run(run: Run) -> Self {
        let names: Vec<&str> = run.targets.iter().map(|target| target.name.as_str()).collect();
        Self {
            schema: SCHEMA,
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
                parts: vec![PagePart::new("", "", PartContent::of_run(run))],
            }],
        }
    }

    /// All measured runs.
    #[cfg(test)]
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        let parts = self.pages.iter().flat_map(|page| &page.parts);
        parts.filter_map(|part| match &part.content {
            PartContent::Run { run, .. } => Some(&**run),
            PartContent::Script { .. } | PartContent::Failed { .. } => None,
        })
    }

    /// All measured runs, mutable.
    pub fn runs_mut(&mut self) -> impl Iterator<Item = &mut Run> {
        let parts = self.pages.iter_mut().flat_map(|page| &mut page.parts);
        parts.filter_map(|part| match &mut part.content {
            PartContent::Run { run, .. } => Some(&mut **run),
            PartContent::Script { .. } | PartContent::Failed { .. } => None,
        })
    }
}

impl Page {
    /// Adopts the parts of an earlier page that this one has not measured. `order` lists the titles of the plan's parts;
    /// other parts are dropped.
    pub fn keep(&mut self, earlier: Self, order: &[&str]) {
        for part in earlier.parts {
            match self.parts.iter_mut().find(|own| own.title == part.title) {
                Some(own) if own.has_failed() => *own = part,
                Some(_) => {}
                None => self.parts.push(part),
            }
        }
        let place = |part: &PagePart| order.iter().position(|title| *title == part.title);
        self.parts.retain(|part| place(part).is_some());
        self.parts.sort_by_key(place);
        let met: Vec<String> = self.versions.iter().map(|(name, _)| name.clone()).collect();
        self.versions
            .extend(earlier.versions.into_iter().filter(|(name, _)| !met.contains(name)));
        let known: Vec<String> = met
            .into_iter()
            .chain(self.left_out.iter().map(|(name, _)| name.clone()))
            .collect();
        self.left_out
            .extend(earlier.left_out.into_iter().filter(|(name, _)| !known.contains(name)));
    }
}

/// Names of the servers in their answers, and the versions in their metrics.
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
    fn all_parts_of_a_scripts_output_are_optional() {
        let said = r#"{"tables": [{"columns": [{"name": "s", "unit": "time", "best": "least"}, {"name": "why"}],
            "rows": [{"name": "curl", "cells": [12.5, "ok"]}, {"name": "axel", "cells": [null, ""]}]}]}"#;
        let outcome: ScriptOutcome = serde_json::from_str(said).expect("an outcome");
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
    fn parts_of_an_earlier_report_stay_where_nothing_was_measured_again() {
        let part = |title: &str, why: Option<&str>, figure: &str| {
            let outcome = ScriptOutcome {
                sentences: vec![figure.to_owned()],
                ..ScriptOutcome::default()
            };
            let content = match why {
                Some(why) => PartContent::Failed { why: why.to_owned() },
                None => PartContent::Script { outcome },
            };
            PagePart::new(title, "", content)
        };
        let page = |parts: Vec<PagePart>, versions: &[(&str, &str)]| Page {
            title: String::new(),
            about: String::new(),
            plan: None,
            parts,
            versions: versions
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect(),
            left_out: Vec::new(),
        };
        let earlier = page(
            vec![part("gone", None, ""), part("b", None, "old"), part("a", None, "old")],
            &[("nginx", "1"), ("h2o", "2")],
        );
        let mut newer = page(
            vec![
                part("b", None, "new"),
                part("a", Some("it broke"), ""),
                part("c", None, "new"),
            ],
            &[("nginx", "3")],
        );
        newer.keep(earlier, &["a", "b", "c"]);
        let found = [part("a", None, "old"), part("b", None, "new"), part("c", None, "new")];
        assert_eq!(newer.parts, found);
        let versions = [("nginx", "3"), ("h2o", "2")].map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(newer.versions, versions);
    }

    #[test]
    fn a_word_that_means_nothing_is_refused() {
        assert!(serde_json::from_str::<ScriptOutcome>(r#"{"table": []}"#).is_err());
    }
}
