//! The pools in the metrics, with their predecessors: counts of a name continue across reloads.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use haulier_php::{Pool, PoolStatus};

use crate::site::Site;

/// All pools by name.
#[derive(Debug, Default)]
pub(super) struct Pools {
    /// The pools in use, each once, in the order of the sites.
    current: Vec<Arc<Pool>>,
    /// Pools without a site that still finish requests. Weak references, so that metrics keep no pool alive.
    leaving: Vec<Weak<Pool>>,
    /// Counts of the pools that have ended, by name.
    ended: HashMap<String, PoolStatus>,
}

impl Pools {
    pub(super) fn current(&self) -> &[Arc<Pool>] {
        &self.current
    }

    /// Replaces the pools.
    pub(super) fn exchange(&mut self, pools: Vec<Arc<Pool>>) {
        let before = std::mem::replace(&mut self.current, pools);
        let stays = |pool: &Arc<Pool>| self.current.iter().any(|current| Arc::ptr_eq(current, pool));
        let leaving = before.iter().filter(|pool| !stays(pool)).map(Arc::downgrade);
        self.leaving.extend(leaving);
    }

    /// The predecessors of a pool that still have requests.
    pub(super) fn leaving(&self, pool: &Pool) -> Vec<Arc<Pool>> {
        let leaving = self.leaving.iter().filter_map(Weak::upgrade);
        leaving
            .filter(|other| other.settings().name == pool.settings().name)
            .collect()
    }

    pub(super) fn status(&self, pool: &Pool) -> PoolStatus {
        let ended = self.ended.get(&pool.settings().name).copied();
        let leaving = self.leaving(pool);
        let before = leaving.iter().map(|pool| pool.status()).chain(ended);
        before.fold(pool.status(), PoolStatus::following)
    }

    pub(super) fn ended(&mut self, pool: &Pool) {
        let name = &pool.settings().name;
        let before = self.ended.get(name).copied().unwrap_or_default();
        self.ended.insert(name.clone(), pool.status().following(before));
        self.leaving.retain(|weak| !std::ptr::eq(weak.as_ptr(), pool));
    }
}

/// The pools of all sites and mounts, each once.
pub(super) fn of_sites(sites: &[Arc<Site>]) -> Vec<Arc<Pool>> {
    let mut pools: Vec<Arc<Pool>> = Vec::new();
    for php in sites
        .iter()
        .flat_map(|site| site.mounts())
        .filter_map(|site| site.php.as_ref())
    {
        for used in php.pools() {
            if !pools.iter().any(|pool| Arc::ptr_eq(pool, used)) {
                pools.push(Arc::clone(used));
            }
        }
    }
    pools
}

#[cfg(test)]
mod tests {
    use haulier_php::{Address, External, PoolCounts, PoolKind, PoolSettings, UpstreamLoad};

    use super::*;

    fn pool(name: &str) -> Arc<Pool> {
        let external = External::new(vec![Address::Unix("/nowhere".into())]);
        Pool::start(PoolSettings::new(name, PoolKind::External(external))).expect("a pool of others' servers")
    }

    #[test]
    fn counts_of_a_pool_continue_those_of_its_predecessors() {
        let (first, second, other) = (pool("php"), pool("php"), pool("other"));
        let mut pools = Pools::default();
        pools.exchange(vec![Arc::clone(&first), Arc::clone(&other)]);
        pools.ended.insert(
            "php".into(),
            PoolStatus {
                counts: PoolCounts {
                    served: 7,
                    ..PoolCounts::default()
                },
                load: UpstreamLoad {
                    capacity: 3,
                    ..UpstreamLoad::default()
                },
                ..PoolStatus::default()
            },
        );
        pools.exchange(vec![Arc::clone(&second), Arc::clone(&other)]);
        assert_eq!(
            pools.leaving(&second).len(),
            1,
            "the first one still finishes its requests"
        );
        assert!(pools.leaving(&other).is_empty(), "it stayed");
        let status = pools.status(&second);
        assert_eq!(status.counts.served, 7);
        assert_eq!(
            status.load.capacity,
            second.status().load.capacity,
            "workers of the past are none"
        );
        pools.ended(&first);
        assert!(pools.leaving(&second).is_empty());
        assert_eq!(pools.status(&second).counts.served, 7);
        assert_eq!(pools.status(&other).counts.served, 0);
    }

    #[test]
    fn metrics_keep_no_unused_pool_alive() {
        let first = pool("php");
        let mut pools = Pools::default();
        pools.exchange(vec![Arc::clone(&first)]);
        pools.exchange(vec![pool("php")]);
        assert_eq!(Arc::strong_count(&first), 1);
    }
}
