//! Pools of PHP processes reached by FastCGI.
//!
//! A [`Pool`] starts php-cgi and watches it, or uses a FastCGI server that somebody else runs. [`Pool::send`] carries one
//! request: it waits for a worker in a fair queue, sends, and gives the response head; [`Response`] then gives the body.
//! A worker belongs to one request from the lease to END_REQUEST. What stands in the parameters, and what becomes of a
//! response, is the server's business.

mod affinity;
mod connection;
mod directory;
mod ended;
mod error;
mod exchange;
mod finished;
mod fpm_status;
mod health;
mod heard;
mod ini_admin;
mod keeper;
mod lease;
mod master;
mod memory;
mod peer;
mod pool;
mod recipe;
mod request;
mod response;
mod running;
mod settings;
mod slow;
mod span;
mod spawn;
pub mod spawner;
mod state;
mod supervisor;
mod wait_times;
mod watch;
mod worker;

pub use ended::Ended;
pub use error::{BadResponse, PoolError, StartError};
pub use finished::{finish_marker, scripts_behind_answers};
pub use fpm_status::FpmStatus;
pub use pool::Pool;
pub use request::{Body, Request, Wanted};
pub use response::{Piece, Response, TryBody};
pub use running::RunningRequest;
pub use rustix::process::Resource;
pub use settings::{
    Balance, External, Health, PoolKind, PoolSettings, Recycle, Rlimit, Server, Shrink, Slow, Supervised, User,
};
pub use spawner::Spawner;
pub use state::{PoolStatus, ServerStatus, Work, WorkerStatus};
pub use wait_times::WaitTimes;
