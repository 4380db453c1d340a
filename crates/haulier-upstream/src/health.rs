//! Health of a server: a refused connection takes it out at once, health checks after several failures in a row.

/// Numbers of health checks that take a server out, or back in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Failures in a row that take a server out.
    pub fail: u32,
    /// Successes in a row that bring it back.
    pub recover: u32,
}

/// Health of one server. A server that is down gets no requests while others are up.
#[derive(Debug, Default)]
pub(crate) struct Health {
    is_down: bool,
    /// Checks in a row that contradict `is_down`.
    streak: u32,
}

impl Health {
    pub(crate) fn is_down(&self) -> bool {
        self.is_down
    }

    /// Notes that the server refused a connection.
    pub(crate) fn note_refused(&mut self) {
        (self.is_down, self.streak) = (true, 0);
    }

    /// Notes that the server accepted a connection, which suffices where no checks are made.
    pub(crate) fn note_connected(&mut self) {
        self.is_down = false;
    }

    pub(crate) fn note_check(&mut self, is_well: bool, thresholds: Thresholds) {
        self.streak = if is_well == self.is_down { self.streak + 1 } else { 0 };
        let needed = if is_well { thresholds.recover } else { thresholds.fail };
        if self.streak >= needed {
            (self.is_down, self.streak) = (!is_well, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_change_the_condition_after_so_many_in_a_row() {
        let thresholds = Thresholds { fail: 3, recover: 2 };
        let mut health = Health::default();
        let mut seen = Vec::new();
        for is_well in [false, false, true, false, false, false, true, false, true, true] {
            health.note_check(is_well, thresholds);
            seen.push(health.is_down());
        }
        let expected = [false, false, false, false, false, true, true, true, true, false];
        assert_eq!(seen, expected);
        health.note_refused();
        assert!(health.is_down(), "a refused connection counts at once");
    }
}
