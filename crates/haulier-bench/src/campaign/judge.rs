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

    /// What must be known before a point is believed.
    pub(super) fn judge(&mut self, point: &Point) {
        let name = self.targets[point.target].target.name.clone();
        let total = &point.total;
        let at = if self.levels.len() > 1 {
            point.rate.map_or_else(
                || format!(" at {} connections", point.connections),
                |rate| format!(" at {rate:.0}/s"),
            )
        } else {
            String::new()
        };
        let target = Some(point.target);
        if is_limited_by_generator(total) {
            let share = total.generator.cpu * 100.0;
            self.warn(
                WarningKind::GeneratorLimited,
                target,
                format!("{name}{at}: the generator's CPU was at {share:.0} %: the tool was the limit (--threads gives it more)"),
            );
        }
        let failed = total.failures.all();
        if failed > 0 {
            let classes: Vec<String> = total
                .failures
                .by_class()
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(class, count)| format!("{count} {class}"))
                .collect();
            self.warn(
                WarningKind::Failures,
                target,
                format!(
                    "{name}{at}: {failed} of {} requests failed: {}",
                    failed + total.requests,
                    classes.join(", ")
                ),
            );
        }
        if let Some(rate) = point.rate.filter(|rate| total.requests_per_second < rate * REACHED) {
            let reached = total.requests_per_second;
            self.warn(
                WarningKind::RateNotReached,
                target,
                format!("{name}{at}: target rate not reached: {reached:.0} of {rate:.0} requests/s (server or connection limit)"),
            );
        }
        if self.options.template.keep_alive && !self.options.template.as_ab {
            let needed = u64::from(point.connections) * point.slices.len() as u64;
            if total.connections_opened > needed + total.requests / 2 {
                self.warn(
                    WarningKind::NoKeepAlive,
                    target,
                    format!(
                        "{name}{at}: the server closes connections: {} were opened",
                        total.connections_opened
                    ),
                );
            }
        }
        let overflows: u64 = point.slices.iter().map(|slice| slice.kernel.listen_overflows).sum();
        if overflows > 0 {
            self.warn(
                WarningKind::Kernel,
                target,
                format!("{name}{at}: {overflows} connections found a full accept queue on this machine"),
            );
        }
    }
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
