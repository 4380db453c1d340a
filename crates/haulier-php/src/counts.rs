//! Counters of a pool.

/// Ends of requests and of workers since the pool's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Requests answered completely.
    pub served: u64,
    /// Workers that ended in the middle of a request.
    pub crashes: u64,
    /// Workers ended by a timeout.
    pub timeouts: u64,
    /// Requests repeated because the first worker had gone.
    pub retries: u64,
    /// Workers replaced after their number of requests.
    pub recycled_requests: u64,
    /// Workers replaced for their memory.
    pub recycled_memory: u64,
    /// Workers replaced for their age.
    pub recycled_age: u64,
    /// Idle workers replaced to free their memory.
    pub shrunk: u64,
    /// Requests that took longer than the slow log allows.
    pub slow: u64,
    /// Unexpected ends of the php-cgi master.
    pub exits: u64,
}

impl PoolCounts {
    /// Workers replaced because they had reached a limit.
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
