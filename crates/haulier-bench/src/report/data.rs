//! Stored runs and reports: in files, and embedded in a page.

use std::path::{Path, PathBuf};

use crate::result::{self, Point, Run};
use serde_json::Value;

use super::document::{self, Page, PagePart, PartContent, Report};

/// The `id` of the element of a page that holds its data.
pub const ID: &str = "haulier-data";
/// The opening tag of that element.
const OPENING: &str = "<script type=\"application/json\" id=\"haulier-data\">";
/// Most embedded data for each page of a report; more is thinned out, so that an HTML page stays near 150 KB.
const MOST_EMBEDDED: usize = 72 * 1024;

/// The reason that a file holds no report.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} holds no run of haulier bench", path.display())]
    Foreign { path: PathBuf, source: serde_json::Error },
    #[error("{} is HTML without the data of a report", path.display())]
    NoData { path: PathBuf },
    #[error("{} was written by a newer haulier (document version {found}, this one knows {known})", path.display())]
    Newer { path: PathBuf, found: u64, known: u32 },
}

/// Reads a run, a report, or a page with one of them in it.
pub fn read(path: &Path) -> Result<Report, DataError> {
    let text = std::fs::read_to_string(path).map_err(|source| DataError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let json = match text.trim_start().starts_with('<') {
        false => text.as_str(),
        true => data_of(&text).ok_or_else(|| DataError::NoData { path: path.to_owned() })?,
    };
    parse(json, path)
}

/// Reads a single run.
///
/// # Errors
/// [`DataError`]; a report is foreign here.
pub fn read_run(path: &Path) -> Result<Run, DataError> {
    let text = std::fs::read_to_string(path).map_err(|source| DataError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|source| DataError::Foreign {
        path: path.to_owned(),
        source,
    })
}

/// The data of a page.
fn data_of(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once(OPENING)?;
    rest.split_once("</script>").map(|(json, _)| json)
}

fn parse(json: &str, path: &Path) -> Result<Report, DataError> {
    let foreign = |source| DataError::Foreign {
        path: path.to_owned(),
        source,
    };
    let value: Value = serde_json::from_str(json).map_err(foreign)?;
    let is_report = value.get("book").is_some();
    let (field, known) = if is_report {
        ("book", document::SCHEMA)
    } else {
        ("schema", result::SCHEMA)
    };
    if let Some(found) = value
        .get(field)
        .and_then(Value::as_u64)
        .filter(|found| *found > u64::from(known))
    {
        return Err(DataError::Newer {
            path: path.to_owned(),
            found,
            known,
        });
    }
    let mut report = match is_report {
        true => serde_json::from_value(value).map_err(foreign),
        false => serde_json::from_value(value).map(Report::of_run).map_err(foreign),
    }?;
    let points = report.runs_mut().flat_map(|run| &mut run.points);
    points.for_each(Point::complete_timeline);
    Ok(report)
}

/// The JSON document of a report; a single run is stored as a run.
pub fn to_json(report: &Report) -> String {
    let text = match report.pages.as_slice() {
        [Page { parts, plan: None, .. }] => match parts.as_slice() {
            [
                PagePart {
                    title,
                    content: PartContent::Run { run, .. },
                    ..
                },
            ] if title.is_empty() => serde_json::to_string(run),
            _ => serde_json::to_string(report),
        },
        _ => serde_json::to_string(report),
    };
    text.expect("a report has only what JSON has")
}

/// The data for a page, and a note on the histograms and timelines it lacks.
pub(super) fn embedded(report: &Report) -> (String, &'static str) {
    let most = MOST_EMBEDDED * report.pages.len().max(1);
    let mut thinned = report.clone();
    let mut json = to_json(&thinned);
    for (thin, note) in [
        (
            drop_lesser_histograms as fn(&mut Run),
            ", except for the histograms of parts of a request",
        ),
        (drop_histograms, ", except for histograms"),
        (drop_timelines, ", except for histograms and the course of time"),
    ] {
        if json.len() <= most {
            break;
        }
        thinned.runs_mut().for_each(thin);
        json = to_json(&thinned);
        if json.len() <= most {
            return (for_script(&json), note);
        }
    }
    let note = if thinned == *report {
        ""
    } else {
        ", except for histograms and the course of time"
    };
    (for_script(&json), note)
}

/// JSON that cannot end the element around it.
fn for_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

fn drop_lesser_histograms(run: &mut Run) {
    for point in &mut run.points {
        let total = &mut point.total;
        let lesser = [&mut total.service, &mut total.connect, &mut total.sent_late];
        for distribution in lesser.into_iter().flatten() {
            distribution.histogram.clear();
        }
        total.first_byte.histogram.clear();
    }
}

fn drop_histograms(run: &mut Run) {
    drop_lesser_histograms(run);
    let clear = |point: &mut Point| point.total.latency.histogram.clear();
    run.points.iter_mut().for_each(clear);
}

fn drop_timelines(run: &mut Run) {
    let clear = |point: &mut Point| point.total.timeline.clear();
    run.points.iter_mut().for_each(clear);
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn a_run_comes_back_from_its_page() {
        let report = Report::of_run(samples::pair());
        let page = super::super::html::page(&report);
        let json = data_of(&page).expect("the page has data");
        assert_eq!(parse(json, Path::new("x")).expect("our own"), report);
    }

    #[test]
    fn data_in_a_page_cannot_end_its_element() {
        let mut run = samples::pair();
        run.verdicts[0] = "</script><b>x".to_owned();
        let page = super::super::html::page(&Report::of_run(run.clone()));
        assert_eq!(page.matches("</script>").count(), 1);
        let back = parse(data_of(&page).expect("data"), Path::new("x")).expect("our own");
        assert_eq!(back.runs().next(), Some(&run));
    }

    #[test]
    fn a_large_run_loses_what_charts_can_spare() {
        let mut run = samples::pair();
        run.points[0].total.first_byte.histogram = "A".repeat(90_000);
        let (json, note) = embedded(&Report::of_run(run.clone()));
        assert!(
            json.len() < MOST_EMBEDDED && note.contains("parts of a request"),
            "{note}"
        );
        run.points[0].total.latency.histogram = "A".repeat(90_000);
        let (json, note) = embedded(&Report::of_run(run));
        assert!(json.len() < MOST_EMBEDDED && note.ends_with("histograms"), "{note}");
    }

    #[test]
    fn documents_of_others_are_refused_with_a_reason() {
        let why = |text| parse(text, Path::new("x.json")).expect_err("refused").to_string();
        assert_eq!(why("{}"), "x.json holds no run of haulier bench");
        assert!(why(r#"{"schema": 99}"#).contains("newer haulier"));
        assert!(why(r#"{"book": 99}"#).contains("newer haulier"));
    }
}
