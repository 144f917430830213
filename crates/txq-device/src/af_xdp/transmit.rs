//! The transmitting half: fills the tx ring and kicks the kernel.

use std::io;
use std::sync::Arc;

use txq::driver::{Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};
use txq::pool::Cache;
use txq_core::arch::Native;
use txq_core::sync::spsc;

use super::metadata::{self, Metadata, Offloads};
use super::queue::{Kick, Queue};
use super::rings::Producer;
use super::socket::Desc;
use super::umem::Use;
use crate::backoff::Backoff;

/// Lengths of an Ethernet header and of a VLAN tag.
const ETHER_HEADER: usize = 14;
const VLAN_TAG: usize = 4;

pub(super) struct Tx {
    ring: Producer<Desc>,
    /// Packets of other pools whose copies are being sent: they wait for [`Done`](super::complete::Done).
    originals: spsc::Producer<Native, Packet>,
    /// Where copies come from, once there was a packet of another pool.
    copies: Option<Cache>,
    /// For a copy when no buffer is free.
    retry: Backoff,
    offloads: Offloads,
    queue: Arc<Queue>,
}

impl Tx {
    /// Returns the transmitting half of a queue, which must have no other one.
    pub(super) fn new(
        queue: Arc<Queue>,
        originals: spsc::Producer<Native, Packet>,
        offloads: Offloads,
    ) -> Self {
        // SAFETY: the caller's promise; the kernel reads only slots between the cursors, and `queue` keeps the ring mapped.
        let ring = unsafe { Producer::new(queue.rings().tx) };
        Self { ring, originals, copies: None, retry: Backoff::new(), offloads, queue }
    }

    /// Returns whether a packet's own buffer can be sent: it is of the device's pool, and has space for metadata, which the kernel
    /// takes for granted.
    fn is_direct(&self, packet: &Packet) -> bool {
        let has_space = !self.queue.metadata || packet.headroom() >= metadata::LEN;
        has_space && self.queue.umem.pool.owns(packet)
    }

    /// Returns why a packet cannot be sent. The kernel would skip it without a completion, or send it to a driver that drops
    /// it.
    fn unfit(&self, packet: &Packet) -> Option<DropReason> {
        let (len, data) = (packet.len(), packet.data());
        if packet.segs() > 1 {
            return Some(DropReason::PktTooBig);
        }
        if len < ETHER_HEADER {
            return Some(DropReason::HdrTrunc);
        }
        let Queue { umem, interface, .. } = &*self.queue;
        let mut most = interface.mtu as usize + ETHER_HEADER;
        if len > most {
            most = interface.mtu_now() as usize + ETHER_HEADER;
            most += if matches!([data[12], data[13]], [0x81, 0] | [0x88, 0xa8]) { VLAN_TAG } else { 0 };
        }
        let longest = umem.chunk - if self.queue.metadata { metadata::LEN } else { 0 };
        let fits = len <= most.min(longest) && (len <= umem.pool.room() || self.is_direct(packet));
        (!fits).then_some(DropReason::PktTooBig)
    }

    /// Hands a packet's buffer to the kernel, or a copy's if its own cannot be sent. Returns the packet if no buffer is free for a
    /// copy. The ring has room. `launch_at` is the time until which the card keeps the frame, on the card's clock, or 0.
    fn give(&mut self, packet: Packet, launch_at: u64) -> Result<(), Packet> {
        let (pool, len) = (&self.queue.umem.pool, packet.len() as u32);
        let metadata = if self.queue.metadata { Metadata::of(&packet, launch_at) } else { None };
        let (mut packet, of) = if self.is_direct(&packet) {
            (packet, Use::Sent)
        } else {
            let copies = self.copies.get_or_insert_with(|| pool.cache("af_xdp copies", 0));
            let Ok(mut copy) = copies.alloc(packet.len()) else { return Err(packet) };
            copy.data_mut().copy_from_slice(packet.data());
            // As long as the tx ring, which has room.
            self.originals.push(packet)?;
            (copy, Use::Copied)
        };
        let mut options = 0;
        if let Some(metadata) = metadata
            && let Some(space) = packet.push(metadata::LEN)
        {
            space.copy_from_slice(&metadata.to_bytes());
            packet.pull(metadata::LEN);
            options = libc::XDP_TX_METADATA;
        }
        let address = pool.take_offset(packet);
        self.queue.uses.set(address / self.queue.umem.stride, of);
        let pushed = self.ring.push(Desc { address: address as u64, len, options });
        debug_assert!(pushed, "the ring has room");
        Ok(())
    }

    /// Kicks the kernel until it has taken all frames or takes no more.
    fn kick(&self) -> Kick {
        let tx = self.ring.ring();
        while tx.has_pending() && self.queue.wants_kick() {
            let before = tx.consumed();
            match self.queue.kick() {
                // In copy mode the kernel sends a limited number of frames a call.
                Kick::Again if tx.consumed() != before => {}
                other => return other,
            }
        }
        Kick::Sent
    }

    /// Drops frames that the kernel has not sent and never will, of the last `n` that were pushed.
    fn drop_unsent(&mut self, n: u32, cx: &mut TxCx<'_>) {
        let Queue { umem, uses, .. } = &*self.queue;
        let tx = self.ring.ring();
        let unsent = self.ring.head().wrapping_sub(tx.consumed()).min(n);
        for back in (1..=unsent).rev() {
            let at = self.ring.filled(self.ring.head().wrapping_sub(back)).address as usize;
            // The completing half may take it at the same time, if it has found out too.
            if uses.take_if(at / umem.stride, Use::Sent) {
                // SAFETY: `give` gave it to the kernel, and the table has just returned it to this half alone.
                cx.drop(unsafe { umem.pool.packet_at(at) }, DropReason::DevReady);
            }
        }
    }
}

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        if self.queue.is_gone() {
            while let Some(packet) = batch.pop_front() {
                cx.drop(packet, DropReason::DevReady);
            }
            return Status::Ok;
        }
        let (mut status, before) = (Status::Ok, self.ring.head());
        let mut ahead = None;
        while let Some(packet) = batch.pop_front() {
            if let Some(reason) = self.unfit(&packet) {
                cx.drop(packet, reason);
                continue;
            }
            if self.ring.room(1) == 0 {
                batch.push_front(packet);
                status = Status::Busy { retry: None };
                break;
            }
            let launch_at = match packet.departure() {
                at if self.offloads.launch_time && at > cx.now() => {
                    (at + *ahead.get_or_insert_with(metadata::tai_ahead)).as_nanos()
                }
                _ => 0,
            };
            if let Err(packet) = self.give(packet, launch_at) {
                batch.push_front(packet);
                status = Status::Busy { retry: Some(self.retry.after(Backoff::BOUND)) };
                break;
            }
            self.retry.reset();
        }
        self.originals.publish();
        self.ring.publish();
        // While the interface is down the completing half checks when it is up again.
        if !self.queue.is_down() && self.kick() == Kick::Gone {
            self.drop_unsent(self.ring.head().wrapping_sub(before), cx);
        }
        status
    }

    fn finish(&mut self) -> io::Result<()> {
        self.queue.take_error().map_or(Ok(()), Err)
    }
}
