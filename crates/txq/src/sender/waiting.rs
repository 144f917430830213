//! Waits of a sender: for a buffer, for credit, for room; as a thread or as a task.

use std::fmt;
use std::task::{Poll, Waker};

use super::{Flow, Room, Sender, WaitError};
use crate::Instant;
use crate::generic;
use crate::packet::{Packet, PacketList};
use crate::qdisc::Verdict;

/// Why a packet was not sent, and the packet.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct SendError {
    /// The packet.
    pub packet: Packet,
    /// Why it was not sent.
    pub error: WaitError,
}

impl SendError {
    fn of(error: generic::SendError) -> Self {
        Self { packet: Packet(error.packet), error: error.error }
    }
}

impl fmt::Debug for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").field("packet", &self.packet).field("error", &self.error).finish()
    }
}

impl Sender {
    /// Waits until the sender has a buffer and credit for it; returns a packet of `len` bytes to fill.
    ///
    /// Senders that wait get buffers in the order in which they began to wait. Each free buffer goes to the first of them,
    /// and no sender that does not wait takes one meanwhile, except from its own stock. At the sender's
    /// [limit](Sender::set_limit) the wait lasts until half of the limit is free. Packets that the caller holds count against
    /// the limit, so it should send or drop them first.
    ///
    /// Dropping the future gives up the sender's place. The wait may last for ever if the program holds all buffers, or idle
    /// senders have the free ones: each keeps up to [`CACHE_SIZE`](crate::pool::CACHE_SIZE) until its next call.
    ///
    /// # Errors
    /// [`WaitError::Alloc`] if `len` is longer than a buffer. [`WaitError::Down`] and [`WaitError::Gone`] if the sender would
    /// have to wait, and the device is down or ends.
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// # use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
    /// # use txq::packet::PacketList;
    /// # use txq::{NetDev, pool::PoolConfig};
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
    /// // 8000 packets of 125 bytes a second, and buffers for 16.
    /// let pool = PoolConfig { buffers: 16, ..PoolConfig::default() };
    /// let dev = NetDev::builder(driver).pool_config(pool).qdisc("tbf rate 8mbit burst 1600 limit 60000").start()?;
    /// let mut sender = dev.sender("task");
    /// let task = async move {
    ///     for _ in 0..100 {
    ///         let mut packet = sender.buffer(125).await?;
    ///         packet.data_mut().fill(0);
    ///         let _verdict = sender.send(packet).await?;
    ///     }
    ///     Ok::<_, Box<dyn std::error::Error>>(sender.dropped())
    /// };
    /// # let mut task = pin!(task);
    /// # let dropped = loop {
    /// #     if let Poll::Ready(done) = task.as_mut().poll(&mut Context::from_waker(Waker::noop())) { break done? }
    /// #     std::thread::yield_now();
    /// # };
    /// // An executor runs the task; `dropped` is its result.
    /// assert_eq!(dropped, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn buffer(&mut self, len: usize) -> Result<Packet, WaitError> {
        self.0.buffer(len).await.map(Packet)
    }

    /// As [`buffer`](Sender::buffer), for a thread: sleeps until the sender has a buffer and credit, or until `deadline` on
    /// the clock of [`now`](Sender::now). Inside a driver, qdisc or completion it does not sleep: the buffer may wait for the
    /// caller.
    ///
    /// # Errors
    /// As [`buffer`](Sender::buffer), and [`WaitError::Deadline`].
    pub fn wait_buffer(&mut self, len: usize, deadline: Option<Instant>) -> Result<Packet, WaitError> {
        self.0.wait_buffer(len, deadline.map(Instant::as_nanos)).map(Packet)
    }

    /// As [`buffer`](Sender::buffer), for a task that polls: if there is no buffer or no credit, registers `waker` to be
    /// woken when the next call may succeed. A sender has one waker, the last one. It keeps its place among the senders that
    /// wait until it has a buffer, or until [`stop_waiting`](Sender::stop_waiting).
    ///
    /// Hand in the packets that you hold before: they count against the limit. If this thread hands them in after the call
    /// and the device completes them at once, `waker` is not woken; poll again then.
    ///
    /// The thread that frees a buffer wakes the waker, in the data path of a device: the waker should be quick, and must not
    /// call the device.
    ///
    /// # Errors
    /// As [`buffer`](Sender::buffer).
    pub fn poll_buffer(&mut self, len: usize, waker: &Waker) -> Poll<Result<Packet, WaitError>> {
        self.0.poll_buffer(len, waker).map_ok(Packet)
    }

    /// Gives up what [`poll_buffer`](Sender::poll_buffer), [`poll_credit`](Sender::poll_credit) and
    /// [`poll_room`](Sender::poll_room) wait for, and drops their wakers. A buffer or a wake that the sender has got
    /// meanwhile goes to the next sender that waits.
    pub fn stop_waiting(&mut self) {
        self.0.stop_waiting();
    }

    /// Waits until the [limit](Sender::set_limit) allows an allocation: until half of the limit is free, if the sender has
    /// reached it.
    ///
    /// # Errors
    /// [`WaitError::Down`] and [`WaitError::Gone`] if the sender would have to wait, and the device is down or ends.
    pub async fn credit(&mut self) -> Result<(), WaitError> {
        self.0.credit().await
    }

    /// As [`credit`](Sender::credit), for a task that polls: registers `waker` if the sender has no credit. A sender has one
    /// waker, the last one. The thread that frees packets wakes it, as [`poll_buffer`](Sender::poll_buffer) says.
    ///
    /// # Errors
    /// As [`credit`](Sender::credit).
    pub fn poll_credit(&mut self, waker: &Waker) -> Poll<Result<(), WaitError>> {
        self.0.poll_credit(waker)
    }

    /// Waits until the sender has credit, and then until its queue has room. A packet that is allocated and sent next finds
    /// both, as far as is known.
    ///
    /// # Errors
    /// [`WaitError::Down`] and [`WaitError::Gone`] if the device is down or has ended.
    pub async fn ready(&mut self) -> Result<(), WaitError> {
        self.0.ready().await
    }

    /// Waits until the queue that this sender's packets go to has room, as [`wait_room`](Sender::wait_room) does, but
    /// without a limit in time: a qdisc of the program's own that misreports its backlog may keep the task waiting. Never
    /// returns [`Room::Full`].
    pub async fn room(&mut self) -> Room {
        self.0.room().await
    }

    /// As [`room`](Sender::room), for the txq of a flow.
    pub async fn room_on(&mut self, flow: &Flow) -> Room {
        self.0.room_on(&flow.0).await
    }

    /// Waits until the queue has room for the packet, then sends it as [`xmit`](Sender::xmit) does: the only sender of a device
    /// loses no packet for want of room, whatever the limits of its qdiscs count. Returns the verdict.
    ///
    /// Limits in packets, bytes and memory hold the sender, of the qdisc, of its bands, classes and flows. The packet waits for
    /// the queue that it would join: a full class holds no packet of another class. It has its buffer and its credit already.
    ///
    /// These packets are lost, and the verdict or [`dropped`](Sender::dropped) says so:
    ///
    /// - A packet for which another sender has used up the room meanwhile.
    /// - A packet that does not fit into the empty queue, because it is longer than the limit.
    /// - A packet that a law drops (RED, CoDel, PIE, a policer, netem's loss): more room would not help.
    /// - A packet that netem passes on, after its delay, to a qdisc below that is full then.
    /// - A packet to which a filter of `egress` gives another priority or txq: the sender asks about the old one.
    /// - A packet that the driver refuses where there is no qdisc (noqueue) to put it back.
    ///
    /// A [qdisc of the program's own](crate::qdisc::Shortcuts::has_room) says whether it has room.
    ///
    /// Dropping the future before it is complete drops the packet, and sends nothing. A packet with segments, for a device that
    /// does not cut them, is sent segment by segment, so that some may have been sent then.
    ///
    /// # Errors
    /// [`SendError`] returns the packet if the device is down or has ended.
    pub async fn send(&mut self, packet: Packet) -> Result<Verdict, SendError> {
        self.0.send(packet.0).await.map_err(SendError::of)
    }

    /// As [`send`](Sender::send), for a packet of a flow ([`xmit_on`](Sender::xmit_on)).
    ///
    /// # Errors
    /// As [`send`](Sender::send).
    pub async fn send_on(&mut self, flow: &mut Flow, packet: Packet) -> Result<Verdict, SendError> {
        self.0.send_on(&mut flow.0, packet.0).await.map_err(SendError::of)
    }

    /// As [`send`](Sender::send), for a list ([`xmit_batch`](Sender::xmit_batch)): sends as many packets at a time as have room,
    /// until the list is empty. Returns [`Verdict::Congested`] if some packets were dropped and some were not.
    ///
    /// Dropping the future before it is complete leaves the packets that were not sent on the list.
    ///
    /// # Errors
    /// [`WaitError::Down`] and [`WaitError::Gone`]; the list keeps the packets that were not sent.
    pub async fn send_batch(&mut self, batch: &mut PacketList) -> Result<Verdict, WaitError> {
        self.0.send_batch(&mut batch.0).await
    }
}
