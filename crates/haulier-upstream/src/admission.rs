//! How many requests may be in progress at once, if the owner limits that below the number of connections.
//!
//! Programs that compute do not gain by sharing a processor: all of them end later. So an owner that knows them may let
//! only as many begin as there are processors, and further ones as it finds that some in progress wait for something.

/// The limit of requests in progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    /// Requests that may compute at once.
    limit: usize,
    /// Requests in progress that do not count, as the owner has found.
    exempt: usize,
}

impl Admission {
    /// `None` is no limit.
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self {
            limit: limit.map_or(usize::MAX, |limit| limit.max(1)),
            exempt: 0,
        }
    }

    /// Sets the number of requests in progress that do not count.
    pub(crate) fn set_exempt(&mut self, exempt: usize) {
        self.exempt = exempt;
    }

    /// Number of requests that may begin while `busy` are in progress.
    pub(crate) fn room(self, busy: usize) -> usize {
        self.limit.saturating_add(self.exempt).saturating_sub(busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_make_room_for_others() {
        let mut admission = Admission::new(Some(2));
        assert_eq!([0, 1, 2, 3].map(|busy| admission.room(busy)), [2, 1, 0, 0]);
        admission.set_exempt(3);
        assert_eq!([0, 4, 5, 9].map(|busy| admission.room(busy)), [5, 1, 0, 0]);
    }

    #[test]
    fn one_may_always_begin() {
        assert_eq!(Admission::new(Some(0)).room(0), 1);
        assert!(Admission::new(None).room(1_000_000) > 1_000_000);
    }
}
