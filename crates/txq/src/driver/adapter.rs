//! Drivers of programs as the data path calls them, and the other way round.

use std::io;
use std::time::Duration;

use txq_core::arch::{Nanos, Native};
use txq_core::clock as core;
use txq_core::packet as packets;

use super::{Clock, Complete, DeviceInfo, Driver, Status, Transmit, TxCx};
use crate::Instant;
use crate::generic::driver as generic;
use crate::packet::PacketList;

/// A program's driver, or a half of one of its txqs, as the data path calls it.
pub(crate) struct Concrete<T>(pub(crate) T);

impl<D: Driver> generic::Driver<Native> for Concrete<D> {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn pacing_horizon(&self) -> Duration {
        self.0.pacing_horizon()
    }

    fn open(&mut self, txq: u16) -> io::Result<generic::DriverQueue<Native>> {
        Ok(self.0.open(txq)?.0)
    }
}

impl<T: Transmit> generic::Transmit<Native> for Concrete<T> {
    fn start_xmit(&mut self, batch: &mut packets::PacketList, cx: &mut generic::TxCx<'_, Native>) -> Status {
        self.0.start_xmit(PacketList::from_mut(batch), TxCx::from_mut(cx))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.finish()
    }
}

impl<C: Complete> generic::Complete<Native> for Concrete<C> {
    fn poll(
        &mut self,
        budget: usize,
        done: &mut packets::PacketList,
        clock: &mut core::Clock,
    ) -> Option<Nanos> {
        self.0.poll(budget, PacketList::from_mut(done), Clock::from_mut(clock)).map(Instant::as_nanos)
    }

    fn inline(&self) -> bool {
        self.0.inline()
    }

    fn bql(&self) -> bool {
        self.0.bql()
    }
}

/// A half as the data path holds it, for a driver that wraps it.
pub(super) struct Generic<T: ?Sized>(pub(super) Box<T>);

impl Transmit for Generic<dyn generic::Transmit<Native>> {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        self.0.start_xmit(&mut batch.0, &mut cx.0)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.finish()
    }
}

impl Complete for Generic<dyn generic::Complete<Native>> {
    fn poll(&mut self, budget: usize, done: &mut PacketList, clock: &mut Clock) -> Option<Instant> {
        self.0.poll(budget, &mut done.0, &mut clock.0).map(Instant::from_nanos)
    }

    fn inline(&self) -> bool {
        self.0.inline()
    }

    fn bql(&self) -> bool {
        self.0.bql()
    }
}
