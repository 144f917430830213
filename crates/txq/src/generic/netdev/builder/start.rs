//! What a device that is started has in addition: threads, and what follows from this machine's CPUs.

use std::num::NonZero;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use txq_core::arch::Native;

use super::super::{BuildError, NetDev};
use super::Builder;
use crate::generic::txqueue::Completions;
use crate::generic::worker::Worker;
use crate::os;
use crate::topology::Topology;
use crate::xps::XpsMap;

impl Builder<Native> {
    /// Builds the device and starts its workers and completers, each on a thread of its own. If [`Builder::xps`] was not called,
    /// gives the device a map from CPUs to txqs.
    #[inline(never)]
    pub fn start(mut self) -> Result<NetDev, BuildError> {
        if self.completions == Completions::PerQueue {
            // More would wait for each other's CPU.
            self.completers = thread::available_parallelism().map_or(1, NonZero::get);
        }
        if self.xps.is_none() {
            self.auto_xps = self.auto_map();
        }
        let mut dev = self.build()?;
        let workers = dev.shared.workers;
        dev.shared.has_threads.store(1, Relaxed);
        for index in 0..dev.shared.sched.len() {
            let shared = dev.shared.clone();
            let name = match index.checked_sub(workers) {
                None => format!("txq-worker-{index}"),
                Some(completer) => format!("txq-reap-{completer}"),
            };
            let thread = thread::Builder::new().name(name);
            let life = move || {
                os::sleep_precisely();
                Worker::supervise(&shared, index);
            };
            dev.threads.push(thread.spawn(life).map_err(BuildError::Thread)?);
        }
        Ok(dev)
    }

    /// Returns the map of a device to which none was given.
    fn auto_map(&self) -> Option<XpsMap> {
        let info = self.driver.info();
        let txqs = self.txqs.unwrap_or(info.txqs);
        if txqs < 2 || info.by_flow || self.xps_rxqs.is_some() {
            return None;
        }
        let topology = Topology::read("/sys").ok()?;
        let topology = match os::allowed_cpus() {
            Some(cpus) => topology.within(&cpus),
            None => topology,
        };
        XpsMap::auto(&topology, txqs.into()).ok()
    }
}
