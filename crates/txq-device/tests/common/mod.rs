//! Helpers of the tests of whole devices.

use std::time::Duration;

use txq::NetDev;
use txq::pool::{Backing, PoolConfig};
use txq::stats::device::DeviceStats;

#[path = "../../../../tests/support/home.rs"]
mod home;

/// Longer than any test takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until all packets have left, without sending more, and checks that none is lost: the counters add up and every
/// buffer is home.
#[track_caller]
pub(crate) fn assert_conserved(dev: &NetDev) -> DeviceStats {
    assert!(dev.drain(PATIENCE), "packets do not leave: {:?}", dev.stats());
    let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    home::assert_home(dev);
    stats
}

/// A pool of small buffers.
#[allow(dead_code, reason = "not every test sends small packets")]
pub(crate) fn pool(buffers: u32) -> PoolConfig {
    PoolConfig { buffers, room: 256, backing: Backing::Heap, ..Default::default() }
}
