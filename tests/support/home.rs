//! A check that every buffer is home.

use std::time::{Duration, Instant};

use txq::NetDev;

/// Checks that every buffer of an idle device comes home. The thread that reaped the last packets may still be freeing them.
#[track_caller]
pub(crate) fn assert_home(dev: &NetDev) {
    let end = Instant::now() + Duration::from_secs(20);
    while !dev.pool().in_use().is_empty() {
        assert!(Instant::now() < end, "buffers are not home: {:?}, {:?}", dev.pool().in_use(), dev.stats());
        std::thread::yield_now();
    }
}
