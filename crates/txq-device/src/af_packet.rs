//! A network interface, through AF_PACKET sockets: a device that works on every Linux, with any driver.
//!
//! Each txq has a raw socket, bound to the interface. `sendmmsg` sends up to 64 frames. The kernel copies them, so a packet
//! is sent when the call returns, and the device keeps none.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `ifname` of [`AfPacket::open`] | | none | the interface, of the calling thread's network namespace; Ethernet or loopback |
//! | `txqs` of [`AfPacket::open`] | | none | the number of sockets, one a txq |
//! | [`gso`](AfPacket::gso) | | false | whether the kernel cuts packets with segments; then nothing bypasses its qdisc |
//! | [`blocks`](AfPacket::blocks) | | false | whether receivers get frames in blocks of shared memory, which takes less CPU time and adds a millisecond |
//! | [`bypass`](AfPacket::bypass) | | true | whether frames bypass the interface's qdisc in the kernel, because txq's is in front of it |
//!
//! The MTU is the interface's. A socket's send buffer is 8 MiB with CAP_NET_ADMIN, else what `net.core.wmem_max` allows.
//!
//! ```no_run
//! use txq::NetDev;
//! use txq_device::AfPacket;
//!
//! // As root or with CAP_NET_RAW.
//! let mut dev = NetDev::builder(AfPacket::open("eth0", 4)?).qdisc("mq").default_qdisc("fq").start()?;
//! let mut sender = dev.sender("main");
//! let packet = sender.packet(b"a frame, from its Ethernet header on")?;
//! let _verdict = sender.xmit(packet);
//! // An error says that the interface is gone, or refused a packet for no known reason.
//! dev.shutdown()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`AfPacket::open`] returns an error if the interface does not exist or is not Ethernet, or without CAP_NET_RAW. Its text says
//! what to do. Afterwards the kernel's answer decides about each packet, so the packets counted as sent are exactly those
//! that the interface counts (`tx_packets`):
//!
//! | the kernel's error | cause | the packet |
//! |---|---|---|
//! | `ENOBUFS` | the interface's ring or qdisc is full, or its peer is down | is refused, tried again soon |
//! | `EAGAIN`, `ENOMEM` | the socket's buffer or the memory is full | is refused, tried again soon |
//! | `ENETDOWN` | the interface is down | is refused, tried again in 10 ms, until it is up |
//! | `EMSGSIZE` | longer than the MTU plus a header | is dropped: [`DropReason::PktTooBig`] |
//! | `EINVAL` | shorter than an Ethernet header | is dropped: [`DropReason::HdrTrunc`] |
//! | `ENXIO`, `ENODEV` | the interface is gone for good | is dropped: [`DropReason::DevReady`] |
//! | anything else | | is dropped: [`DropReason::NotSpecified`] |
//!
//! [`Transmit::finish`] returns the first error of the last two kinds. `sendmmsg` returns the number of frames sent before
//! an error, and not the error; so the next call begins with the refused frame, to get its errno.
//!
//! Packets with segments are cut by the sender, or with [`gso`](AfPacket::gso) by the kernel. What nobody can cut is dropped
//! ([`DropReason::PktTooBig`]).
//!
//! # Receiving
//!
//! [`AfPacket::receivers`] opens sockets that get a copy of each frame that comes in; the kernel's own stack gets the frame as
//! well. Each frame goes to one of the sockets, by its flow. The VLAN tag that the kernel takes off is put back, and checksums
//! that the sender's kernel left to a card are computed. A frame with segments ([`Packet::gso`]) stays whole if it fits into a
//! buffer of the pool; a longer one is cut, so a pool of ordinary buffers is enough. Each carries the time at which the kernel received
//! it if [`record_times`](txq::receive::Receive::record_times) asks for that.
//!
//! | counter | frames |
//! |---|---|
//! | [`RxStats::missed`](txq::receive::RxStats::missed) | for which the socket had no room, because nobody received in time |
//! | [`RxStats::too_long`](txq::receive::RxStats::too_long) | longer than a buffer, which cannot be cut |
//! | [`RxStats::malformed`](txq::receive::RxStats::malformed) | whose missing checksum lies outside the frame |

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::PacketList;
#[cfg(doc)]
use txq::{Sender, packet::Packet};

use crate::backoff::Backoff;
use crate::vnet::Vnet;

mod blocks;
mod receive;
mod recv;
mod socket;

pub use receive::Receiver;
use socket::{Interface, SEND_BATCH, Socket};

/// Send buffer of a socket, in bytes of frames with the kernel's overhead.
const SEND_BUFFER: libc::c_int = 8 << 20;
/// Longest time until a retry when the socket's buffer is full.
const RETRY_SOCKET: Duration = Duration::from_micros(200);
/// Time until a retry on an interface that is down.
const RETRY_DOWN: Duration = Duration::from_millis(10);
/// Length of an Ethernet header.
const ETHER_HEADER: usize = 14;

/// The device.
#[derive(Debug, Clone)]
pub struct AfPacket {
    ifname: String,
    txqs: u16,
    bypass: bool,
    gso: bool,
    blocks: bool,
    interface: Interface,
    /// A socket for each txq. Opened with the interface, in the network namespace in which its index counts; the thread that
    /// starts the device may be in another one.
    sockets: Arc<Mutex<Vec<OwnedFd>>>,
}

impl AfPacket {
    /// Opens the interface `ifname` of the calling thread's network namespace, with `txqs` sockets. It may be down.
    ///
    /// # Errors
    /// When there is no such interface, it is not Ethernet, or the process may not send on it.
    pub fn open(ifname: &str, txqs: u16) -> io::Result<Self> {
        let fail = |error: io::Error, what: String| Err(io::Error::new(error.kind(), what));
        let interface = match Interface::find(ifname) {
            Ok(interface) => interface,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENAMETOOLONG)) => {
                let remedy = "`ip link` lists the interfaces of this network namespace";
                return fail(error, format!("there is no interface \"{ifname}\": {remedy}"));
            }
            Err(error) => {
                let what = format!("interface \"{ifname}\" cannot be asked for ({error}): check its name");
                return fail(error, what);
            }
        };
        if !matches!(interface.hardware, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
            let kind = interface.hardware;
            let remedy = "use one that `ip link` shows as link/ether";
            let what = format!("interface \"{ifname}\" is not Ethernet (its link type is {kind}): {remedy}");
            return Err(io::Error::new(ErrorKind::Unsupported, what));
        }
        let sockets = (0..txqs).map(|_| socket::open()).collect::<io::Result<Vec<_>>>();
        let sockets = sockets.map_err(|error| {
            let what = match error.kind() {
                ErrorKind::PermissionDenied => format!(
                    "sending on interface \"{ifname}\" is not permitted: run as root, or give the program CAP_NET_RAW \
                     (`setcap cap_net_raw+ep PROGRAM`)"
                ),
                _ => format!(
                    "no AF_PACKET socket for interface \"{ifname}\" ({error}): does the kernel have AF_PACKET?"
                ),
            };
            io::Error::new(error.kind(), what)
        })?;
        let sockets = Arc::new(Mutex::new(sockets));
        Ok(Self {
            ifname: ifname.to_owned(),
            txqs,
            bypass: true,
            gso: false,
            blocks: false,
            interface,
            sockets,
        })
    }

    /// Returns whether the interface was up when it was opened. Packets for one that is down wait until it is up.
    pub fn is_up(&self) -> bool {
        self.interface.up
    }

    /// Sets whether frames bypass the interface's qdisc in the kernel, which they do by default. A program that wants the
    /// kernel's qdisc as well passes false.
    #[must_use]
    pub fn bypass(mut self, bypass: bool) -> Self {
        self.bypass = bypass;
        self
    }

    /// Sets whether the kernel cuts packets with segments and computes the checksums of [`Sender::fill_checksum`], or the
    /// interface's hardware does (`PACKET_VNET_HDR`). By default the sender does both. Each frame then has a header of ten bytes in
    /// front, which the kernel reads, and passes through the kernel's qdisc, behind which the kernel cuts.
    #[must_use]
    pub fn gso(mut self, gso: bool) -> Self {
        self.gso = gso;
        self
    }

    /// Sets whether [`receivers`](AfPacket::receivers) get frames in blocks of memory that the kernel shares (`TPACKET_V3`), if the
    /// kernel has memory for them, which takes less CPU time a frame. The kernel hands a block over when it is full or a millisecond old,
    /// so frames that come alone are late by that. On a busy machine it drops some frames although blocks are free, and
    /// counts them as missed. Off by default.
    #[must_use]
    pub fn blocks(mut self, blocks: bool) -> Self {
        self.blocks = blocks;
        self
    }
}

impl Driver for AfPacket {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new(self.ifname.clone())
            .txqs(self.txqs)
            .mtu(self.interface.mtu)
            .gso(self.gso)
            .checksum(self.gso)
    }

    fn open(&mut self, _txq: u16) -> io::Result<DriverQueue> {
        let opened = self.sockets.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut socket = Socket::bind(opened.map_or_else(socket::open, Ok)?, self.interface)?;
        if self.gso {
            socket.with_vnet()?;
        }
        // With the bypass the kernel cuts nothing for an interface that cannot, and refuses the packet for ever.
        if self.bypass && !self.gso {
            socket.bypass_qdisc()?;
        }
        socket.set_send_buffer(SEND_BUFFER)?;
        let tx =
            Tx { socket, gso: self.gso, ifname: self.ifname.clone(), retry: Backoff::new(), error: None };
        Ok(DriverQueue::new(tx, NoCompletions))
    }
}

struct Tx {
    socket: Socket,
    /// Whether the kernel cuts packets.
    gso: bool,
    ifname: String,
    retry: Backoff,
    /// The first error to report.
    error: Option<io::Error>,
}

impl Tx {
    /// Decides about the first packet of `batch`, which the kernel refused with `error`: drops it, or returns when to retry.
    fn refused(&mut self, error: io::Error, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Option<Status> {
        let busy = |after| Some(Status::Busy { retry: Some(after) });
        let reason = match error.raw_os_error() {
            Some(libc::ENOBUFS) => return busy(self.retry.after(Backoff::BOUND)),
            Some(libc::EAGAIN | libc::ENOMEM) => return busy(self.retry.after(RETRY_SOCKET)),
            Some(libc::ENETDOWN) => return busy(RETRY_DOWN),
            Some(libc::EMSGSIZE) => DropReason::PktTooBig,
            Some(libc::EINVAL) if batch.front().is_some_and(|p| p.len() < ETHER_HEADER) => {
                DropReason::HdrTrunc
            }
            Some(libc::ENXIO | libc::ENODEV) => {
                self.note(error, "is gone: its packets are dropped");
                while let Some(packet) = batch.pop_front() {
                    cx.drop(packet, DropReason::DevReady);
                }
                return None;
            }
            _ => {
                self.note(error, "does not take a packet, which is dropped");
                DropReason::NotSpecified
            }
        };
        if let Some(packet) = batch.pop_front() {
            cx.drop(packet, reason);
        }
        None
    }

    /// Prepares the packets with segments, and drops those that the kernel cannot cut.
    fn prepare(&self, batch: &mut PacketList, cx: &mut TxCx<'_>) {
        let mut all = PacketList::new();
        all.append(batch);
        while let Some(mut packet) = all.pop_front() {
            if packet.segs() == 1 || (self.gso && Vnet::prepare(&mut packet)) {
                batch.push_back(packet);
            } else {
                cx.drop(packet, DropReason::PktTooBig);
            }
        }
    }

    fn note(&mut self, error: io::Error, what: &str) {
        let text = || format!("interface \"{}\" {what} ({error}): see `ip -s link` and dmesg", self.ifname);
        if self.error.is_none() {
            self.error = Some(io::Error::new(error.kind(), text()));
        }
    }
}

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let mut sent = PacketList::new();
        if batch.segs() != batch.len() as u64 {
            self.prepare(batch, cx);
        }
        while !batch.is_empty() {
            let frames = batch.iter().take(SEND_BATCH);
            match self.socket.send(frames.map(|packet| (Vnet::of(packet).unwrap_or_default(), packet.data())))
            {
                Ok(n) => {
                    self.retry.reset();
                    batch.move_front(n, &mut sent);
                    cx.sent_all(&mut sent);
                }
                Err(error) => {
                    if let Some(busy) = self.refused(error, batch, cx) {
                        return busy;
                    }
                }
            }
        }
        Status::Ok
    }

    fn finish(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }
}
