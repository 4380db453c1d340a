//! The life of a request, module by module in the order a request meets them.
//!
//! One process, one thread and one event loop per core. A connection lives and dies on its thread, so its state needs
//! no locks; shared between threads are the settings, the sites, the PHP pools and the access log.

pub mod settings;

pub mod access_log;
mod body; // what is sent
mod filter; // answers early, or adjusts a response
mod forwarded; // who the client is behind a proxy
mod handler; // makes a response
mod listen; // accept
pub mod local_time;
pub mod metrics; // what was counted
mod pipeline; // the page that tells the story
mod protocol; // bytes ⇄ requests and responses
pub mod route; // host → site
mod runtime; // one thread and one current_thread runtime per core
pub mod tls; // certificates, handshakes, records

mod request;
mod response;
mod seldom; // log lines that stand for many
mod thread; // what all parts of one thread share

pub use handler::image::{original_key, sign};
pub use handler::php::send_token;
pub use handler::static_files::is_script_source;
pub use listen::{Address, BindError, Inherited, Network, NotANetwork};
pub use runtime::{RunningServer, Server, ServerHandle};
