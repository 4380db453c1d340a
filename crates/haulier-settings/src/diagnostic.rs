//! Mistakes in a configuration or on a machine, shown with their place.
//!
//! A `Report` collects all of them and prints them at once, in the order of the file.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::source::{SourceFile, SourcePlace};

/// Most findings that are shown: the rest is counted.
const SHOWN: usize = 10;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// haulier does not start.
    Error,
    /// haulier starts and logs it.
    Warning,
}

/// A place with its label.
#[derive(Debug, Clone)]
struct Mark {
    place: SourcePlace,
    label: String,
}

/// One finding.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    severity: Severity,
    code: &'static str,
    title: String,
    mark: Option<Box<Mark>>,
    context: Vec<Mark>,
    help: Vec<String>,
}

impl Diagnostic {
    /// An error: its code (`config::value`) and a title of one line.
    pub fn error(code: &'static str, title: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, title.into())
    }

    /// A warning, likewise.
    pub fn warning(code: &'static str, title: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, title.into())
    }

    fn new(severity: Severity, code: &'static str, title: String) -> Self {
        Self {
            severity,
            code,
            title,
            mark: None,
            context: Vec::new(),
            help: Vec::new(),
        }
    }

    /// Underlines `place`, if the value stands in a file.
    pub fn at(mut self, place: Option<&SourcePlace>, label: impl Into<String>) -> Self {
        self.mark = place.map(|place| {
            Box::new(Mark {
                place: place.clone(),
                label: label.into(),
            })
        });
        self
    }

    /// Underlines a second place that explains the first.
    pub fn beside(mut self, place: Option<&SourcePlace>, label: impl Into<String>) -> Self {
        self.context.extend(place.map(|place| Mark {
            place: place.clone(),
            label: label.into(),
        }));
        self
    }

    /// Adds a line below with advice.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// The mistake, in one line.
    pub fn title(&self) -> &str {
        &self.title
    }

    fn order(&self) -> (usize, usize) {
        self.mark
            .as_ref()
            .map_or((usize::MAX, 0), |mark| (mark.place.source, mark.place.span.start))
    }

    fn render(&self, sources: &[SourceFile], renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut first = Group::with_title(level.primary_title(self.title.as_str()).id(self.code));
        if let Some(mark) = &self.mark {
            first = first.elements(self.snippets(mark, sources));
        }
        let mut groups = vec![first];
        groups.extend(
            self.help
                .iter()
                .map(|help| Group::with_title(Level::HELP.secondary_title(help.as_str()))),
        );
        let text = renderer.render(&groups);
        match self.mark {
            Some(_) => text,
            // Without a place the margin between title and help stands beside nothing.
            None => text
                .lines()
                .filter(|line| !is_margin(line))
                .collect::<Vec<_>>()
                .join("\n"),
        }
    }

    /// The file of the mark, then the other files that explain it.
    fn snippets<'a>(
        &'a self,
        mark: &'a Mark,
        sources: &'a [SourceFile],
    ) -> Vec<Snippet<'a, annotate_snippets::Annotation<'a>>> {
        let mut files = vec![mark.place.source];
        for other in &self.context {
            if !files.contains(&other.place.source) {
                files.push(other.place.source);
            }
        }
        let annotations = |file: usize| {
            let primary = Some(mark).filter(|mark| mark.place.source == file);
            let context = self.context.iter().filter(move |mark| mark.place.source == file);
            primary
                .map(|mark| {
                    AnnotationKind::Primary
                        .span(mark.place.span.clone())
                        .label(mark.label.as_str())
                })
                .into_iter()
                .chain(context.map(|mark| {
                    AnnotationKind::Context
                        .span(mark.place.span.clone())
                        .label(mark.label.as_str())
                }))
        };
        files
            .into_iter()
            .map(|file| {
                let source = &sources[file];
                Snippet::source(source.text.as_str())
                    .path(source.path.to_string_lossy().into_owned())
                    .annotations(annotations(file))
            })
            .collect()
    }

    /// Line and column of the mark, both from 1.
    fn line_and_column(&self, sources: &[SourceFile]) -> Option<(usize, usize)> {
        let place = &self.mark.as_ref()?.place;
        let before = sources[place.source].text.get(..place.span.start)?;
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Some((
            before.matches('\n').count() + 1,
            before[line_start..].chars().count() + 1,
        ))
    }
}

/// True for a line with only the bar beside quoted text; colours do not count.
fn is_margin(line: &str) -> bool {
    let mut in_colour = false;
    let shown = line.chars().filter(|letter| {
        let was_in_colour = in_colour;
        in_colour = *letter == '\x1b' || (in_colour && *letter != 'm');
        !was_in_colour && !in_colour && *letter != ' '
    });
    shown.eq(['|'])
}

/// All findings, with the texts they were found in.
#[derive(Debug, Default)]
pub struct Report {
    /// The files read so far, the main one first.
    pub sources: Vec<SourceFile>,
    found: Vec<Diagnostic>,
}

impl Report {
    /// Adds a finding.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// Number of errors.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// Number of warnings.
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    fn count(&self, severity: Severity) -> usize {
        self.found.iter().filter(|found| found.severity == severity).count()
    }

    /// The warnings as single lines, for the log.
    pub fn warning_lines(&self) -> impl Iterator<Item = &str> {
        self.found
            .iter()
            .filter(|found| found.severity == Severity::Warning)
            .map(Diagnostic::title)
    }

    /// The errors as single lines with their place, for the log.
    pub fn error_lines(&self) -> impl Iterator<Item = String> {
        let errors = self
            .sorted()
            .into_iter()
            .filter(|found| found.severity == Severity::Error);
        errors.map(|found| match (found.line_and_column(&self.sources), &found.mark) {
            (Some((line, column)), Some(mark)) => {
                let file = self.sources[mark.place.source].path.display();
                format!("{file}:{line}:{column}: {}", found.title)
            }
            _ => found.title.clone(),
        })
    }

    /// All findings as text for people, in file order.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let sorted = self.sorted();
        let mut text = String::new();
        for found in sorted.iter().take(SHOWN) {
            text.push_str(&found.render(&self.sources, &renderer));
            text.push_str("\n\n");
        }
        if sorted.len() > SHOWN {
            text.push_str(&format!("… and {} more\n\n", sorted.len() - SHOWN));
        }
        text
    }

    /// All findings for programs.
    pub fn to_json(&self) -> serde_json::Value {
        let one = |found: &Diagnostic| {
            let position = found.line_and_column(&self.sources);
            serde_json::json!({
                "severity": match found.severity { Severity::Error => "error", Severity::Warning => "warning" },
                "code": found.code,
                "message": found.title,
                "file": found.mark.as_ref().map(|mark| self.sources[mark.place.source].path.to_string_lossy().into_owned()),
                "line": position.map(|(line, _)| line),
                "column": position.map(|(_, column)| column),
                "label": found.mark.as_ref().map(|mark| mark.label.as_str()),
                "help": found.help,
            })
        };
        serde_json::Value::Array(self.sorted().into_iter().map(one).collect())
    }

    fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<&Diagnostic> = self.found.iter().collect();
        sorted.sort_by_key(|found| found.order());
        sorted
    }
}
