//! The text of php-fpm's `pm.status_path`: one number per line.

/// Numbers of a php-fpm pool, clients other than haulier included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FpmStatus {
    /// Busy children: they process a request, or a client keeps a connection to them.
    pub active: usize,
    /// All its children.
    pub total: usize,
    /// Connections that wait for a child. php-fpm reports this number for TCP only; it is 0 for a Unix socket.
    pub queued: usize,
}

impl FpmStatus {
    /// Reads the text; `None` if a number is missing.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let number = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = lines.find(|(found, _)| *found == name)?;
            value.trim().parse().ok()
        };
        Some(Self {
            active: number("active processes")?,
            total: number("total processes")?,
            queued: number("listen queue")?,
        })
    }

    /// Busy children plus waiting connections, without the child that answered this request.
    pub(crate) fn load(self) -> usize {
        (self.active + self.queued).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "pool:                 www\nprocess manager:      static\nstart time:           21/Nov/2026:12:00:00 +0000\n\
        start since:          5\naccepted conn:        7\nlisten queue:         3\nmax listen queue:     9\nlisten queue len:     128\n\
        idle processes:       1\nactive processes:     4\ntotal processes:      5\nmax active processes: 5\n\
        max children reached: 0\nslow requests:        0\n";

    #[test]
    fn its_numbers_are_found_by_their_whole_names() {
        let expected = FpmStatus {
            active: 4,
            total: 5,
            queued: 3,
        };
        assert_eq!(FpmStatus::parse(TEXT.as_bytes()), Some(expected));
    }

    #[test]
    fn another_page_is_no_status() {
        for text in [
            "pong",
            "",
            "active processes: many\ntotal processes: 1\nlisten queue: 0\n",
        ] {
            assert_eq!(FpmStatus::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(FpmStatus::parse(b"\xff"), None);
    }

    #[test]
    fn the_child_that_tells_is_not_part_of_the_load() {
        let status = |active, queued| FpmStatus {
            active,
            total: 8,
            queued,
        };
        assert_eq!(status(4, 3).load(), 6);
        assert_eq!(status(1, 0).load(), 0);
        assert_eq!(status(0, 0).load(), 0);
    }
}
