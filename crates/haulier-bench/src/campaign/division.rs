//! Division of a run into rounds and slices.

use std::time::Duration;

use super::Options;

/// Default length of a slice.
pub(super) const SLICE: Duration = Duration::from_secs(5);
/// Default number of requests of a run that no time ends.
const REQUESTS: u64 = 200;
/// Default number of rounds of a comparison or a sweep.
const ROUNDS: u32 = 5;
/// Default warm-up.
const WARMUP: Duration = Duration::from_secs(1);

/// The end of a slice: a number of requests, a time, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) count: Option<u64>,
    pub(super) time: Option<Duration>,
}

impl Limit {
    pub(super) const ONE_REQUEST: Self = Self {
        count: Some(1),
        time: None,
    };

    pub(super) const fn time(time: Duration) -> Self {
        Self {
            count: None,
            time: Some(time),
        }
    }
}

/// The division of a run with this number of targets and levels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Division<'o> {
    pub(super) options: &'o Options,
    pub(super) targets: usize,
    pub(super) levels: usize,
}

impl Division<'_> {
    /// Several targets are measured twice in a round, in mirrored order.
    pub(super) fn is_mirrored(&self) -> bool {
        self.targets > 1
    }

    /// Slices of a target in a round.
    fn halves(&self) -> u32 {
        if self.is_mirrored() { 2 } else { 1 }
    }

    fn is_comparison(&self) -> bool {
        self.is_mirrored() || self.levels > 1
    }

    pub(super) fn is_replay(&self) -> bool {
        self.options.mix.as_ref().is_some_and(|mix| !mix.times.is_empty())
    }

    pub(super) fn rounds(&self) -> u32 {
        let has_several = self.is_comparison() && !self.options.ladder;
        let default = if has_several { ROUNDS } else { 1 };
        self.options.rounds.unwrap_or(default).max(1)
    }

    /// All slices that count.
    pub(super) fn slices(&self) -> u32 {
        self.rounds() * self.levels as u32 * self.targets as u32 * self.halves()
    }

    /// The end of a target's first or second slice in a round.
    pub(super) fn limit(&self, is_second: bool) -> Limit {
        if self.is_replay() {
            return Limit {
                count: None,
                time: None,
            };
        }
        let options = self.options;
        let parts = self.rounds() * self.halves();
        let time = options.slice.or_else(|| Some(options.duration? / parts));
        let has_rate = options.rate.is_some() || options.ladder;
        if options.count.is_none() && time.is_none() && has_rate {
            return Limit::time(SLICE);
        }
        let halves = u64::from(self.halves());
        let share = |all: u64| all / halves + u64::from(!is_second && !all.is_multiple_of(halves));
        let default = time.is_none().then_some(REQUESTS);
        Limit {
            count: options.count.or(default).map(share),
            time,
        }
    }

    pub(super) fn warmup(&self) -> Duration {
        let is_long = self.is_comparison() || self.options.duration.is_some();
        let is_wanted = is_long && self.options.template.mode.warms_up && !self.is_replay();
        let default = if is_wanted { WARMUP } else { Duration::ZERO };
        self.options.warmup.unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_shared_by_the_two_slices_of_a_round() {
        let options = Options {
            count: Some(101),
            ..Options::default()
        };
        let limits = |targets| {
            let division = Division {
                options: &options,
                targets,
                levels: 1,
            };
            [false, true].map(|is_second| division.limit(is_second).count)
        };
        assert_eq!(limits(2), [Some(51), Some(50)]);
        assert_eq!(limits(1)[0], Some(101));
    }

    #[test]
    fn a_duration_is_shared_by_all_slices_of_a_target() {
        let options = Options {
            duration: Some(Duration::from_secs(30)),
            ..Options::default()
        };
        let division = Division {
            options: &options,
            targets: 2,
            levels: 1,
        };
        assert_eq!((division.rounds(), division.slices()), (5, 20));
        assert_eq!(division.limit(false), Limit::time(Duration::from_secs(3)));
        assert_eq!(division.warmup(), WARMUP);
    }

    #[test]
    fn a_single_target_gets_one_slice_of_200_requests() {
        let options = Options::default();
        let division = Division {
            options: &options,
            targets: 1,
            levels: 1,
        };
        assert_eq!((division.slices(), division.limit(false).count), (1, Some(REQUESTS)));
        assert_eq!(division.warmup(), Duration::ZERO);
    }
}
