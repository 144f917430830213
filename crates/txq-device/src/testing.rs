//! One txq of a driver without a device around it, for tests of single calls.

use std::io;

use txq::driver::{Clock, Complete, Driver, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::pool::{Backing, Cache, Pool, PoolConfig};

pub(crate) const ZEROS: [u8; 2000] = [0; 2000];

pub(crate) struct Bench {
    // Before the cache, so that packets are home when the pool is dropped.
    queue: (Box<dyn Transmit>, Box<dyn Complete>, Option<u32>),
    cache: Cache,
    pub(crate) pool: Pool,
}

/// The results of a batch, besides the packets left in it and those that the driver keeps.
pub(crate) struct Xmit {
    pub(crate) status: Status,
    pub(crate) done: PacketList,
    pub(crate) dropped: PacketList,
}

impl Bench {
    pub(crate) fn new(driver: &mut impl Driver) -> Self {
        let config = PoolConfig { room: 2000, backing: Backing::Heap, ..Default::default() };
        let pool = Pool::new(&config).unwrap();
        Self { queue: driver.open(0).unwrap().into_parts(), cache: pool.cache("test", 0), pool }
    }

    pub(crate) fn packets<'a>(&mut self, frames: impl IntoIterator<Item = &'a [u8]>) -> PacketList {
        let packet = |frame: &[u8]| {
            let mut packet = self.cache.alloc(frame.len()).unwrap();
            packet.data_mut().copy_from_slice(frame);
            packet
        };
        frames.into_iter().map(packet).collect()
    }

    pub(crate) fn xmit(&mut self, batch: &mut PacketList) -> Xmit {
        let (mut done, mut dropped, mut clock) = (PacketList::new(), PacketList::new(), Clock::new());
        let mut cx = TxCx::new(&mut clock, &mut done, &mut dropped);
        let status = self.queue.0.start_xmit(batch, &mut cx);
        Xmit { status, done, dropped }
    }

    pub(crate) fn poll(&mut self, budget: usize) -> PacketList {
        let mut done = PacketList::new();
        let _ = self.queue.1.poll(budget, &mut done, &mut Clock::new());
        done
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.queue.0.finish()
    }
}
