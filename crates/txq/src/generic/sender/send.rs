//! Sending without a loss: a packet is handed in only when its queue has room for it.
//!
//! The fill word says when a queue is full by its one limit in packets. Any other limit (bytes, a class, a flow) depends on the
//! packet, so the sender asks the queue about each packet before it hands the packet in (`datapath/room.rs`). While there is
//! no room it waits as a sender does whose packets were refused: on the list of the queue's fill word.

use std::future::poll_fn;
use std::task::{Poll, Waker, ready};

use txq_core::arch::Arch;
use txq_core::packet::{Packet, PacketList};
use txq_sched::generic::qdisc::Verdict;

use super::waiting::Waiting;
use super::{Flow, SendError, Sender, WaitError};
use crate::generic::datapath::Asked;

/// How often a sender makes the owner of a queue check it again before the sender waits for the end of a turn.
const NOTIFY_TRIES: usize = 3;

impl<A: Arch> Sender<A> {
    /// Waits until the queue has room for the packet, then sends it as [`xmit`](Sender::xmit) does; returns the verdict.
    pub async fn send(&mut self, packet: Packet<A>) -> Result<Verdict, SendError<A>> {
        self.send_one(None, packet).await
    }

    /// As [`send`](Sender::send), for a packet of a flow ([`xmit_on`](Sender::xmit_on)).
    pub async fn send_on(&mut self, flow: &mut Flow<A>, packet: Packet<A>) -> Result<Verdict, SendError<A>> {
        self.send_one(Some(flow), packet).await
    }

    /// As [`send`](Sender::send), for a list, which it leaves empty ([`xmit_batch`](Sender::xmit_batch)).
    pub async fn send_batch(&mut self, batch: &mut PacketList<A>) -> Result<Verdict, WaitError> {
        self.send_list(&mut None, batch).await
    }

    async fn send_one(
        &mut self,
        mut flow: Option<&mut Flow<A>>,
        packet: Packet<A>,
    ) -> Result<Verdict, SendError<A>> {
        let is_cut = packet.segs() > 1 && !self.dev.info.gso;
        let mut batch = PacketList::new();
        batch.push_back(packet);
        if is_cut {
            // The segments wait for room, one after the other.
            if let Some(error) = self.closed()
                && let Some(packet) = batch.pop_front()
            {
                return Err(SendError { packet, error });
            }
            self.cut(&mut batch);
        }
        match self.send_list(&mut flow, &mut batch).await {
            Ok(verdict) => Ok(verdict),
            Err(error) => match batch.pop_front() {
                Some(packet) if !is_cut => Err(SendError { packet, error }),
                // The device drops the other segments, and counts them.
                first => {
                    let mut rest = PacketList::new();
                    rest.extend(first);
                    rest.append(&mut batch);
                    Ok(self.hand_in_on(&mut flow, &mut rest))
                }
            },
        }
    }

    async fn send_list(
        &mut self,
        flow: &mut Option<&mut Flow<A>>,
        batch: &mut PacketList<A>,
    ) -> Result<Verdict, WaitError> {
        let sender = Waiting(self);
        let mut sum = None;
        while !batch.is_empty() {
            let fit = poll_fn(|cx| sender.0.poll_room_for(flow, batch, cx.waker())).await?;
            let mut now = PacketList::new();
            batch.move_front(fit, &mut now);
            let verdict = sender.0.hand_in_on(flow, &mut now);
            // Some parts dropped and some not is congested, as for the packets of one call.
            sum = Some(match sum {
                None => verdict,
                Some(sum) if sum == verdict => sum,
                Some(_) => Verdict::Congested,
            });
        }
        Ok(sum.unwrap_or(Verdict::Success))
    }

    fn hand_in_on(&mut self, flow: &mut Option<&mut Flow<A>>, batch: &mut PacketList<A>) -> Verdict {
        match flow {
            Some(flow) => self.xmit_batch_on(flow, batch),
            None => self.xmit_batch(batch),
        }
    }

    /// Returns how many packets at the front of `batch` have room, at least one; or registers `waker` to be woken when it is worth
    /// to ask again.
    fn poll_room_for(
        &mut self,
        flow: &mut Option<&mut Flow<A>>,
        batch: &mut PacketList<A>,
        waker: &Waker,
    ) -> Poll<Result<usize, WaitError>> {
        let mut tries = 0;
        loop {
            let (txq, packets) = self.front_run(flow, batch);
            let room = ready!(self.poll_room_of(Some(txq), waker));
            if let Some(error) = self.refusal(room) {
                return Poll::Ready(Err(error));
            }
            let dev = self.dev.clone();
            let root = &dev.roots[dev.root_at(dev.rule(), txq)];
            if packets <= root.spare() {
                return Poll::Ready(Ok(packets));
            }
            match root.ask(&dev, batch, packets) {
                Asked::Room(fit) => return Poll::Ready(Ok(fit)),
                Asked::Unknown if tries < NOTIFY_TRIES => {
                    tries += 1;
                    self.run_queue(root.index);
                    continue;
                }
                // Full until the end of any turn. `run_queue` below makes sure that there is one.
                Asked::Unknown => root.fill.note_partial(usize::MAX),
                Asked::Full => {}
            }
            let waiter = self.waiter();
            self.waits.watched = Some(root.index);
            root.fill.watch(&waiter, true, waker);
            if self.run_queue(root.index) | root.fill.word().is_full(true) {
                return Poll::Pending;
            }
        }
    }

    /// Returns the txq of the first packet of `batch`, and how many packets from there on go to the same txq.
    fn front_run(&mut self, flow: &mut Option<&mut Flow<A>>, batch: &PacketList<A>) -> (u16, usize) {
        let Some(first) = batch.front() else { return (0, 0) };
        if let Some(flow) = flow {
            return (self.txq_of_flow(flow, first), batch.len());
        }
        if let Some(txq) = self.steer.fixed() {
            return (txq, batch.len());
        }
        let txq = self.steer.foresee(first);
        (txq, batch.iter().take_while(|packet| self.steer.foresee(packet) == txq).count())
    }
}
