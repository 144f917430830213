//! Counters of the calls and messages of a device, which no qdisc sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters of a [`Udp`](super::Udp) device, summed over its txqs.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts { $($(#[$doc])* pub $name: u64),+ }

        /// The counters: the thread in the driver adds to them, any thread reads them. Relaxed: each is a number on its own.
        #[derive(Debug, Default)]
        pub(super) struct Cells { $(pub(super) $name: AtomicU64),+ }

        impl Counters {
            /// Returns the counts. A count may be that of a moment before another.
            pub fn read(&self) -> Counts {
                Counts { $($name: self.0.$name.load(Relaxed)),+ }
            }
        }
    };
}

counters! {
    /// Calls of `sendmmsg`, with those that failed.
    calls,
    /// Messages that the kernel took.
    messages,
    /// Messages of several datagrams (`UDP_SEGMENT`), of those.
    joined,
    /// Datagrams that the kernel took.
    datagrams,
    /// Messages of several datagrams that the kernel refused to cut. The device sent their datagrams one by one.
    uncut,
    /// Calls that found the socket's buffer or the memory full. The packets stayed with the txq.
    full,
    /// Calls that returned an earlier datagram's error: nobody listens at its destination (`ECONNREFUSED`). The device
    /// repeated the call.
    refused,
    /// Datagrams dropped because they are longer than the path allows.
    too_long,
    /// Datagrams dropped because there is no route to their destination.
    unreachable,
    /// Datagrams dropped because the firewall does not let them out.
    prohibited,
    /// Datagrams dropped because of another error, which [`Transmit::finish`](txq::driver::Transmit::finish) returns.
    failed,
}

/// A handle on the counters of a device ([`Udp::counters`](super::Udp::counters)), which stays valid when the device has
/// been built.
#[derive(Debug, Default, Clone)]
pub struct Counters(Arc<Cells>);

impl Counters {
    pub(super) fn cells(&self) -> &Cells {
        &self.0
    }
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
