//! A sender: one thread's handle on a device.

use std::fmt;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::Instant;
use crate::generic;
use crate::packet::{Packet, PacketList};
use crate::pool::{AllocError, Pool};
use crate::qdisc::Verdict;

mod waiting;

pub use crate::generic::{Room, WaitError};
pub use waiting::SendError;

/// One thread's handle on a device: its CPU, its stock of buffers, its counters. It may move between threads; one thread at
/// a time uses it. When it is dropped, also by a panic, its buffers return to the pool, and packets that it has handed in
/// stay on their way.
pub struct Sender(#[doc(hidden)] pub generic::Sender);

impl Sender {
    /// Longest sleep of a sender that waits for room, if its queue says nothing of when there will be room.
    pub const LONGEST_WAIT: Duration = <generic::Sender>::LONGEST_WAIT;

    /// Returns a packet of `len` bytes to fill. Returns an error, and does not wait, if there is no buffer;
    /// [`buffer`](Sender::buffer) and [`wait_buffer`](Sender::wait_buffer) wait for one.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<Packet, AllocError> {
        self.0.alloc(len).map(Packet)
    }

    /// Appends up to `n` packets of `len` bytes to `list`; returns how many, or an error if there is no buffer.
    #[inline]
    pub fn alloc_batch(&mut self, n: usize, len: usize, list: &mut PacketList) -> Result<usize, AllocError> {
        self.0.alloc_batch(n, len, &mut list.0)
    }

    /// Returns a packet with a copy of `bytes`.
    #[inline]
    pub fn packet(&mut self, bytes: &[u8]) -> Result<Packet, AllocError> {
        self.0.packet(bytes).map(Packet)
    }

    /// Sends one packet (`dev_queue_xmit`).
    ///
    /// [`Verdict::Success`] means that the queue layer has accepted the packet. A packet that was left to the queue's
    /// current owner may still be dropped by the qdisc; [`dropped`](Sender::dropped) then counts it. To wait instead of
    /// losing packets, call [`wait_room`](Sender::wait_room) before.
    ///
    /// A call seldom waits, and for a bounded time. Under [`Discipline::Combine`](crate::Discipline::Combine) a sender that does
    /// little else waits up to 15 ms for its turn where it meets another one. A sender that finds 1000 packets in front of the queue
    /// waits up to 4 ms for the owner, which may lack a CPU. Under the disciplines with locks a sender waits for the lock.
    #[inline]
    pub fn xmit(&mut self, packet: Packet) -> Verdict {
        self.0.xmit(packet.0)
    }

    /// Sends a list of packets, in order within each flow, and leaves the list empty. Returns [`Verdict::Drop`] if all are
    /// known to be dropped, [`Verdict::Congested`] if some are; [`dropped`](Sender::dropped) tells how many.
    pub fn xmit_batch(&mut self, batch: &mut PacketList) -> Verdict {
        self.0.xmit_batch(&mut batch.0)
    }

    /// Sends one packet of a flow, as [`xmit`](Sender::xmit) does. The flow keeps its txq while packets are outstanding,
    /// whichever sender sent them.
    #[inline]
    pub fn xmit_on(&mut self, flow: &mut Flow, packet: Packet) -> Verdict {
        self.0.xmit_on(&mut flow.0, packet.0)
    }

    /// Sends packets of one flow, in order, and leaves the list empty, as [`xmit_batch`](Sender::xmit_batch) does. The flow
    /// keeps its txq while packets are outstanding, whichever sender sent them. The first packet's priority and rx queue
    /// choose the txq of all.
    ///
    /// A choice uses the CPU and the time that the sender reads once in 64 calls, and always the current map.
    pub fn xmit_batch_on(&mut self, flow: &mut Flow, batch: &mut PacketList) -> Verdict {
        self.0.xmit_batch_on(&mut flow.0, &mut batch.0)
    }

    /// Fills in the checksum of a TCP or UDP packet for this sender's device. A device that computes checksums
    /// ([`DeviceInfo::checksum`](crate::driver::DeviceInfo::checksum)) gets the packet with the sum of the pseudo header
    /// (`CHECKSUM_PARTIAL`), for any other device the checksum is computed here (`skb_checksum_help`). Returns false for another
    /// packet, which stays as it is.
    ///
    /// Call it when all headers are written. The payload may change afterwards if
    /// [`is_checksum_partial`](Packet::is_checksum_partial) is true then, and only this device may get the packet.
    pub fn fill_checksum(&self, packet: &mut Packet) -> bool {
        self.0.fill_checksum(&mut packet.0)
    }

    /// Limits the packets that this sender may have on their way (`SO_SNDBUF`, counted in packets). At the limit, `alloc`
    /// returns [`AllocError::Limit`], and [`wait_credit`](Sender::wait_credit) sleeps.
    pub fn set_limit(&mut self, packets: u64) {
        self.0.set_limit(packets);
    }

    /// Sleeps until the limit allows an allocation, or until `deadline` on the clock of [`now`](Sender::now); returns
    /// whether it allows one. A sleeping sender is woken once half the limit is free, as the kernel wakes its senders, so
    /// hand in the packets you hold before. Returns false also when the device has been shut down. Costs nothing while no
    /// sender sleeps.
    pub fn wait_credit(&mut self, deadline: Option<Instant>) -> bool {
        self.0.wait_credit(deadline.map(Instant::as_nanos))
    }

    /// Returns how many packets of this sender are known to be dropped so far. The count is exact for packets dropped by
    /// this sender's own calls, once they return: the difference over a call of [`xmit_batch`](Sender::xmit_batch) is the
    /// number of packets of this batch, or of earlier ones, that were lost. Packets left to another owner, and packets that
    /// an AQM drops later, count when they are dropped.
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }

    /// Lets the next wait for room disregard the packets that this sender has lost so far: only a queue that is full by its
    /// limit in packets holds the sender. A sender that serves many connections calls it before each wait, because
    /// the limit of one flow or class has dropped the packet of one connection, and the others have room.
    pub fn disregard_drops(&mut self) {
        self.0.disregard_drops();
    }

    /// Sleeps until the queue that this sender's packets go to has room, or until `deadline` on the clock of
    /// [`now`](Sender::now), and at most for [`LONGEST_WAIT`](Sender::LONGEST_WAIT). Call it before each call of xmit: if
    /// there is room it costs a few loads.
    ///
    /// A queue with a limit in packets is full from three quarters of the limit on, so that packets of senders that checked a
    /// moment before still find room. A waiting sender continues at half the limit. Other queues (limits in bytes; bands,
    /// classes, flows) hold a sender after they have dropped a packet of that sender for want of room, until the backlog has
    /// halved: [`send`](Sender::send) knows its packet, and waits before a loss. Without a qdisc, the txq is the queue. A sender whose
    /// packets go to several txqs waits for all that it has used.
    ///
    /// A change of the qdisc or of the txqs, [`deactivate`](crate::NetDev::deactivate) and the end of the device end the
    /// wait. Inside a driver, qdisc or completion the call returns at once: the queue may wait for the caller.
    ///
    /// ```
    /// use txq::{NetDev, Room};
    /// # use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
    /// # use txq::packet::PacketList;
    /// # struct Sink;
    /// # impl Driver for Sink {
    /// #     fn info(&self) -> DeviceInfo { DeviceInfo::new("sink") }
    /// #     fn open(&mut self, _: u16) -> std::io::Result<DriverQueue> {
    /// #         Ok(DriverQueue::new(Sink, NoCompletions))
    /// #     }
    /// # }
    /// # impl Transmit for Sink {
    /// #     fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
    /// #         cx.sent_all(batch);
    /// #         Status::Ok
    /// #     }
    /// # }
    /// # let driver = Sink;
    /// // 100,000 packets of 60 bytes a second, and a program that would send more.
    /// let dev = NetDev::builder(driver).start()?;
    /// dev.tc("qdisc replace root handle 1: tbf rate 48mbit burst 1600 limit 60000")?;
    /// dev.tc("qdisc replace parent 1:1 pfifo limit 1000")?;
    /// let mut sender = dev.sender("main");
    /// let mut left = 3000;
    /// while left > 0 {
    ///     match sender.wait_room(None) {
    ///         Room::Free => {}
    ///         // The queue stands still, or the device is down: do other work, and come back.
    ///         Room::Full | Room::Down => continue,
    ///         _ => break,
    ///     }
    ///     let packet = sender.packet(&[0; 60])?;
    ///     let _verdict = sender.xmit(packet);
    ///     left -= 1;
    /// }
    /// assert_eq!((left, sender.dropped()), (0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_room(&mut self, deadline: Option<Instant>) -> Room {
        self.0.wait_room(deadline.map(Instant::as_nanos))
    }

    /// As [`wait_room`](Sender::wait_room), for the txq of a flow.
    pub fn wait_room_on(&mut self, flow: &Flow, deadline: Option<Instant>) -> Room {
        self.0.wait_room_on(&flow.0, deadline.map(Instant::as_nanos))
    }

    /// As [`wait_room`](Sender::wait_room), for an event loop: does not sleep, but registers `waker` to be woken when there
    /// is room. A sender has one waker, the last one. Call again when it was woken, and after
    /// [`LONGEST_WAIT`](Sender::LONGEST_WAIT) in any case. The waker wakes a task, or makes a descriptor readable
    /// (`txq_device::EventFd::waker`). The thread that made room wakes it, in the data path of the device: it should be
    /// quick, and must not call the device.
    ///
    /// Never returns [`Room::Full`]: that is [`Poll::Pending`].
    pub fn poll_room(&mut self, waker: &Waker) -> Poll<Room> {
        self.0.poll_room(waker)
    }

    /// As [`poll_room`](Sender::poll_room), for the txq of a flow.
    pub fn poll_room_on(&mut self, flow: &Flow, waker: &Waker) -> Poll<Room> {
        self.0.poll_room_on(&flow.0, waker)
    }

    /// Returns how many packets this sender has added by cutting packets with segments, for a device that does not cut: a packet
    /// of n segments is counted as n packets handed in, which adds n - 1.
    pub fn added_by_cuts(&self) -> u64 {
        self.0.added_by_cuts()
    }

    /// Returns the pool that it allocates from.
    pub fn pool(&self) -> &Pool {
        Pool::from_ref(self.0.pool())
    }

    /// Returns the time on the clock that departure times use ([`Instant::now`]).
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.0.now())
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One flow, usable by any sender, one at a time. Its packets stay in order whichever thread sends them, as long as
/// reselection is off. Dropping a `Flow` leaves its packets on their way.
#[derive(Default)]
pub struct Flow(generic::Flow);

impl Flow {
    /// Creates a flow that has not sent anything.
    pub fn new() -> Self {
        Self(generic::Flow::new())
    }

    /// Returns how many packets were handed in and are neither dropped nor completed yet. Packets that end at this moment
    /// may still count.
    pub fn outstanding(&self) -> u64 {
        self.0.outstanding()
    }

    /// Returns the txq that its last packets went to (`sk_tx_queue_get`).
    pub fn txq(&self) -> Option<u16> {
        self.0.txq()
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The filters of the packets that a device has received, for the thread that receives them
/// ([`NetDev::ingress`](crate::NetDev::ingress)).
pub struct Ingress(pub(crate) generic::Ingress);

impl Ingress {
    /// Runs the ingress filters on packets that the device has received, in buffers of `sender`. Packets that go on stay in
    /// `batch`, in order; the others are dropped or redirected. Costs one load while there are no filters.
    #[inline]
    pub fn filter(&self, sender: &mut Sender, batch: &mut PacketList) {
        self.0.filter(&mut sender.0, &mut batch.0);
    }
}

impl fmt::Debug for Ingress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
