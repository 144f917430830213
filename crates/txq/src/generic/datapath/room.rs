//! Whether packets find room in a queue: what a sender asks that must not lose one ([`Qdisc::room_for`]).
//!
//! The sender takes the core for a moment and asks the qdisc. It does not wait for the core: while another thread owns it, or
//! packets wait for an owner, the answer is not known. The sender then waits for the end of an owner's turn.
//!
//! [`Qdisc::room_for`]: txq_sched::generic::qdisc::Qdisc::room_for

use txq_core::arch::Arch;
use txq_core::arch::inside::Entered;
use txq_core::clock::Clock;
use txq_core::packet::PacketList;
use txq_sched::generic::qdisc::{Arrival, Full, Load};

use super::root::HandOver;
use super::{Core, Datapath, Gate, Root};

/// The answer of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// So many of the packets may be handed in: there is room for them, or no wait would make room.
    Room(usize),
    /// The first packet has no room. The fill word says when it is worth to ask again.
    Full,
    /// Not known before an owner's turn has ended.
    Unknown,
}

impl<A: Arch> Root<A> {
    /// Returns how many of the first `packets` of `batch` find room, if they arrive now and no others before them.
    pub(crate) fn ask(&self, dev: &Datapath<A>, batch: &PacketList<A>, packets: usize) -> Asked {
        let _inside = Entered::<A>::new(dev);
        let mut asked = Asked::Unknown;
        let hand_over = HandOver(self.index, dev);
        let ended = self.discipline.try_with_core(&mut |core, waiting| {
            if !waiting {
                asked = core.ask(self, dev, batch, packets);
            }
        });
        hand_over.end(ended == Some(false));
        asked
    }
}

impl<A: Arch> Core<A> {
    fn ask(&self, root: &Root<A>, dev: &Datapath<A>, batch: &PacketList<A>, packets: usize) -> Asked {
        if self.gate != Gate::Open {
            return Asked::Room(packets);
        }
        let Some(qdisc) = &self.qdisc else { return self.ask_ring(root, dev, packets) };
        if self.has_unadmitted() {
            return Asked::Unknown;
        }
        // A batch in the driver may come back.
        let back = match self.running {
            true => Load { packets: self.counters.in_driver as usize, bytes: self.driven_bytes },
            false => Load::default(),
        };
        let (mut clock, mut ahead, mut fit) = (Clock::new(), Load::default(), 0);
        for packet in batch.iter().take(packets) {
            match qdisc.room_for(Arrival::new(packet, ahead, back, &mut clock)) {
                Ok(()) => {
                    ahead.add(packet);
                    fit += 1;
                }
                Err(Full { queued: 0 }) if fit == 0 && !self.running => return Asked::Room(1),
                Err(Full { queued }) if fit == 0 => {
                    // At least so many packets leave the whole queue before half of those have left that are in the way.
                    let low = self.qlen() - queued.div_ceil(2).min(self.qlen());
                    root.fill.note_partial(low);
                    return Asked::Full;
                }
                Err(_) => break,
            }
        }
        Asked::Room(fit)
    }

    /// As [`ask`](Core::ask), without a qdisc: the device's ring is the queue.
    fn ask_ring(&self, root: &Root<A>, dev: &Datapath<A>, packets: usize) -> Asked {
        let Some(txq) = root.txq.map(|txq| &dev.txqs[usize::from(txq)]) else { return Asked::Room(packets) };
        let room = if txq.stopped() { 0 } else { txq.room() as usize };
        if room == 0 {
            root.fill.note_full(0);
            return Asked::Full;
        }
        Asked::Room(packets.min(room))
    }
}
