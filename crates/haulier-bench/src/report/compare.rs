//! Several stored runs merged into one report, side by side.
//!
//! Runs that were not interleaved have the drift of the machine in their difference, and the page says so. The statistics
//! are those of two independent samples (Welch 1947, and a permutation test), with slices as the unit.

use std::path::{Path, PathBuf};

use crate::compare::METRICS;
use crate::result::{Comparison, Metric, Point, Run, RunKind, Target, Verdict, Warning, WarningKind};
use crate::statistics::{Z_975, mean, student};
use fastrand::Rng;

use super::document::{Page, PagePart, PartContent, Report};
use super::figures::ratio;
use super::grid::Level;

/// Fewest slices of a target for a verdict.
const LEAST_SLICES: usize = 4;
/// Random assignments of the slices that the test tries.
const SHUFFLES: usize = 10_000;

/// One report of several, in the order given; a single one stays as it is. Pages and parts of the same title are merged.
pub fn merge(mut reports: Vec<(PathBuf, Report)>) -> Option<Report> {
    let names = names(&reports.iter().map(|(path, _)| path.as_path()).collect::<Vec<_>>());
    let (_, mut merged) = (!reports.is_empty()).then(|| reports.remove(0))?;
    if reports.is_empty() {
        return Some(merged);
    }
    let others: Vec<(&str, Report)> = names[1..]
        .iter()
        .map(String::as_str)
        .zip(reports.into_iter().map(|(_, report)| report))
        .collect();
    let only_pages = merged.pages.len() == 1 && others.iter().all(|(_, report)| report.pages.len() == 1);
    for page in &mut merged.pages {
        let same = |other: &&Page| only_pages || other.title == page.title;
        let beside: Vec<(&str, Page)> = others
            .iter()
            .filter_map(|(name, report)| Some((*name, report.pages.iter().find(same)?.clone())))
            .collect();
        merge_page(page, &names[0], beside);
    }
    merged.title = names.join(" · ");
    if only_pages {
        merged.pages[0].title.clone_from(&merged.title);
    }
    Some(merged)
}

/// A name for each file: its own, with as many directories as make it unique.
fn names(paths: &[&Path]) -> Vec<String> {
    let parts = |path: &Path| -> Vec<String> {
        let path = path.with_extension("");
        path.components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect()
    };
    let all: Vec<Vec<String>> = paths.iter().map(|path| parts(path)).collect();
    let tail = |parts: &Vec<String>, length: usize| parts[parts.len().saturating_sub(length)..].join("/");
    let name = |(number, parts): (usize, &Vec<String>)| {
        let unique = |length: &usize| {
            let mut others = all.iter().enumerate().filter(|(other, _)| *other != number);
            others.all(|(_, other)| tail(other, *length) != tail(parts, *length))
        };
        match (1..=parts.len()).find(unique) {
            Some(length) => tail(parts, length),
            None => format!("{} ({})", tail(parts, 1), number + 1),
        }
    };
    all.iter().enumerate().map(name).collect()
}

fn merge_page(page: &mut Page, name: &str, others: Vec<(&str, Page)>) {
    let single = page.parts.len() == 1 && others.iter().all(|(_, other)| other.parts.len() == 1);
    let mut parts = Vec::new();
    for part in std::mem::take(&mut page.parts) {
        let title = part.title.clone();
        let beside = others.iter().filter_map(|(other, page)| {
            let found = page.parts.iter().find(|found| single || found.title == title)?;
            Some((*other, found.clone()))
        });
        let beside: Vec<(&str, PagePart)> = beside.collect();
        match part.content {
            PartContent::Run { run, show, .. } => {
                let mut runs = vec![(name, *run)];
                let mut rest = Vec::new();
                for (other, part) in beside {
                    match part.content {
                        PartContent::Run { run, .. } => runs.push((other, *run)),
                        content => rest.push(titled(PagePart { content, ..part }, other)),
                    }
                }
                let content = PartContent::Run {
                    run: Box::new(merge_runs(runs)),
                    show,
                    goals: Vec::new(),
                };
                parts.push(PagePart { content, ..part });
                parts.extend(rest);
            }
            content => {
                parts.push(titled(PagePart { content, ..part }, name));
                parts.extend(beside.into_iter().map(|(other, part)| titled(part, other)));
            }
        }
    }
    page.parts = parts;
    for (other, from) in others {
        let prefixed = |(server, text): (String, String)| (format!("{other}, {server}"), text);
        page.versions.extend(from.versions.into_iter().map(prefixed));
        page.left_out.extend(from.left_out.into_iter().map(prefixed));
    }
}

fn titled(mut part: PagePart, name: &str) -> PagePart {
    part.title = format!("{} ({name})", part.title);
    part
}

/// All targets of all runs side by side; each target of the first run is compared with the same of the others.
fn merge_runs(runs: Vec<(&str, Run)>) -> Run {
    let mut runs = runs.into_iter();
    let Some((first_name, mut merged)) = runs.next() else {
        unreachable!("the first run is always there");
    };
    let base_targets: Vec<String> = merged.targets.iter().map(|target| target.name.clone()).collect();
    rename(&mut merged, first_name);
    let mut said = Vec::new();
    for (name, mut run) in runs {
        let differing = differences(&merged, &run);
        let offset = merged.targets.len();
        let pairs = pairs(&base_targets, &run, offset);
        rename(&mut run, name);
        adopt(&mut merged, run, offset);
        for (base, other) in pairs {
            said.extend(compare(&mut merged, base, other));
        }
        for text in differing {
            merged.warnings.push(Warning {
                kind: WarningKind::NotInterleaved,
                target: None,
                text: format!("{first_name} and {name} differ in {text}"),
            });
        }
    }
    merged.warnings.insert(
        0,
        Warning {
            kind: WarningKind::NotInterleaved,
            target: None,
            text: "these runs were not interleaved: drift of the machine is part of the difference".to_owned(),
        },
    );
    merged.verdicts = match said.is_empty() {
        true => vec!["The runs have no target and load in common".to_owned()],
        false => said,
    };
    if merged.kind == RunKind::Single {
        merged.kind = RunKind::Comparison;
    }
    merged
}

fn rename(run: &mut Run, name: &str) {
    let alone = run.targets.len() == 1;
    for target in &mut run.targets {
        target.name = match alone {
            true => name.to_owned(),
            false => format!("{}, {name}", target.name),
        };
    }
}

/// Targets of the first run with the same target of another run. Single targets match whatever their names.
fn pairs(base: &[String], run: &Run, offset: usize) -> Vec<(usize, usize)> {
    if base.len() == 1 && run.targets.len() == 1 {
        return vec![(0, offset)];
    }
    let same = |(place, target): (usize, &Target)| {
        let found = base.iter().position(|name| *name == target.name)?;
        Some((found, offset + place))
    };
    run.targets.iter().enumerate().filter_map(same).collect()
}

fn adopt(merged: &mut Run, run: Run, offset: usize) {
    let moved = |place: usize| place + offset;
    merged.points.extend(run.points.into_iter().map(|point| Point {
        target: moved(point.target),
        ..point
    }));
    merged
        .comparisons
        .extend(run.comparisons.into_iter().map(|found| Comparison {
            base: moved(found.base),
            other: moved(found.other),
            ..found
        }));
    merged.warnings.extend(run.warnings.into_iter().map(|warning| Warning {
        target: warning.target.map(moved),
        ..warning
    }));
    merged.targets.extend(run.targets);
    merged.duration_s += run.duration_s;
}

/// Differences in machine, program and load.
fn differences(one: &Run, other: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, one: &str, other: &str| {
        if one != other {
            found.push(format!("{what} ({one}; {other})"));
        }
    };
    differ("the processor", &one.machine.cpu, &other.machine.cpu);
    differ("the kernel", &one.machine.kernel, &other.machine.kernel);
    differ(
        "cores",
        &one.machine.cores.to_string(),
        &other.machine.cores.to_string(),
    );
    differ("the program", &one.tool, &other.tool);
    differ("the protocol", &one.load.protocol, &other.load.protocol);
    let kept = |run: &Run| if run.load.keep_alive { "kept" } else { "one a request" };
    differ("connections", kept(one), kept(other));
    found
}

/// Compares two targets at every level that both have, and returns the sentences.
fn compare(run: &mut Run, base: usize, other: usize) -> Vec<String> {
    let mut said = Vec::new();
    let levels: Vec<Level> = run
        .points
        .iter()
        .filter(|point| point.target == base)
        .map(Level::of)
        .collect();
    for level in &levels {
        let of = |target: usize| {
            run.points
                .iter()
                .find(|point| point.target == target && Level::of(point) == *level)
        };
        let (Some(one), Some(two)) = (of(base), of(other)) else {
            continue;
        };
        let same_work = same_work(run, base, other);
        let found: Vec<Comparison> = METRICS
            .into_iter()
            .filter_map(|metric| judge(metric, one, two, run.seed, same_work))
            .map(|found| Comparison { base, other, ..found })
            .collect();
        if let Some(rate) = found.iter().find(|found| found.metric == Metric::RequestsPerSecond) {
            let (one, two) = (&run.targets[base].name, &run.targets[other].name);
            let at = if levels.len() > 1 {
                format!(" at {}", level.words())
            } else {
                String::new()
            };
            said.push(format!("{two} against {one}{at}: {}", rate.words));
        }
        run.comparisons.extend(found);
    }
    said
}

fn same_work(run: &Run, base: usize, other: usize) -> bool {
    let work = |target: usize| {
        let answer = run.targets[target].answer.as_ref()?;
        Some((answer.status, &answer.encoding, &answer.sha256))
    };
    let varies = run.targets[base].varies || run.targets[other].varies;
    match (work(base), work(other)) {
        (Some(one), Some(two)) if varies => (one.0, one.1) == (two.0, two.1),
        (one, two) => one == two,
    }
}

fn judge(metric: Metric, base: &Point, other: &Point, seed: u64, same_work: bool) -> Option<Comparison> {
    let logs = |point: &Point| -> Vec<f64> {
        let values = point.slices.iter().filter_map(|slice| metric.of(slice));
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        values.map(f64::ln).collect()
    };
    let (one, two) = (logs(base), logs(other));
    let found = Difference::of(&one, &two, seed)?;
    let better = (found.center > 0.0) == metric.more_is_better();
    let verdict = match () {
        () if !same_work => Verdict::NotComparable,
        () if one.len().min(two.len()) < LEAST_SLICES => Verdict::TooFew,
        () if !found.is_significant() => Verdict::NoDifference,
        () if better => Verdict::Better,
        () => Verdict::Worse,
    };
    let interval = format!("{}–{}", ratio(found.low.exp()), ratio(found.high.exp()));
    let words = match verdict {
        Verdict::NotComparable => "not the same work".to_owned(),
        Verdict::TooFew => format!("too few slices to tell ({})", ratio(found.center.exp())),
        Verdict::NoDifference => format!("no difference shown ({interval})"),
        Verdict::Better => format!("{}, better ({interval})", ratio(found.center.exp())),
        Verdict::Worse => format!("{}, worse ({interval})", ratio(found.center.exp())),
    };
    Some(Comparison {
        metric,
        base: base.target,
        other: other.target,
        connections: base.connections,
        rate: base.rate,
        ratio: found.center.exp(),
        low: found.low.exp(),
        high: found.high.exp(),
        p_value: found.p_value,
        pairs: u32::try_from(one.len().min(two.len())).unwrap_or(u32::MAX),
        smallest_visible: None,
        verdict,
        words,
    })
}

/// The difference of the means of two independent samples of logarithms.
struct Difference {
    center: f64,
    low: f64,
    high: f64,
    p_value: f64,
}

impl Difference {
    /// `None` if a side is empty. With a single value on a side the interval has no width; `LEAST_SLICES` guards that.
    fn of(base: &[f64], other: &[f64], seed: u64) -> Option<Self> {
        if base.is_empty() || other.is_empty() {
            return None;
        }
        let center = mean(other) - mean(base);
        let (error, freedom) = welch(base, other);
        let reach = student(Z_975, freedom) * error;
        Some(Self {
            center,
            low: center - reach,
            high: center + reach,
            p_value: p_value(base, other, seed),
        })
    }

    /// True if interval and test agree. The level is 5 %, because four slices on each side cannot reach 1 %.
    fn is_significant(&self) -> bool {
        (self.low > 0.0 || self.high < 0.0) && self.p_value <= 0.05
    }
}

/// Standard error and degrees of freedom (Welch and Satterthwaite).
fn welch(one: &[f64], other: &[f64]) -> (f64, f64) {
    let share = |values: &[f64]| {
        let count = values.len() as f64;
        let center = mean(values);
        let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
        (squares / (count - 1.0).max(1.0) / count, (count - 1.0).max(1.0))
    };
    let ((first, free_first), (second, free_second)) = (share(one), share(other));
    let sum = first + second;
    if sum <= 0.0 {
        return (0.0, free_first + free_second);
    }
    let freedom = sum.powi(2) / (first.powi(2) / free_first + second.powi(2) / free_second);
    (sum.sqrt(), freedom)
}

/// Share of random assignments of the slices that differ as much.
fn p_value(base: &[f64], other: &[f64], seed: u64) -> f64 {
    let observed = (mean(other) - mean(base)).abs() - 1e-12;
    let mut all: Vec<f64> = base.iter().chain(other).copied().collect();
    let mut random = Rng::with_seed(seed);
    let as_far = (0..SHUFFLES)
        .filter(|_| {
            random.shuffle(&mut all);
            let (one, two) = all.split_at(base.len());
            (mean(two) - mean(one)).abs() >= observed
        })
        .count();
    (as_far + 1) as f64 / (SHUFFLES + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn stored(name: &str, run: Run) -> (PathBuf, Report) {
        (PathBuf::from(name), Report::of_run(run))
    }

    fn merged(reports: Vec<(PathBuf, Report)>) -> Run {
        let report = merge(reports).expect("there are reports");
        report.runs().next().expect("a run").clone()
    }

    #[test]
    fn a_single_book_stays_as_it_is() {
        let report = Report::of_run(samples::pair());
        assert_eq!(merge(vec![(PathBuf::from("a.json"), report.clone())]), Some(report));
        assert_eq!(merge(Vec::new()), None);
    }

    #[test]
    fn the_same_run_twice_shows_no_difference() {
        let run = merged(vec![
            stored("before.json", samples::single(1000.0)),
            stored("after.json", samples::single(1000.0)),
        ]);
        let names: Vec<&str> = run.targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["before", "after"]);
        assert!(run.verdicts[0].contains("no difference shown"), "{:?}", run.verdicts);
        assert_eq!(run.warnings[0].kind, WarningKind::NotInterleaved);
    }

    #[test]
    fn a_tenth_more_is_found() {
        let run = merged(vec![
            stored("a.json", samples::single(1000.0)),
            stored("b.json", samples::single(1100.0)),
        ]);
        let rate = &run.comparisons[0];
        assert_eq!(
            (rate.metric, rate.verdict),
            (Metric::RequestsPerSecond, Verdict::Better)
        );
        assert!(rate.low > 1.05 && rate.high < 1.15, "{rate:?}");
    }

    #[test]
    fn targets_are_paired_by_name_and_machines_compared() {
        let mut other = samples::pair();
        other.machine.kernel = "Linux 9".to_owned();
        other.targets.swap(0, 1);
        for point in &mut other.points {
            point.target = 1 - point.target;
        }
        other.comparisons.clear();
        let run = merged(vec![stored("x/run.json", samples::pair()), stored("y/run.json", other)]);
        assert_eq!(run.targets[2].name, "sendfile, y/run");
        let between: Vec<(usize, usize)> = run
            .comparisons
            .iter()
            .filter(|found| found.other >= 2)
            .filter(|found| found.metric == Metric::RequestsPerSecond)
            .map(|found| (found.base, found.other))
            .collect();
        assert_eq!(between, [(1, 2), (0, 3)]);
        assert!(run.warnings.iter().any(|warning| warning.text.contains("Linux 9")));
    }

    #[test]
    fn different_work_is_not_compared() {
        let mut other = samples::single(2000.0);
        other.targets[0].answer.as_mut().expect("an answer").status = 302;
        let run = merged(vec![stored("a.json", samples::single(1000.0)), stored("b.json", other)]);
        assert_eq!(run.comparisons[0].verdict, Verdict::NotComparable);
    }

    #[test]
    fn files_of_one_name_are_told_apart() {
        let called = |paths: &[&str]| names(&paths.iter().map(Path::new).collect::<Vec<_>>());
        assert_eq!(called(&["a/run.json", "b/run.json"]), ["a/run", "b/run"]);
        assert_eq!(called(&["one.json", "x/two.html"]), ["one", "two"]);
        assert_eq!(called(&["same.json", "same.json"]), ["same (1)", "same (2)"]);
    }
}
