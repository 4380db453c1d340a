//! What must be known before a figure is believed.

use super::Campaign;
use crate::probe::differences;
use crate::result::{Point, Total, Warning, WarningKind};

/// A generator thread that used more of its core than this was the limit.
const BUSY_GENERATOR: f64 = 0.9;
/// What is over sooner, in seconds, tells of the start of a thread and of first connections, not of a rate it can keep.
const TOO_SHORT_TO_TELL: f64 = 0.1;
/// A rate below this share of what was asked was not reached.
const REACHED: f64 = 0.98;

impl Campaign<'_> {
    pub(super) fn judge_answers(&mut self) {
        let mut warnings = Vec::new();
        for (place, prepared) in self.targets.iter().enumerate() {
            let Some(probed) = &prepared.probed else { continue };
            let (name, answer) = (&prepared.target.name, &probed.answer);
            if answer.status >= 300 {
                let what = if answer.status < 400 {
                    "you are measuring redirects"
                } else {
                    "you are measuring error pages"
                };
                warnings.push(Warning {
                    kind: WarningKind::Status,
                    target: Some(place),
                    text: format!("{name} answers {} — {what}", answer.status),
                });
            }
            let Some(base) = self.targets[0].probed.as_ref().filter(|_| place > 0) else {
                continue;
            };
            let may_vary = prepared.varies || self.targets[0].varies;
            let found = differences(&base.answer, answer, may_vary);
            if !found.is_empty() {
                warnings.push(Warning {
                    kind: WarningKind::NotSameWork,
                    target: Some(place),
                    text: format!(
                        "not the same work: {} and {name}: {}",
                        self.targets[0].target.name,
                        found.join(", ")
                    ),
                });
            }
        }
        self.warnings.append(&mut warnings);
    }

    pub(super) fn warn(&mut self, kind: WarningKind, target: Option<usize>, text: String) {
        self.warnings.push(Warning { kind, target, text });
    }

    /// Adds the warnings about a point, rule by rule.
    pub(super) fn judge(&mut self, point: &Point) {
        let keeps_alive = self.options.template.keep_alive && self.options.template.manners.expects_keep_alive;
        let found = [
            generator_limited(&point.total),
            failed(&point.total),
            rate_not_reached(point),
            keep_alive_refused(point).filter(|_| keeps_alive),
            queue_overflowed(point),
        ];
        let name = &self.targets[point.target].target.name;
        let at = match (self.levels.len(), point.rate) {
            (..=1, _) => String::new(),
            (_, Some(rate)) => format!(" at {rate:.0}/s"),
            (_, None) => format!(" at {} connections", point.connections),
        };
        let warnings = found.into_iter().flatten().map(|(kind, words)| Warning {
            kind,
            target: Some(point.target),
            text: format!("{name}{at}: {words}"),
        });
        let warnings: Vec<Warning> = warnings.collect();
        self.warnings.extend(warnings);
    }
}

/// A rule's finding: its kind, and its words behind the name of the target.
type Finding = Option<(WarningKind, String)>;

fn generator_limited(total: &Total) -> Finding {
    let share = total.generator.cpu * 100.0;
    is_limited_by_generator(total).then(|| {
        let words =
            format!("the generator's CPU was at {share:.0} %: the tool was the limit (--threads gives it more)");
        (WarningKind::GeneratorLimited, words)
    })
}

fn failed(total: &Total) -> Finding {
    let failed = total.failures.all();
    let classes = total.failures.by_class();
    let classes: Vec<String> = classes
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| format!("{count} {class}"))
        .collect();
    (failed > 0).then(|| {
        let asked = failed + total.requests;
        let words = format!("{failed} of {asked} requests failed: {}", classes.join(", "));
        (WarningKind::Failures, words)
    })
}

fn rate_not_reached(point: &Point) -> Finding {
    let reached = point.total.requests_per_second;
    let rate = point.rate.filter(|rate| reached < rate * REACHED)?;
    let words = format!("target rate not reached: {reached:.0} of {rate:.0} requests/s (server or connection limit)");
    Some((WarningKind::RateNotReached, words))
}

/// More connections than there are places: the server closed some after an answer.
fn keep_alive_refused(point: &Point) -> Finding {
    let opened = point.total.connections_opened;
    let needed = u64::from(point.connections) * point.slices.len() as u64;
    (opened > needed + point.total.requests / 2).then(|| {
        let words = format!("the server closes connections: {opened} were opened");
        (WarningKind::NoKeepAlive, words)
    })
}

fn queue_overflowed(point: &Point) -> Finding {
    let overflows: u64 = point.slices.iter().map(|slice| slice.kernel.listen_overflows).sum();
    (overflows > 0).then(|| {
        let words = format!("{overflows} connections found a full accept queue on this machine");
        (WarningKind::Kernel, words)
    })
}

fn is_limited_by_generator(total: &Total) -> bool {
    total.generator.cpu >= BUSY_GENERATOR && total.duration_s >= TOO_SHORT_TO_TELL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::point;

    #[test]
    fn a_busy_generator_was_the_limit_unless_it_only_began() {
        let used = |cpu: f64, duration_s: f64| {
            let mut total = point(0, Vec::new()).total;
            (total.generator.cpu, total.duration_s) = (cpu, duration_s);
            is_limited_by_generator(&total)
        };
        assert!(used(0.96, 1.0));
        assert!(!used(0.8, 1.0));
        assert!(!used(0.96, 0.002));
    }
}
