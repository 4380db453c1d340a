//! Warnings of a run: reasons to doubt its figures.

use super::Campaign;
use crate::probe::differences;
use crate::result::{Point, Total, WarningKind};

/// Share of a core that a generator thread may use before it counts as the limit.
const BUSY_GENERATOR: f64 = 0.9;
/// Least duration for that warning, s: a shorter slice mostly starts threads and connections.
const TOO_SHORT_TO_TELL: f64 = 0.1;
/// Share of a rate that counts as reached.
const REACHED: f64 = 0.98;

impl Campaign<'_> {
    /// Compares the answers before the run.
    pub(super) fn judge_answers(&mut self) {
        let base = &self.targets[0];
        for (place, prepared) in self.targets.iter().enumerate() {
            let Some(probed) = &prepared.probed else { continue };
            let (name, answer) = (&prepared.target.name, &probed.answer);
            let what = match answer.status {
                ..300 => None,
                300..400 => Some("you are measuring redirects"),
                _ => Some("you are measuring error pages"),
            };
            if let Some(what) = what {
                let text = format!("{name} answers {} — {what}", answer.status);
                self.collected.warn(WarningKind::Status, Some(place), text);
            }
            let Some(base_probed) = base.probed.as_ref().filter(|_| place > 0) else {
                continue;
            };
            let found = differences(&base_probed.answer, answer, prepared.varies || base.varies);
            if !found.is_empty() {
                let base_name = &base.target.name;
                let text = format!("not the same work: {base_name} and {name}: {}", found.join(", "));
                self.collected.warn(WarningKind::NotSameWork, Some(place), text);
            }
        }
    }

    /// Adds the warnings about all points, and about the machine.
    pub(super) fn judge(&mut self, points: &[Point]) {
        for point in points {
            self.judge_point(point);
        }
        let machine = &self.start.machine;
        if machine.load_before > f64::from(machine.cores) / 2.0 {
            let text = format!("the machine was busy before the run (load {:.1})", machine.load_before);
            self.collected.warn(WarningKind::Busy, None, text);
        }
    }

    fn judge_point(&mut self, point: &Point) {
        let template = &self.options.template;
        let keeps_alive = template.keep_alive && template.mode.expects_keep_alive;
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
        for (kind, words) in found.into_iter().flatten() {
            let text = format!("{name}{at}: {words}");
            self.collected.warn(kind, Some(point.target), text);
        }
    }
}

/// Kind and text of a warning about a point, if a rule applies.
type PointWarning = Option<(WarningKind, String)>;

fn generator_limited(total: &Total) -> PointWarning {
    let share = total.generator.cpu * 100.0;
    is_limited_by_generator(total).then(|| {
        let words = format!("the generator was the limit, with {share:.0} % of a core (--threads gives it more)");
        (WarningKind::GeneratorLimited, words)
    })
}

fn failed(total: &Total) -> PointWarning {
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

fn rate_not_reached(point: &Point) -> PointWarning {
    let reached = point.total.requests_per_second;
    let rate = point.rate.filter(|rate| reached < rate * REACHED)?;
    let words = format!("target rate not reached: {reached:.0} of {rate:.0} requests/s (server or connection limit)");
    Some((WarningKind::RateNotReached, words))
}

/// Warns of more connections than the generator uses at once: the server closed some after an answer.
fn keep_alive_refused(point: &Point) -> PointWarning {
    let opened = point.total.connections_opened;
    let needed = u64::from(point.connections) * point.slices.len() as u64;
    (opened > needed + point.total.requests / 2).then(|| {
        let words = format!("the server closes connections: {opened} were opened");
        (WarningKind::NoKeepAlive, words)
    })
}

fn queue_overflowed(point: &Point) -> PointWarning {
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
