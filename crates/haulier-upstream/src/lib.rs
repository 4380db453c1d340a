//! Servers that answer for haulier, the connections to them, and the queue of requests in front.
//!
//! An [`Upstream`] knows its servers by address. [`Upstream::lease`] chooses one that is up and gives the request a
//! [`Lease`] on a connection, or puts the request into a fair queue. A dropped lease goes to the next request in the
//! queue. The caller speaks the protocol; an upstream uses a connection only by the trait [`Connection`].

mod acquire;
mod address;
mod admission;
mod affinity;
mod alarm;
mod checks;
mod connection;
mod error;
mod health;
mod lease;
mod load;
mod open_rate;
mod queue;
mod server;
mod servers;
mod settings;
mod upstream;
mod wait_times;

pub use acquire::LeaseRequest;
pub use address::Address;
pub use alarm::Alarm;
pub use checks::{HealthChecks, probe_while_down};
pub use connection::Connection;
pub use error::LeaseError;
pub use health::Thresholds;
pub use lease::Lease;
pub use load::UpstreamLoad;
pub use server::ServerStatus;
pub use settings::UpstreamSettings;
pub use upstream::Upstream;
pub use wait_times::WaitTimes;
