//! txq's own null device on the simulated machine, as `txq bench` uses it: what it does costs what its accesses cost.
//!
//! Without a rate it reads no clock and no packet, and has no byte queue limits. A [`Card`] reads the clock and limits bytes, so with a
//! card a packet costs more than in a measurement on the null device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use txq::generic::driver::{DeviceInfo, Driver, DriverQueue, Status, Transmit, TxCx};
use txq_core::arch::Arch;
use txq_core::packet::PacketList;
use txq_device::Null;

use super::{Card, Counted};

/// The null device, which counts for a card. Sojourn times are not measured.
pub(crate) struct NullCard {
    null: Null,
    counted: Arc<Counted>,
}

impl NullCard {
    /// Creates a device with the txqs, the rings, the rate and the counters of `card`. Ignores the card's interrupts.
    pub(crate) fn new(card: &Card) -> Self {
        let null = Null { ring: card.ring, rate: card.rate, inline: card.inline, ..Null::new(card.txqs) };
        Self { null, counted: card.counted() }
    }
}

impl<A: Arch> Driver<A> for NullCard {
    fn info(&self) -> DeviceInfo {
        <Null as Driver<A>>::info(&self.null)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue<A>> {
        let queue: DriverQueue<A> = self.null.open(txq)?;
        Ok(DriverQueue { tx: Box::new(Tx { tx: queue.tx, counted: self.counted.clone() }), ..queue })
    }
}

struct Tx<A: Arch> {
    tx: Box<dyn Transmit<A>>,
    counted: Arc<Counted>,
}

impl<A: Arch> Transmit<A> for Tx<A> {
    fn start_xmit(&mut self, batch: &mut PacketList<A>, cx: &mut TxCx<'_, A>) -> Status {
        let (packets, bytes) = (batch.len(), batch.bytes());
        let status = self.tx.start_xmit(batch, cx);
        self.counted.packets.fetch_add((packets - batch.len()) as u64, Relaxed);
        self.counted.bytes.fetch_add(bytes - batch.bytes(), Relaxed);
        status
    }
}
