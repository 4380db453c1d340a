//! Counters of a pool: ends of requests and of workers.

/// Ends of requests and of workers since a pool was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Requests answered to the end.
    pub served: u64,
    /// Workers that ended in the middle of a request.
    pub crashes: u64,
    /// Workers ended because no response head came in time.
    pub timeouts: u64,
    /// Requests sent once more because the first worker was gone.
    pub retries: u64,
    /// Workers replaced after their number of requests.
    pub recycled_requests: u64,
    /// Workers replaced because of the memory they had taken.
    pub recycled_memory: u64,
    /// Workers replaced because of their age.
    pub recycled_age: u64,
    /// Idle workers replaced to give their memory back.
    pub shrunk: u64,
    /// Requests that took longer than the slow log allows.
    pub slow: u64,
    /// Times the php-cgi master ended unasked.
    pub exits: u64,
}

impl PoolCounts {
    /// Workers replaced between requests because they had reached a limit.
    pub fn recycled(&self) -> u64 {
        self.recycled_requests + self.recycled_memory + self.recycled_age
    }

    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            served: self.served + other.served,
            crashes: self.crashes + other.crashes,
            timeouts: self.timeouts + other.timeouts,
            retries: self.retries + other.retries,
            recycled_requests: self.recycled_requests + other.recycled_requests,
            recycled_memory: self.recycled_memory + other.recycled_memory,
            recycled_age: self.recycled_age + other.recycled_age,
            shrunk: self.shrunk + other.shrunk,
            slow: self.slow + other.slow,
            exits: self.exits + other.exits,
        }
    }
}
