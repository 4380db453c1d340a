//! A report as one HTML page that loads nothing: style, charts and data are in it.
//!
//! It runs no script: its Content-Security-Policy allows the one style sheet and nothing else. It contains its data as
//! JSON, so that `haulier bench report` reads the page like the JSON file.

use std::fmt::Write;

use crate::result::{Run, Warning, WarningKind};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::bars::{self, Bars};
use super::charts::{self, Figure, Ids, Key, look};
use super::data;
use super::document::{Page, PagePart, PartContent, Report, ScriptOutcome};
use super::facts::{self, Fact};
use super::figures::number;
use super::grid::{self, Grid, Level, Mark, levels, point};
use super::quantity::{FAILED, MEDIAN, P99, Quantity, RATE, SERVER_CPU};
use haulier_charts::swatch;
use haulier_proto::text::Escaped;

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub(crate) fn page(report: &Report) -> String {
    let style = format!("{}{STYLE}", haulier_charts::STYLE);
    let mut page = Writer::default();
    page.head(report, &style);
    match report.pages.as_slice() {
        [only] => page.single(report, only),
        pages => page.several(report, pages),
    }
    page.foot(report);
    page.out
}

/// Writes the page from its top to its end.
#[derive(Default)]
struct Writer {
    out: String,
    ids: Ids,
}

/// Text between tags.
fn escaped(text: &str) -> Escaped<'_> {
    Escaped(text)
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn element(&mut self, tag: &str, class: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let class = if class.is_empty() {
            String::new()
        } else {
            format!(" class=\"{class}\"")
        };
        let _ = write!(self.out, "<{tag}{class}>{}</{tag}>", escaped(text));
    }

    fn head(&mut self, report: &Report, style: &str) {
        let hash = STANDARD.encode(Sha256::digest(style.as_bytes()));
        let _ = write!(
            self.out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{hash}'\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\"><title>{}</title><style>{style}</style></head><body>\n",
            escaped(&report.title)
        );
    }

    fn kicker(&mut self, report: &Report) {
        let _ = write!(
            self.out,
            "<p class=\"kicker\"><b>haulier bench</b> · {} · {}</p>",
            escaped(&facts::when(&report.started)),
            escaped(&facts::machine_line(&report.machine))
        );
    }

    /// Writes the only page. A single run has its verdict as headline.
    fn single(&mut self, report: &Report, page: &Page) {
        self.put("<header>");
        self.kicker(report);
        match page.parts.as_slice() {
            [
                PagePart {
                    title,
                    content: PartContent::Run { run, .. },
                    ..
                },
            ] if title.is_empty() => {
                self.element("h1", "", &headline(run));
                self.sentences(run.verdicts.get(1..).unwrap_or_default());
            }
            _ => {
                self.element("h1", "", &page.title);
                self.about(&page.about);
            }
        }
        self.put("</header>\n<main><article>");
        self.parts(report, page);
        self.page_facts(page);
        self.put("</article></main>\n");
    }

    fn several(&mut self, report: &Report, pages: &[Page]) {
        self.put("<header>");
        self.kicker(report);
        self.element("h1", "", &report.title);
        self.put("<nav aria-label=\"Pages\"><ol>");
        for (number, page) in pages.iter().enumerate() {
            let _ = write!(self.out, "<li><a href=\"#p{number}\">{}</a></li>", escaped(&page.title));
        }
        self.put("</ol></nav></header>\n<main>");
        for (number, page) in pages.iter().enumerate() {
            let _ = write!(self.out, "<article id=\"p{number}\"><h2>{}</h2>", escaped(&page.title));
            self.about(&page.about);
            self.parts(report, page);
            self.page_facts(page);
            self.put("</article>\n");
        }
        self.put("</main>\n");
    }

    fn about(&mut self, about: &str) {
        let paragraphs: Vec<&str> = about
            .split("\n\n")
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .collect();
        if paragraphs.is_empty() {
            return;
        }
        self.put("<div class=\"about\">");
        for paragraph in paragraphs {
            self.element("p", "", paragraph);
        }
        self.put("</div>");
    }

    fn sentences(&mut self, sentences: &[String]) {
        if sentences.is_empty() {
            return;
        }
        self.put("<ul class=\"more\">");
        for sentence in sentences {
            self.element("li", "", sentence);
        }
        self.put("</ul>");
    }

    fn parts(&mut self, report: &Report, page: &Page) {
        if let Some(goals) = grid::of_goals(page) {
            self.put("<section>");
            self.grid(&goals, None);
            self.put("</section>");
        }
        for part in &page.parts {
            self.put("<section>");
            self.element("h3", "", &part.title);
            self.about(&part.about);
            if let Some(earlier) = facts::earlier(report, part) {
                self.element("p", "", &earlier);
            }
            match &part.content {
                PartContent::Run { run, show, .. } => {
                    // A part without a title has them in the headline.
                    if !part.title.is_empty() {
                        self.sentences(&run.verdicts);
                    }
                    self.run(run, show);
                }
                PartContent::Script { outcome } => self.outcome(outcome),
                PartContent::Failed { why } => self.tell("bad", "Not measured", why),
            }
            self.put("</section>");
        }
    }

    fn run(&mut self, run: &Run, show: &[String]) {
        for warning in &run.warnings {
            self.warning(run, warning);
        }
        let levels = levels(run);
        if levels.is_empty() {
            self.tell("bad", "Nothing measured", "no target was measured");
        }
        self.tiles(run, &levels);
        if let [level] = levels.as_slice() {
            let bars = bars::of_run(run, *level);
            self.pair(bars.len(), |page, number| page.bars(&bars[number]));
        }
        let summary = grid::summary(run, show);
        match summary.as_slice() {
            [] => {}
            [only] => {
                self.put("<div class=\"card\">");
                self.grid(only, Some(run));
                self.put("</div>");
            }
            several => self.pair(several.len(), |page, number| page.grid(&several[number], Some(run))),
        }
        self.ratios(run, &levels);
        self.charts(run);
        self.further(run, &levels);
    }

    fn tell(&mut self, class: &str, what: &str, text: &str) {
        let class = if class.is_empty() {
            "tell".to_owned()
        } else {
            format!("tell {class}")
        };
        let (what, text) = (escaped(what), escaped(text));
        let _ = write!(
            self.out,
            "<p class=\"{class}\" role=\"note\"><b>{what}</b> <span>{text}</span></p>"
        );
    }

    fn warning(&mut self, run: &Run, warning: &Warning) {
        let (class, what) = match warning.kind {
            WarningKind::NotSameWork => ("bad", "Not the same work"),
            WarningKind::Failures => ("bad", "Requests failed"),
            WarningKind::Status => ("bad", "Wrong page?"),
            WarningKind::GeneratorLimited => ("", "The generator was the limit"),
            WarningKind::RateNotReached => ("", "Rate not reached"),
            WarningKind::Kernel => ("", "Full accept queue"),
            WarningKind::NoKeepAlive => ("", "No keep-alive"),
            WarningKind::Busy => ("", "Busy machine"),
            WarningKind::NotSampled => ("", "Not sampled"),
            WarningKind::NotInterleaved => ("", "Not interleaved"),
        };
        self.tell(class, what, &warning.named(&run.targets));
    }

    /// The main figures of a single target at a single level.
    fn tiles(&mut self, run: &Run, levels: &[Level]) {
        let (1, [level]) = (run.targets.len(), levels) else {
            return;
        };
        let Some(point) = point(run, 0, *level) else { return };
        let text = |quantity: &Quantity| quantity.text(Some(point));
        let mut tiles = vec![
            (text(&RATE), "requests a second"),
            (text(&MEDIAN), MEDIAN.name),
            (text(&P99), P99.name),
        ];
        if SERVER_CPU.is_known(&[Some(point)]) {
            tiles.push((text(&SERVER_CPU), "server CPU per request"));
        }
        tiles.push((text(&FAILED), FAILED.name));
        self.put("<div class=\"tiles\">");
        for (figure, what) in tiles {
            let _ = write!(
                self.out,
                "<p class=\"tile\"><b>{}</b><span>{}</span></p>",
                escaped(&figure),
                escaped(what)
            );
        }
        self.put("</div>");
    }

    /// Cards, side by side if there is room.
    fn pair(&mut self, count: usize, mut card: impl FnMut(&mut Self, usize)) {
        if count == 0 {
            return;
        }
        self.put("<div class=\"pair\">");
        for number in 0..count {
            self.put("<div class=\"card\">");
            card(self, number);
            self.put("</div>");
        }
        self.put("</div>");
    }

    fn bars(&mut self, bars: &Bars) {
        let _ = write!(
            self.out,
            "<table class=\"bars\"><caption>{}</caption><tbody>",
            escaped(&bars.title)
        );
        for row in &bars.rows {
            let _ = write!(
                self.out,
                "<tr><th scope=\"row\">{}</th><td><svg height=\"18\" aria-hidden=\"true\">",
                escaped(&row.name)
            );
            let mut from = 0.0;
            for (ink, share) in &row.parts {
                let width = 100.0 * share;
                let _ = write!(
                    self.out,
                    "<rect class=\"area {}\" x=\"{from:.2}%\" width=\"{width:.2}%\" height=\"18\"/>",
                    ink.class()
                );
                from += width;
            }
            let _ = write!(self.out, "</svg></td><td>{}</td></tr>", escaped(&row.text));
        }
        self.put("</tbody></table><p class=\"note\">");
        for (ink, part) in &bars.parts {
            let _ = write!(
                self.out,
                "<span class=\"key\">{}{},</span> ",
                swatch(*ink, None),
                escaped(part)
            );
        }
        let _ = write!(self.out, "{}</p>", escaped(&bars.note));
    }

    fn grid(&mut self, grid: &Grid, run: Option<&Run>) {
        let class = match (grid.ends_in_words, grid.targets_down || run.is_none()) {
            (true, _) => " class=\"duel\"",
            (false, true) => " class=\"down\"",
            (false, false) => "",
        };
        let _ = write!(self.out, "<div class=\"scroll\" tabindex=\"0\"><table{class}>");
        self.element("caption", "", &grid.title);
        let _ = write!(self.out, "<thead><tr><th scope=\"col\">{}</th>", escaped(&grid.corner));
        for (number, name) in grid.head.iter().enumerate() {
            let key = grid.targets_across && run.is_some_and(|run| number < run.targets.len());
            let swatch = if key { target_swatch(number) } else { String::new() };
            let class = if grid.has_words(number) { " class=\"words\"" } else { "" };
            let _ = write!(self.out, "<th scope=\"col\"{class}>{swatch}{}</th>", escaped(name));
        }
        self.put("</tr></thead><tbody>");
        for (number, line) in grid.lines.iter().enumerate() {
            let key = grid.targets_down && run.is_some_and(|run| number < run.targets.len());
            let swatch = if key { target_swatch(number) } else { String::new() };
            let _ = write!(self.out, "<tr><th scope=\"row\">{swatch}{}</th>", escaped(&line.name));
            for cell in &line.cells {
                let text = escaped(&cell.text);
                let _ = match cell.mark {
                    Mark::None => write!(self.out, "<td>{text}</td>"),
                    Mark::Best => write!(self.out, "<td class=\"best\"><small>best</small> {text}</td>"),
                    Mark::Bad => write!(self.out, "<td class=\"bad\">{text}</td>"),
                    Mark::Doubtful => write!(
                        self.out,
                        "<td class=\"doubtful\">{text} <small>generator’s limit</small></td>"
                    ),
                    Mark::Words => write!(self.out, "<td class=\"words\">{text}</td>"),
                };
            }
            self.put("</tr>");
        }
        self.put("</tbody></table></div>");
        self.element("p", "note", &grid.note);
    }

    /// The ratios of two targets with their intervals.
    fn ratios(&mut self, run: &Run, levels: &[Level]) {
        let (2, [level]) = (run.targets.len(), levels) else {
            return;
        };
        let strips = charts::strips(run, 0, 1, *level);
        if strips.rows.is_empty() {
            return;
        }
        let (base, other) = (escaped(&run.targets[0].name), escaped(&run.targets[1].name));
        let _ = write!(
            self.out,
            "<div class=\"card\"><h4>{other} divided by {base}, with 95 % intervals</h4><div class=\"scroll\" tabindex=\"0\">\
             <table class=\"strips\"><tbody>"
        );
        let mut is_cut = false;
        for strip in &strips.rows {
            is_cut |= strip.svg.contains("beyond");
            let (name, words) = (escaped(&strip.name), escaped(&strip.words));
            let svg = &strip.svg;
            let _ = write!(
                self.out,
                "<tr><th scope=\"row\">{name}</th><td>{svg}</td><td>{words}</td></tr>"
            );
        }
        let scale = &strips.scale;
        let _ = write!(
            self.out,
            "<tr><th></th><td>{scale}</td><td></td></tr></tbody></table></div><p class=\"note\">Left of the middle: less than {base}; right: more. "
        );
        if run.noise.is_some() {
            self.put("The grey band is the difference between equal targets on this machine. ");
        }
        if is_cut {
            self.put("A hollow dot lies beyond the scale. ");
        }
        self.put("An interval that crosses the middle shows no difference.</p></div>");
    }

    fn charts(&mut self, run: &Run) {
        let figures = charts::of_run(run, &mut self.ids);
        if figures.is_empty() {
            return;
        }
        if run.targets.len() > 1 {
            self.legend(&charts::legend(run));
        }
        self.pair(figures.len(), |page, number| page.figure(&figures[number]));
        if let [level] = levels(run).as_slice() {
            self.course(run, *level);
        }
    }

    /// The course of time, in one card: all charts share an axis.
    fn course(&mut self, run: &Run, level: Level) {
        let figures = charts::course(run, level, &mut self.ids);
        if figures.is_empty() {
            return;
        }
        self.put("<div class=\"card course\">");
        for figure in &figures {
            self.figure(figure);
        }
        self.put("</div>");
    }

    fn figure(&mut self, figure: &Figure) {
        self.element("h4", "", &figure.title);
        self.put(&figure.svg);
        self.legend(&figure.legend);
        self.element("p", "note", &figure.note);
    }

    fn legend(&mut self, keys: &[Key]) {
        if keys.is_empty() {
            return;
        }
        self.put("<ul class=\"legend\">");
        for key in keys {
            let _ = write!(
                self.out,
                "<li>{}{}</li>",
                swatch(key.ink, Some(key.dash)),
                escaped(&key.name)
            );
        }
        self.put("</ul>");
    }

    /// Details of the figures: percentiles, slices, failures, answers, the command.
    fn further(&mut self, run: &Run, levels: &[Level]) {
        if let Some(failures) = grid::failures(run) {
            self.put("<div class=\"card\"><h4>Failures by kind</h4>");
            self.grid(&failures, None);
            self.put("</div>");
        }
        self.put("<div class=\"card\">");
        self.facts("How it was run", &facts::of_load(run));
        if let Some(further) = grid::further(run) {
            self.details("Further figures", &further, run);
        }
        for level in levels {
            let Some(percentiles) = grid::percentiles(run, *level) else {
                continue;
            };
            let of = if levels.len() > 1 {
                format!(", {}", level.words())
            } else {
                String::new()
            };
            self.details(&format!("All percentiles{of}"), &percentiles, run);
        }
        if let [level] = levels {
            let slices = grid::slices(run, *level);
            if slices.lines.len() > 1 {
                self.details("Every slice", &slices, run);
            }
        }
        self.details("Answers before the run", &grid::answers(run), run);
        self.put("</div>");
    }

    fn details(&mut self, summary: &str, grid: &Grid, run: &Run) {
        let _ = write!(self.out, "<details><summary>{}</summary>", escaped(summary));
        self.grid(grid, Some(run));
        self.put("</details>");
    }

    fn facts(&mut self, title: &str, facts: &[Fact]) {
        self.element("h4", "", title);
        self.put("<dl>");
        for (name, text) in facts {
            let tag = if *name == "command" { "code" } else { "span" };
            let (name, text) = (escaped(name), escaped(text));
            let _ = write!(self.out, "<dt>{name}</dt><dd><{tag}>{text}</{tag}></dd>");
        }
        self.put("</dl>");
    }

    fn outcome(&mut self, outcome: &ScriptOutcome) {
        self.sentences(&outcome.sentences);
        for chart in &outcome.charts {
            let figure = charts::of_script(chart, &mut self.ids);
            self.put("<div class=\"card\">");
            self.figure(&figure);
            self.put("</div>");
        }
        for table in &outcome.tables {
            self.put("<div class=\"card\">");
            self.grid(&grid::of_script(table), None);
            self.put("</div>");
        }
    }

    fn page_facts(&mut self, page: &Page) {
        let lists = [("Versions", &page.versions), ("Left out", &page.left_out)];
        if lists.iter().all(|(_, list)| list.is_empty()) && page.plan.is_none() {
            return;
        }
        self.put("<div class=\"card\">");
        for (title, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            let _ = write!(self.out, "<h4>{title}</h4><dl>");
            for (name, text) in list {
                let _ = write!(self.out, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(text));
            }
            self.put("</dl>");
        }
        if let Some(plan) = &page.plan {
            let _ = write!(self.out, "<p class=\"note\">plan: <code>{}</code></p>", escaped(plan));
        }
        self.put("</div>");
    }

    fn foot(&mut self, report: &Report) {
        self.put("<footer><div class=\"card\">");
        self.facts("The machine", &facts::of_machine(&report.machine));
        if report.pages.len() > 1 {
            self.facts("The command", &[("command", facts::quoted(&report.command))]);
        }
        let (data, note) = data::embedded(report);
        let _ = write!(
            self.out,
            "</div><p class=\"note\">{} · this page contains its data{note}: <code>haulier bench report</code> reads it \
             like the JSON file.</p></footer>\n\
             <script type=\"application/json\" id=\"{}\">{data}</script>\n</body></html>\n",
            escaped(&report.tool),
            data::ID,
        );
    }
}

fn target_swatch(target: usize) -> String {
    let (ink, dash) = look(target);
    swatch(ink, Some(dash))
}

/// The first verdict, else the rate or the names.
fn headline(run: &Run) -> String {
    if let Some(first) = run.verdicts.first() {
        let begins_with_a_name = run.targets.iter().any(|target| first.starts_with(&target.name));
        return if begins_with_a_name {
            first.clone()
        } else {
            capitalised(first)
        };
    }
    let names: Vec<&str> = run.targets.iter().map(|target| target.name.as_str()).collect();
    match (names.as_slice(), run.points.as_slice()) {
        ([name], [point, ..]) => {
            format!("{name}: {} requests a second", number(point.total.requests_per_second))
        }
        _ => names.join(" · "),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::super::document::{Cell, Chart, ReportColumn, ReportTable, Row, Scale, Series};
    use super::super::samples;
    use super::*;

    /// Elements without an end.
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];

    /// Every element is closed in order, no attribute has a value that is none, and no two elements share an id.
    #[track_caller]
    fn check(page: &str) {
        let (markup, rest) = page.split_once("<script ").expect("the data comes last");
        assert_eq!(rest.matches("</script>").count(), 1);
        let style = markup.find("<style>").expect("a style sheet")..markup.find("</style>").expect("its end");
        let markup = format!("{}{}", &markup[..style.start], &markup[style.end + "</style>".len()..]);
        let (mut open, mut ids) = (Vec::new(), Vec::new());
        for tag in markup.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').expect("a tag ends");
            let name = tag
                .split([' ', '/', '\n'])
                .find(|part| !part.is_empty())
                .expect("a name");
            if VOID.contains(&name) {
                continue;
            }
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) => assert_eq!(open.pop(), Some(name), "</{name}> closes something else"),
                (false, true) => {}
                (false, false) => open.push(name),
            }
            ids.extend(
                tag.split_once(" id=\"")
                    .and_then(|(_, rest)| rest.split_once('"'))
                    .map(|(id, _)| id.to_owned()),
            );
        }
        assert_eq!(open, ["html", "body"], "what is open before the data");
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "an id twice: {ids:?}");
        for value in markup.split('"').skip(1).step_by(2) {
            assert!(!value.contains("NaN") && value != "inf", "{value}");
        }
    }

    fn of(run: Run) -> String {
        page(&Report::of_run(run))
    }

    #[test]
    fn pages_are_well_formed_small_and_load_nothing() {
        for run in [
            samples::pair(),
            samples::single(5123.4),
            samples::many(8),
            samples::sweep(),
        ] {
            let page = of(run);
            check(&page);
            assert!(page.len() < 150_000, "{} bytes", page.len());
            let (markup, _) = page.split_once("<script ").expect("data");
            for load in ["http://", "https://", "src=", "url(", "@import", "<link"] {
                assert!(!markup.contains(load), "{load} in the page");
            }
        }
    }

    #[test]
    fn the_first_verdict_is_the_headline() {
        let page = of(samples::pair());
        assert!(page.contains("<h1>No difference shown in requests a second (0.99–1.01×)</h1>"));
        assert!(page.contains("<li>sendfile answers its first byte 10× sooner"));
    }

    #[test]
    fn the_best_of_a_line_is_marked_in_words_unless_chance_explains_it() {
        let page = of(samples::pair());
        assert!(page.contains("<small>best</small> 300 µs"));
        let rates = page
            .split_once(">requests/s<")
            .expect("a line")
            .1
            .split_once("</tr>")
            .expect("its end")
            .0;
        assert!(!rates.contains("best"), "{rates}");
    }

    #[test]
    fn names_and_warnings_are_escaped() {
        let mut run = samples::pair();
        let evil = "<img src=x onerror=alert(1)>\"'&";
        run.targets[0].name = evil.to_owned();
        run.targets[0].answer.as_mut().expect("an answer").server = Some(evil.to_owned());
        run.verdicts[0] = evil.to_owned();
        run.machine.cpu = evil.to_owned();
        run.command.push(evil.to_owned());
        run.warnings.push(Warning {
            kind: WarningKind::NotSameWork,
            target: Some(0),
            text: evil.to_owned(),
        });
        let page = of(run);
        check(&page);
        assert!(!page.contains("<img"));
    }

    #[test]
    fn odd_runs_still_make_a_page() {
        let mut empty = samples::pair();
        empty.points.clear();
        empty.targets.clear();
        empty.comparisons.clear();
        empty.verdicts.clear();
        check(&of(empty));

        let mut odd = samples::pair();
        for (number, point) in odd.points.iter_mut().enumerate() {
            point.total.requests_per_second = [f64::NAN, 1e300][number];
            point.total.requests = 0;
            point.total.latency.count = 0;
            point.total.latency.percentiles.clear();
            point.total.timeline[0].at_s = f64::INFINITY;
            point.slices.truncate(number + 1);
        }
        for found in &mut odd.comparisons {
            (found.low, found.high, found.ratio) = (0.0, f64::INFINITY, f64::NAN);
        }
        check(&of(odd));

        let mut unanswered = samples::single(0.0);
        unanswered.targets[0].answer = None;
        unanswered.points[0].slices.clear();
        unanswered.points[0].total.server = None;
        unanswered.points[0].total.timeline.clear();
        check(&of(unanswered));
    }

    #[test]
    fn a_report_has_its_pages_and_the_output_of_scripts() {
        let mut report = Report::of_run(samples::pair());
        let outcome = ScriptOutcome {
            goals: Vec::new(),
            sentences: vec!["every cell ended".to_owned()],
            tables: vec![ReportTable {
                title: "cells".to_owned(),
                columns: vec![ReportColumn {
                    name: "s".to_owned(),
                    ..ReportColumn::default()
                }],
                rows: vec![Row {
                    name: "a".to_owned(),
                    cells: vec![Cell::Number(1.5)],
                }],
                ..ReportTable::default()
            }],
            charts: vec![Chart {
                title: "Size against time".to_owned(),
                x: Scale::default(),
                y: Scale::default(),
                series: vec![Series {
                    name: "zstd".to_owned(),
                    points: vec![(1.0, 2.0), (f64::NAN, 3.0)],
                }],
            }],
        };
        let mut second = report.pages[0].clone();
        second.title = "Second".to_owned();
        second.about = "One.\n\nTwo.".to_owned();
        second.left_out = vec![("h2o".to_owned(), "not installed".to_owned())];
        second
            .parts
            .push(PagePart::new("Cells", "", PartContent::Script { outcome }));
        let why = "it did not start".to_owned();
        second
            .parts
            .push(PagePart::new("Broken", "", PartContent::Failed { why }));
        report.pages.push(second);
        let page = page(&report);
        check(&page);
        for part in [
            "href=\"#p1\"",
            "<p>Two.</p>",
            "every cell ended",
            "Size against time",
            "it did not start",
            "not installed",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }
}
