//! TUN and TAP: interfaces of the kernel whose wire is the program.
//!
//! The kernel receives the packets that the device sends, and a [`Receiver`] receives the packets that the kernel sends on
//! the interface. A TUN carries IP packets ([`Tun::create`]), a TAP Ethernet frames ([`Tun::create_tap`]). Each queue of the
//! interface is a txq and an rx queue. The kernel has no call for several packets, so a packet costs one `writev` or `readv`.
//! The kernel copies the packet, and the device keeps none.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | name, of [`Tun::create`] | | none | at most 15 bytes. The kernel completes `vpn%d`; an empty name is `tun%d` or `tap%d` |
//! | [`queues`](Config::queues) | | 1 | the number of queues, 1 to 256, each a txq and an rx queue |
//! | [`mtu`](Config::mtu) | bytes | the kernel's, 1500 | the longest IP packet |
//! | [`up`](Config::up) | | true | whether to bring the interface up |
//! | [`persistent`](Config::persistent) | | false | whether the interface stays when the program ends |
//! | [`attach`](Config::attach) | | false | whether the interface must exist |
//! | [`namespace`](Config::namespace) | | the thread's | the network namespace, by name or by path |
//! | [`owner`](Config::owner), [`group`](Config::group) | id | none | who may attach to the interface without CAP_NET_ADMIN |
//! | [`vnet_header`](Config::vnet_header) | | true | whether a virtio-net header precedes each packet; without it, senders cut packets with segments |
//! | [`gro`](Config::gro) | | false | whether the kernel passes packets of up to 64 KiB to the receivers, uncut |
//!
//! A tunnel: packets that the kernel routes into `vpn0` go through the program, which answers some of them.
//!
//! ```no_run
//! use std::time::Duration;
//! use txq::packet::PacketList;
//! use txq::receive::Receive;
//! use txq::NetDev;
//! use txq_device::Tun;
//!
//! // As root or with CAP_NET_ADMIN. `ip addr add 10.0.0.1/24 dev vpn0` gives the interface an address.
//! let tun = Tun::create("vpn0").queues(2).mtu(1420).open()?;
//! let mut receivers = tun.receivers();
//! let dev = NetDev::builder(tun).qdisc("mq").default_qdisc("fq_codel").start()?;
//! let mut sender = dev.sender("main");
//! let mut batch = PacketList::new();
//! loop {
//!     if receivers[0].receive(64, &mut sender, &mut batch)? == 0 {
//!         receivers[0].wait(Some(Duration::from_millis(100)))?;
//!     }
//!     // Here the program decrypts, answers or forwards; then it sends.
//!     let _verdict = sender.xmit_batch(&mut batch);
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The interface
//!
//! [`Config::open`] creates the interface, or attaches to an existing TUN or TAP of this name. An interface that it creates is
//! gone when the device and its receivers are dropped, or when the program is killed. A persistent one stays, and the next
//! start attaches to it; `ip link del` removes it. A persistent interface keeps its addresses and routes, its MTU unless the
//! options set another, and its kind: one queue attaches to any, several need an interface that was created with several
//! (`multi_queue`). Programs can share the queues of such an interface; one without `multi_queue` has one program.
//!
//! The error of a failed open says what is missing, and the command that helps: no `/dev/net/tun`, no permission, a name
//! that is too long, an interface in use by another program, of the other kind or with one queue. Nothing stays open after
//! an error.
//!
//! # Sending
//!
//! The kernel's answer decides about each packet, so the packets counted as sent are those that the interface counts
//! (`rx_packets`); the kernel counts a packet with segments as one.
//!
//! | the kernel's error | cause | the packet |
//! |---|---|---|
//! | `EAGAIN`, `ENOBUFS`, `ENOMEM` | a buffer or the memory is full | is refused, tried again soon |
//! | `EIO` | the interface is down | is refused, tried again in 10 ms, until it is up |
//! | `EMSGSIZE` | longer than the kernel's buffers | is dropped: [`DropReason::PktTooBig`] |
//! | `EBADFD`, `ENODEV` | the interface is removed; one created again is another | is dropped: [`DropReason::DevReady`] |
//! | anything else | | is dropped: [`DropReason::NotSpecified`] |
//!
//! The device drops some packets itself: one longer than the MTU and the Ethernet header ([`DropReason::PktTooBig`]; the
//! kernel would receive it), a frame shorter than its header ([`DropReason::HdrTrunc`]), and a packet of the other [`Link`] or,
//! on a TUN, one that is neither IPv4 nor IPv6 ([`DropReason::UnhandledProto`]). [`Transmit::finish`] returns the first error
//! of the table's last two lines.
//!
//! The kernel cuts a packet with segments ([`Packet::gso`]), TCP or UDP, where it leaves the machine. On the way to a local
//! socket it stays whole. A UDP packet that the kernel does not cut is cut by the device: before Linux 6.2, or with more than
//! 128 segments. The checksum of each segment is computed by the kernel. A packet that cannot be cut is dropped
//! ([`DropReason::PktTooBig`]).
//!
//! # Receiving
//!
//! [`Tun::receivers`] returns the receivers. A packet that is longer than a buffer is dropped and counted
//! ([`RxStats::too_long`]). The kernel drops packets that find the interface's queue full (`txqueuelen`, 500 for a
//! TUN and 1000 for a TAP) and counts them for the interface (`tx_dropped`), so [`RxStats::missed`] stays 0. The kernel chooses
//! the queue of a flow: the one that the flow's packets were last sent through, else by hash. An interface that is down has
//! no packets; one that is removed returns an error.
//!
//! With [`gro`](Config::gro) the kernel passes packets of up to 64 KiB, whose segments [`Packet::gso`] describes. Each packet
//! takes a buffer with room for 65553 bytes ([`PoolConfig::room`](txq::pool::PoolConfig::room)). The transport checksum of a
//! packet with segments is undefined; that of any other packet is complete.
//!
//! [`Transmit::finish`]: txq::driver::Transmit::finish
//! [`DropReason::PktTooBig`]: txq::drop::DropReason::PktTooBig
//! [`DropReason::HdrTrunc`]: txq::drop::DropReason::HdrTrunc
//! [`DropReason::DevReady`]: txq::drop::DropReason::DevReady
//! [`DropReason::UnhandledProto`]: txq::drop::DropReason::UnhandledProto
//! [`DropReason::NotSpecified`]: txq::drop::DropReason::NotSpecified
//! [`Packet::gso`]: txq::packet::Packet::gso
//! [`RxStats::too_long`]: txq::receive::RxStats::too_long
//! [`RxStats::missed`]: txq::receive::RxStats::missed

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use txq::driver::{DeviceInfo, Driver, DriverQueue, Link, NoCompletions};

use crate::sys::interface::Control;
use crate::watch::Watch;

mod cut;
mod ioctl;
mod open;
mod rx;
mod tx;

pub use rx::Receiver;

/// The kinds of interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tun,
    Tap,
}

impl Kind {
    /// Returns the kernel's word for the kind.
    fn word(self) -> &'static str {
        match self {
            Kind::Tun => "tun",
            Kind::Tap => "tap",
        }
    }

    /// Returns what the packets begin with.
    fn link(self) -> Link {
        match self {
            Kind::Tun => Link::Ip,
            Kind::Tap => Link::Ethernet,
        }
    }

    /// Returns the length of the link-layer header, in bytes.
    fn link_header(self) -> usize {
        match self {
            Kind::Tun => 0,
            Kind::Tap => 14,
        }
    }
}

/// Options of an interface.
#[derive(Debug, Clone)]
#[must_use = "`open` creates the interface"]
pub struct Config {
    name: String,
    kind: Kind,
    queues: u16,
    mtu: Option<u32>,
    up: bool,
    persistent: bool,
    must_exist: bool,
    namespace: Option<String>,
    owner: Option<u32>,
    group: Option<u32>,
    has_header: bool,
    gro: bool,
}

impl Config {
    fn new(name: &str, kind: Kind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            queues: 1,
            mtu: None,
            up: true,
            persistent: false,
            must_exist: false,
            namespace: None,
            owner: None,
            group: None,
            has_header: true,
            gro: false,
        }
    }

    /// Sets the number of queues, 1 to 256. Each is a txq and an rx queue.
    pub fn queues(self, queues: u16) -> Self {
        Self { queues, ..self }
    }

    /// Sets the longest IP packet, in bytes: 68 to 65535, for a TAP to 65521.
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu: Some(mtu), ..self }
    }

    /// Sets whether to bring the interface up, which is the default. False leaves it as it is; a new one is down, and
    /// refuses packets until `ip link set NAME up`.
    pub fn up(self, up: bool) -> Self {
        Self { up, ..self }
    }

    /// Sets whether the interface stays when the program ends. False does not remove an interface that was persistent
    /// before.
    pub fn persistent(self, persistent: bool) -> Self {
        Self { persistent, ..self }
    }

    /// Sets whether the interface must exist: then opening returns an error instead of creating it. A program without
    /// CAP_NET_ADMIN can attach to an interface that its user owns.
    pub fn attach(self, attach: bool) -> Self {
        Self { must_exist: attach, ..self }
    }

    /// Sets the network namespace: the name of one of `ip netns`, or a path such as `/proc/PID/ns/net`. Entering it takes
    /// CAP_SYS_ADMIN. The calling thread stays in its own.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Sets the user that may attach to the interface without CAP_NET_ADMIN.
    pub fn owner(self, uid: u32) -> Self {
        Self { owner: Some(uid), ..self }
    }

    /// Sets the group whose members may attach to the interface without CAP_NET_ADMIN.
    pub fn group(self, gid: u32) -> Self {
        Self { group: Some(gid), ..self }
    }

    /// Sets whether a virtio-net header of 10 bytes precedes each packet between the device and the kernel, which is the
    /// default. Without it the device takes no packets with segments, so senders cut them.
    pub fn vnet_header(self, vnet_header: bool) -> Self {
        Self { has_header: vnet_header, ..self }
    }

    /// Sets whether the kernel passes TCP and UDP packets of up to 64 KiB to the receivers, uncut. Their buffers must have
    /// room for 65553 bytes.
    pub fn gro(self, gro: bool) -> Self {
        Self { gro, ..self }
    }

    /// Creates the interface or attaches to it, and opens its queues.
    ///
    /// # Errors
    /// The text says what is wrong and which command helps; the kind is that of the kernel's error. Nothing stays open.
    pub fn open(&self) -> io::Result<Tun> {
        open::open(self)
    }
}

/// What all queues of an interface share.
#[derive(Debug)]
struct Interface {
    /// The name when it was opened.
    name: String,
    index: u32,
    kind: Kind,
    /// The MTU when it was opened.
    mtu: u32,
    /// Whether a virtio-net header precedes each packet.
    has_header: bool,
    gro: bool,
    control: Control,
}

impl Interface {
    /// Returns the present MTU, whatever the interface's name is now.
    fn mtu_now(&self) -> io::Result<u32> {
        self.control.mtu(&self.control.name(self.index)?)
    }
}

/// A TUN or TAP interface: the device. It is gone when the device and all its receivers are dropped, unless it is
/// persistent.
#[derive(Debug)]
pub struct Tun {
    interface: Arc<Interface>,
    queues: Vec<Arc<OwnedFd>>,
}

impl Tun {
    /// Returns options for an interface that carries IP packets.
    pub fn create(name: &str) -> Config {
        Config::new(name, Kind::Tun)
    }

    /// Returns options for an interface that carries Ethernet frames.
    pub fn create_tap(name: &str) -> Config {
        Config::new(name, Kind::Tap)
    }

    /// Returns the interface's name, as it was when it was opened.
    pub fn name(&self) -> &str {
        &self.interface.name
    }

    /// Returns the interface's index (`ip link`).
    pub fn index(&self) -> u32 {
        self.interface.index
    }

    /// Returns one receiver for each queue, in the order of the txqs. Each call returns receivers of the same queues.
    pub fn receivers(&self) -> Vec<Receiver> {
        let receiver = |(index, queue)| Receiver::new(Arc::clone(queue), Arc::clone(&self.interface), index);
        (0..).zip(&self.queues).map(receiver).collect()
    }

    /// Returns a watch of the interface, also if it is in another network namespace than the program.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn watch(&self) -> io::Result<Watch> {
        Ok(Watch::new(self.interface.control.try_clone()?, self.name()))
    }

    /// Sets whether the interface stays when the program ends.
    pub fn set_persistent(&self, persistent: bool) -> io::Result<()> {
        ioctl::set(&self.queues[0], ioctl::Value::Persist, persistent.into())
    }
}

impl Driver for Tun {
    fn info(&self) -> DeviceInfo {
        let Interface { name, mtu, kind, has_header, .. } = &*self.interface;
        let info = DeviceInfo::new(name.clone()).txqs(self.queues.len() as u16).mtu(*mtu);
        info.link(kind.link()).gso(*has_header).checksum(*has_header)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let Some(queue) = self.queues.get(usize::from(txq)) else {
            let what = format!("interface \"{}\" has {} queues: open fewer", self.name(), self.queues.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        };
        let tx = tx::Tx::new(Arc::clone(queue), Arc::clone(&self.interface));
        Ok(DriverQueue::new(tx, NoCompletions))
    }
}
