//! A network interface, through AF_XDP sockets: packets go to the driver from the pool's own buffers.
//!
//! Each txq has a socket on one queue of the interface. The pool is the sockets' shared memory (UMEM), so the kernel reads
//! packets where they lie. In zero-copy mode the card reads them there. In copy mode, which works with every driver, the
//! kernel copies each into a buffer of its own; this is still faster than [`AfPacket`](crate::AfPacket). The kernel's qdisc,
//! `tc` and packet filters are bypassed.
//!
//! | field of [`AfXdpConfig`] | unit | default | |
//! |---|---|---|---|
//! | [`ifname`](AfXdpConfig::ifname) | | none | the interface, of the calling thread's network namespace; Ethernet or loopback |
//! | [`queues`](AfXdpConfig::queues) | | none | the number of queues, one a txq |
//! | [`first_queue`](AfXdpConfig::first_queue) | | 0 | the interface's queue of txq 0 |
//! | [`ring`](AfXdpConfig::ring) | packets | 2048 | room on each ring, a power of two from 64 to 65536 |
//! | [`mode`](AfXdpConfig::mode) | | none | zero-copy or copy. None: zero-copy if driver and pool allow it |
//! | [`receive`](AfXdpConfig::receive) | | false | whether the device receives, too |
//! | [`attach`](AfXdpConfig::attach) | | none | where the XDP program for receiving runs. None: in the driver if it can |
//! | [`checksum`](AfXdpConfig::checksum) | | true | whether the kernel or the card may compute checksums |
//! | [`horizon`](AfXdpConfig::horizon) | time | 0 | how long before its departure time a packet goes to a card that keeps it until then |
//!
//! ```no_run
//! use txq::NetDev;
//! use txq::pool::Pool;
//! use txq_device::AfXdp;
//!
//! // As root or with CAP_NET_RAW.
//! let pool = Pool::new(&AfXdp::pool_config(16384))?;
//! let device = AfXdp::open("eth0", 4, &pool)?;
//! println!("{:?}", device.mode());
//! let mut dev = NetDev::builder(device).pool(pool).qdisc("mq").default_qdisc("fq").start()?;
//! let mut sender = dev.sender("main");
//! let packet = sender.packet(b"a frame, from its Ethernet header on")?;
//! let _verdict = sender.xmit(packet);
//! // An error says that the interface is gone.
//! dev.shutdown()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A forwarder receives into the same pool, and sends on without a copy:
//!
//! ```no_run
//! # use std::time::Duration;
//! use txq::NetDev;
//! use txq::packet::PacketList;
//! use txq::pool::Pool;
//! use txq::receive::Receive;
//! use txq_device::{AfXdp, AfXdpConfig};
//!
//! let pool = Pool::new(&AfXdp::pool_config(16384))?;
//! let mut device = AfXdpConfig { receive: true, ..AfXdpConfig::new("eth0", 1) }.open(&pool)?;
//! let mut receiver = device.receivers().remove(0);
//! let dev = NetDev::builder(device).pool(pool).qdisc("fq_codel").start()?;
//! let (mut sender, mut batch) = (dev.sender("echo"), PacketList::new());
//! loop {
//!     if receiver.receive(64, &mut sender, &mut batch)? == 0 {
//!         receiver.wait(Some(Duration::from_millis(100)))?;
//!     }
//!     let _ = sender.xmit_batch(&mut batch);
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The pool
//!
//! The device registers the pool that [`AfXdp::open`] gets; give the builder the same one
//! ([`Builder::pool`](txq::netdev::Builder::pool)). A packet of another pool is copied into a buffer of the device's pool,
//! and completes when the copy does. All memory of the pool is locked, also that of buffers beyond its size
//! ([`PoolConfig::max_buffers`]), and counts against `ulimit -l` without CAP_IPC_LOCK.
//!
//! Any pool can send. To receive, buffers must be 2048 bytes apart or more; [`AfXdp::pool_config`] is large enough. Zero-copy
//! mode needs huge pages ([`Backing::HugePages`](txq::pool::Backing::HugePages)), because packets cross pages; with other
//! memory the device falls back to copy mode. Some drivers send in zero-copy mode only while an XDP program is attached, as
//! [`AfXdpConfig::receive`] does. The longest frame is that of a buffer, at most 4096 bytes, and for receiving
//! 256 bytes less.
//!
//! # Errors
//!
//! [`AfXdp::open`] returns an error if the interface does not exist, is not Ethernet or has too few queues, if another program
//! uses a queue, if a permission is missing or the limit of locked memory too low. Its text says what to do. A queue whose
//! program has just ended is busy for some milliseconds; `open` waits for up to 1 s. Afterwards:
//!
//! | event | the packet |
//! |---|---|
//! | longer than the present MTU plus a header, or than a buffer; GSO | is dropped: [`DropReason::PktTooBig`] |
//! | shorter than an Ethernet header | is dropped: [`DropReason::HdrTrunc`] |
//! | the interface is down (`ENETDOWN`) | waits in the ring and the qdisc; tried again each 10 ms, until it is up |
//! | the interface has lost its carrier (`EBUSY`) | the same, but the first one is dropped by the interface |
//! | the interface's ring or its peer's is full (`EAGAIN`, `ENOBUFS`) | waits in the ring, tried again soon |
//! | the interface is gone (`ENXIO`) | is dropped: [`DropReason::DevReady`] |
//!
//! [`Transmit::finish`](txq::driver::Transmit::finish) returns the last kind. The kernel reports nothing else about a frame. So
//! the packets counted as sent are those that the interface counts as `tx_packets` and `tx_dropped`, and those that were in
//! the ring when the interface went.
//!
//! Byte queue limits are on in zero-copy mode and on interfaces with hardware, where packets wait for a wire.
//!
//! # Checksums and departure times
//!
//! A frame can have metadata in front of it (Linux 6.11), which asks for two things. [`AfXdp::offloads`] says which of them there are:
//!
//! | | in copy mode | in zero-copy mode |
//! |---|---|---|
//! | [`Offloads::checksum`]: the checksum of [`Sender::fill_checksum`](txq::Sender::fill_checksum), and those of the segments of such a packet | the kernel computes it, or leaves it to the card as for its own packets | if the card does it (`tx-checksum`) |
//! | [`Offloads::launch_time`]: the departure time ([`Packet::departure`](txq::packet::Packet::departure)) | no: the kernel sends past its qdiscs, which alone would wait | if the card does it (`tx-launch-time-fifo`), and with a [`horizon`](AfXdpConfig::horizon) |
//!
//! Without the first the sender computes checksums, and without the second the qdisc keeps packets until their time. With it, fq hands
//! them down early (`offload_horizon`), as times of `CLOCK_TAI`: PTP must set the card's clock to it. The pool's headroom must be at
//! least 24 bytes, and a buffer at least 24 bytes longer than its room, as with [`AfXdp::pool_config`]. A packet that has used up its
//! headroom is copied.
//!
//! # Receiving
//!
//! [`AfXdp::receivers`] returns one [`Receiver`] a queue. The device attaches an XDP program to the interface, which hands
//! the frames of the queues with a receiver to it, and all other frames to the kernel. When the last receiver is dropped or
//! the process ends in any way, the kernel detaches the program. Receiving needs CAP_NET_ADMIN and CAP_BPF, and Linux 5.9.
//!
//! A frame is received as it lies in the driver's buffer. A VLAN tag that the card has taken off is lost: `ethtool -K eth0
//! rxvlan off` leaves the tag in place. A checksum that a veth's peer has left out is missing: `ethtool -K PEER tx off` makes
//! the peer compute it. A frame longer than a buffer counts as missed. The kernel tells no time of reception.
//!
//! A receiver that must not wait for a wakeup polls before it sleeps ([`BusyPoll`](txq::receive::BusyPoll)): a check of the ring, and a
//! call that lets the kernel poll the card's queue in this thread (`SO_PREFER_BUSY_POLL`, with CAP_NET_ADMIN and Linux 5.11). For that
//! the card's interrupts must be deferred: `echo 2 > /sys/class/net/eth0/napi_defer_hard_irqs` and `echo 200000 >
//! /sys/class/net/eth0/gro_flush_timeout`.
//!
//! [`DropReason::PktTooBig`]: txq::drop::DropReason::PktTooBig
//! [`DropReason::HdrTrunc`]: txq::drop::DropReason::HdrTrunc
//! [`DropReason::DevReady`]: txq::drop::DropReason::DevReady

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use txq::driver::{DeviceInfo, Driver, DriverQueue};
use txq::pool::{Pool, PoolConfig};
use txq_core::sync::spsc;

mod complete;
mod explain;
mod interface;
mod metadata;
mod program;
mod queue;
mod receive;
mod rings;
mod socket;
mod transmit;
mod umem;

pub use metadata::Offloads;
pub use receive::Receiver;

use complete::Done;
use interface::Interface;
use program::Program;
use queue::{Queue, Setup};
use socket::Flags;
use transmit::Tx;
use umem::Umem;

use crate::sys::netdev;

/// How packets get from the pool to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The card reads and writes the pool's buffers.
    ZeroCopy,
    /// The kernel copies between the pool's buffers and its own. Works with every driver.
    Copy,
}

/// Where the XDP program for receiving runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attach {
    /// In the driver, before the kernel has made a packet buffer (`xdpdrv`).
    Driver,
    /// Behind the driver (`xdpgeneric`). Works with every driver.
    Generic,
}

/// The configuration of the device. Write `..AfXdpConfig::new(..)` last: a later version may have more fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// The interface's name, in the calling thread's network namespace.
    pub ifname: String,
    /// Number of queues to use: the device's txqs.
    pub queues: u16,
    /// The interface's queue of txq 0; the others follow.
    pub first_queue: u16,
    /// Number of packets that each ring holds.
    pub ring: u32,
    /// Zero-copy or copy; `None` for zero-copy if the driver and the pool's memory allow it, else copy.
    pub mode: Option<Mode>,
    /// Whether the device receives, too.
    pub receive: bool,
    /// Where the XDP program runs; `None` for the driver if it can, else generic.
    pub attach: Option<Attach>,
    /// Whether the kernel or the card may compute checksums.
    pub checksum: bool,
    /// How long before its departure time a packet goes to a card that keeps it until then; zero for never.
    pub horizon: Duration,
}

impl AfXdpConfig {
    /// Returns the configuration of a device that sends on the first `queues` queues of an interface.
    pub fn new(ifname: impl Into<String>, queues: u16) -> Self {
        Self {
            ifname: ifname.into(),
            queues,
            first_queue: 0,
            ring: 2048,
            mode: None,
            receive: false,
            attach: None,
            checksum: true,
            horizon: Duration::ZERO,
        }
    }

    /// Opens the device, with `pool` as its memory. The interface may be down.
    ///
    /// # Errors
    /// When the interface or a queue cannot be used, a permission is missing, or the pool does not fit. See the
    /// [module](self).
    pub fn open(&self, pool: &Pool) -> io::Result<AfXdp> {
        let interface = Interface::find(&self.ifname).map_err(|error| explain::find(&self.ifname, error))?;
        explain::check(&interface, self)?;
        let umem = Umem::new(pool, self.receive)?;
        let mode = match self.mode {
            Some(Mode::ZeroCopy) if !umem.is_contiguous() => return Err(explain::not_contiguous(&umem)),
            Some(Mode::ZeroCopy) => libc::XDP_ZEROCOPY,
            None if umem.is_contiguous() => 0,
            _ => libc::XDP_COPY,
        };
        let flags = Flags { mode, need_wakeup: true };
        let metadata = (self.checksum || !self.horizon.is_zero()) && umem.has_space(metadata::LEN);
        let setup = Setup { size: self.ring, receive: self.receive, metadata, flags };
        let interface = Arc::new(interface);
        let mut queues: Vec<Arc<Queue>> = Vec::new();
        for index in (u32::from(self.first_queue)..).take(self.queues.into()) {
            let queue = Queue::open(&interface, &umem, index, &setup, queues.first().map(|first| &**first))
                .map_err(|failed| explain::open(&interface, &umem, self, index, failed))?;
            queues.push(Arc::new(queue));
        }
        let offloads = self.offloads(&queues[0]);
        let mut device = AfXdp {
            mode: if queues[0].zero_copy { Mode::ZeroCopy } else { Mode::Copy },
            ring: self.ring,
            offloads,
            horizon: if offloads.launch_time { self.horizon } else { Duration::ZERO },
            attached: None,
            receivers: Vec::new(),
            queues: queues.into(),
            interface,
        };
        if self.receive {
            device.attach(self, pool)?;
        }
        Ok(device)
    }

    /// Returns which of the wanted offloads there are. In copy mode the kernel itself computes checksums, or leaves them to the
    /// card as it does for its own packets, and does not hold frames back. In zero-copy mode the card does both or nobody.
    fn offloads(&self, queue: &Queue) -> Offloads {
        if !queue.metadata {
            return Offloads::default();
        }
        let of_card =
            if queue.zero_copy { netdev::xsk_features(queue.interface.index).unwrap_or(0) } else { 0 };
        Offloads {
            checksum: self.checksum && (!queue.zero_copy || of_card & netdev::TX_CHECKSUM != 0),
            launch_time: !self.horizon.is_zero() && of_card & netdev::TX_LAUNCH_TIME != 0,
        }
    }
}

/// The device.
#[derive(Debug)]
pub struct AfXdp {
    mode: Mode,
    ring: u32,
    offloads: Offloads,
    /// Zero unless the card keeps packets until their departure.
    horizon: Duration,
    attached: Option<Attach>,
    receivers: Vec<Receiver>,
    /// The queues that are not yet opened as txqs.
    queues: VecDeque<Arc<Queue>>,
    interface: Arc<Interface>,
}

impl AfXdp {
    /// The buffers of a queue that stay for sending, unless that is more than half of them.
    #[doc(hidden)]
    pub const SENDING_BUFFERS: u32 = 512;

    /// Opens the first `queues` queues of an interface for sending, with the defaults of [`AfXdpConfig`].
    ///
    /// # Errors
    /// As for [`AfXdpConfig::open`].
    pub fn open(ifname: &str, queues: u16, pool: &Pool) -> io::Result<Self> {
        AfXdpConfig::new(ifname, queues).open(pool)
    }

    /// Returns the configuration of a pool that fits the device: `buffers` buffers for frames of up to 1856 bytes, sent and
    /// received. Each queue needs at least as many buffers as its ring has slots, and to receive, too, twice as many or 512
    /// more.
    pub fn pool_config(buffers: u32) -> PoolConfig {
        umem::pool_config(buffers)
    }

    /// Returns the mode in use.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns what the kernel or the card does for the packets that are sent.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Returns where the XDP program runs; `None` if the device does not receive.
    pub fn attached(&self) -> Option<Attach> {
        self.attached
    }

    /// Returns the receivers of all queues, in order; none if the device does not receive, or at a second call.
    pub fn receivers(&mut self) -> Vec<Receiver> {
        std::mem::take(&mut self.receivers)
    }

    fn attach(&mut self, config: &AfXdpConfig, pool: &Pool) -> io::Result<()> {
        let entries = u32::from(config.first_queue) + u32::from(config.queues);
        let program = Program::attach(self.interface.index, entries, config.attach)
            .map_err(|failed| explain::attach(&config.ifname, config.attach, failed))?;
        let program = Arc::new(program);
        self.attached = Some(program.attached);
        let each = pool.buffers() / u32::from(config.queues);
        let keep = (each / 2).max(each.saturating_sub(AfXdp::SENDING_BUFFERS)).clamp(1, config.ring);
        let receiver = |queue: &Arc<Queue>| Receiver::new(queue.clone(), program.clone(), keep);
        self.receivers = self.queues.iter().map(receiver).collect();
        Ok(())
    }
}

impl Driver for AfXdp {
    fn info(&self) -> DeviceInfo {
        let name = self.interface.name.clone();
        DeviceInfo::new(name)
            .txqs(self.queues.len() as u16)
            .mtu(self.interface.mtu)
            .checksum(self.offloads.checksum)
    }

    fn pacing_horizon(&self) -> Duration {
        self.horizon
    }

    fn open(&mut self, _txq: u16) -> io::Result<DriverQueue> {
        let queue = self.queues.pop_front().ok_or(io::ErrorKind::NotFound)?;
        let (originals, waiting) = spsc::ring(self.ring);
        let tx = Tx::new(queue.clone(), originals, self.offloads);
        Ok(DriverQueue::new(tx, Done::new(queue, waiting)).ring(self.ring))
    }
}
