//! Supervised PHP: php-cgi programs that haulier starts, replaces and ends.

mod directory;
pub(crate) mod extension;
mod ini_admin;
mod master;
mod scheduler;
mod socket;
mod supervisor;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

pub(crate) use self::supervisor::Supervisor;
use crate::connection::Connection;
use crate::recycling::Spent;
use crate::settings::Supervised;
use crate::shared_pool::SharedPool;

/// Pause between two maintenance rounds if requests may wait for the spawn rate.
const SPAWN_PAUSE: Duration = Duration::from_millis(100);

/// The shortest time after which maintenance may be due; `None` if no maintenance is needed.
pub(crate) fn maintenance_interval(own: &Supervised) -> Option<Duration> {
    let age = Some(own.recycle.age).filter(|age| !age.is_zero());
    let idle = own.shrink.map(|shrink| shrink.idle);
    let spawns = own.spawn_rate.map(|_| 4 * SPAWN_PAUSE);
    age.into_iter().chain(idle).chain(spawns).min()
}

/// Ends idle workers that are too old or not needed, and grants the connections that the spawn rate allows.
pub(crate) fn maintain(shared: &Arc<SharedPool>, own: &Supervised) {
    let old = shared.upstream.take_idle(|connection| is_old(own, connection));
    end(shared, old, Spent::Age);
    if let Some(shrink) = own.shrink {
        let unneeded = shared.upstream.take_surplus(shrink.least, shrink.idle);
        end(shared, unneeded, Spent::Idle);
    }
    if own.spawn_rate.is_some() {
        shared.upstream.grant_due();
    }
}

fn is_old(own: &Supervised, connection: &Connection) -> bool {
    let pid = connection.peer.pid();
    pid.is_some_and(|pid| connection.worker.is_old(&own.recycle, pid))
}

/// Ends the workers of these connections. The master, or the spare worker, replaces them.
fn end(shared: &SharedPool, connections: Vec<Connection>, why: Spent) {
    let Some(processes) = &shared.processes else { return };
    for connection in connections {
        if processes.end(&connection.peer, Signal::TERM) {
            shared.count_replaced(why);
        }
    }
}
