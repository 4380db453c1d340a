//! Pools of PHP processes reached by FastCGI.
//!
//! A [`Pool`] starts php-cgi and supervises it, or uses a FastCGI server that another program runs. [`Pool::send`]
//! waits for a worker in a fair queue, sends one request, and returns the response head; [`Response`] then returns the
//! body. A worker belongs to one request from the lease to END_REQUEST. The server makes the parameters and handles the
//! response.

mod at_work;
mod backend;
mod background;
mod children;
mod connection;
mod counts;
mod ended;
mod error;
mod external;
mod fastcgi_exchange;
mod handed_files;
mod kept_memory;
mod lease;
mod maintenance;
mod marker;
mod memory;
mod peer;
mod pool;
mod process_source;
mod processes;
mod recycling;
mod request;
mod response;
mod running;
mod settings;
mod shared_pool;
mod shown_duration;
mod slow;
pub mod spawner;
mod status;
mod stderr;
mod supervised;
mod trace;
mod watch;

pub use background::background_scripts;
pub use counts::PoolCounts;
pub use ended::Ended;
pub use error::{BadResponse, PoolError, StartError};
pub use external::{ExternalServer, FpmStatus};
pub use haulier_upstream::{Address, ServerStatus, UpstreamLoad, WaitTimes};
pub use kept_memory::KeptMemory;
pub use marker::finish_marker;
pub use pool::Pool;
pub use request::{Body, Request};
pub use response::Response;
pub use running::RunningRequest;
pub use rustix::process::Resource;
pub use settings::{
    Balance, Embedded, External, ExternalRows, Health, HealthTable, PoolKind, PoolRows, PoolSettings, Recycle,
    RecycleTable, Rlimit, RlimitsTable, Shrink, Slow, SlowTable, Supervised, SupervisedRows, User, WorkersTable,
};
pub use shared_pool::TracedRequest;
pub use spawner::Spawner;
pub use status::{PoolStatus, WorkerActivity, WorkerStatus};
pub use supervised::extension::{try_embedded, versions as embedded_versions};
pub use trace::Trace;
