//! Senders: a thread's handle on a device, its packets, its flows, and its waits for room.

mod room;
mod tail;

use std::ffi::c_char;

use libc::size_t;
use txq::packet::{Packet, PacketList};
use txq::pool::AllocError;
use txq::qdisc::Verdict;
use txq::{Flow, Sender};
use txq_device::udp::Datagram;

use crate::device::{self, txq_dev};
use crate::error::{Error, Result, TXQ_E_LIMIT, TXQ_E_NO_BUFFER, border};
use crate::handle::{Handle, Value};
use crate::slab::Slab;
use crate::strings::{Sized32, array, check_array, check_size, size_error, text};

pub use room::{txq_sender_poll_room, txq_sender_room_fd, txq_sender_wait_credit, txq_sender_wait_room};
pub use tail::{txq_packet_put, txq_packet_tailroom};

/// The device has accepted the packets. Only counters show a later drop.
pub const TXQ_SUCCESS: i32 = 0;
/// The device has accepted some packets, or dropped others to make room.
pub const TXQ_CONGESTED: i32 = 1;
/// The device has dropped all packets.
pub const TXQ_DROPPED: i32 = 2;

/// A thread's handle on a device, with a stock of buffers of its own.
pub struct txq_sender {
    _handle: Handle<Sending>,
}

/// A flow whose packets stay in order whichever sender sends them.
pub struct txq_flow {
    _handle: Handle<FlowValue>,
}

/// A packet that a sender has allocated, and what the device needs to know of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct txq_packet {
    /// sizeof(struct txq_packet). Set by the program in the first element of an array.
    pub size: u32,
    /// The packet's length. The program may make it smaller; `txq_packet_put` makes it larger.
    pub len: u32,
    /// The bytes to fill; what they hold before is undefined. They are the program's until the packet is sent or discarded.
    pub data: *mut u8,
    /// The packet's number. The program must not change it.
    pub id: u64,
    /// The earliest departure time on the clock of `txq_now`; 0 for as soon as possible.
    pub departure: u64,
    /// The priority: a band, or a class, as TXQ_CLASS(1, 0x10) for 1:10.
    pub priority: u32,
    /// The mark that fw filters match.
    pub mark: u32,
    /// The flow's hash; 0 to hash the packet's headers.
    pub hash: u32,
    /// The type of service of a packet of a udp: device (DSCP and ECN), up to 255; other devices ignore it.
    pub tos: u32,
    /// The payload bytes of each segment, if the packet is to be cut; 0 if not.
    pub gso_size: u32,
    /// The number of segments that the packet is cut into; 0 and 1 for none.
    pub segments: u32,
}

// SAFETY: `repr(C)`, of numbers and a raw pointer, and `size` is the first field.
unsafe impl Sized32 for txq_packet {
    const NAME: &'static str = "struct txq_packet";
}

/// The sender, and the packets that the program is filling.
pub(crate) struct Sending {
    sender: Sender,
    held: Slab<Packet>,
    datagram: Option<Datagram>,
    room: Option<room::RoomFd>,
}

impl Value for Sending {
    const TAG: u32 = 0x7478_7104;
    const NAME: &'static str = "txq_sender";
    const OF_PROCESS: bool = true;
}

struct FlowValue(Flow);

impl Value for FlowValue {
    const TAG: u32 = 0x7478_7105;
    const NAME: &'static str = "txq_flow";
    const OF_PROCESS: bool = true;
}

#[inline]
fn with<R>(sender: *mut txq_sender, f: impl FnOnce(&mut Sending) -> Result<R>) -> Result<R> {
    // A `txq_sender` is nothing but its handle.
    Handle::with(sender.cast::<Handle<Sending>>(), f)
}

fn verdict(verdict: Verdict) -> i32 {
    match verdict {
        Verdict::Success => TXQ_SUCCESS,
        Verdict::Congested => TXQ_CONGESTED,
        Verdict::Drop => TXQ_DROPPED,
    }
}

fn no_buffer(error: AllocError) -> Error {
    match error {
        AllocError::Exhausted { .. } | AllocError::Reserved { .. } => {
            Error::new(TXQ_E_NO_BUFFER, error.to_string())
        }
        AllocError::Limit { .. } => Error::new(TXQ_E_LIMIT, error.to_string()),
        error => Error::invalid(error.to_string()),
    }
}

impl Sending {
    /// Puts the headers of a datagram in front of a payload, if the device needs them.
    #[inline]
    fn finish(&self, packet: &mut Packet, tos: u32) -> Result<()> {
        let Some(datagram) = &self.datagram else { return Ok(()) };
        let pushed = datagram.tos(tos as u8).push(packet);
        pushed.ok_or_else(|| {
            Error::invalid("the headroom is too small for IP and UDP headers: use 48 bytes or more")
        })
    }

    /// Checks a packet that the program hands in.
    #[inline]
    fn check(&self, index: usize, packet: &txq_packet) -> Result<()> {
        if packet.size != txq_packet::SIZE {
            return Err(size_error::<txq_packet>(packet.size));
        }
        let held = self.held.get(packet.id);
        let wrong = match held {
            None => "is none of this sender: it was sent or discarded before, or belongs to another sender",
            Some(held) if packet.len as usize > held.len() => "is longer than it was allocated",
            Some(held) if self.datagram.is_some_and(|d| held.headroom() < d.header_len()) => {
                "has less headroom than IP and UDP headers need: set headroom to 48 or more"
            }
            _ if self.datagram.is_some_and(|d| packet.len as usize + d.header_len() > u16::MAX.into()) => {
                "is longer than a datagram may be"
            }
            _ if packet.gso_size > u16::MAX.into() || packet.segments > u16::MAX.into() => {
                "has too many segments"
            }
            _ if packet.tos > 255 => "has a tos above 255",
            _ => return Ok(()),
        };
        Err(Error::invalid(format!("packet {index} {wrong}")))
    }

    fn check_all(&self, packets: &[txq_packet]) -> Result<()> {
        packets.iter().enumerate().try_for_each(|(index, packet)| self.check(index, packet))
    }

    /// Moves the program's packets to a list.
    fn list(&mut self, packets: &[txq_packet]) -> Result<PacketList> {
        self.check_all(packets)?;
        let mut list = PacketList::new();
        for given in packets {
            // A number that stands twice in the array names a packet only once.
            let Some(mut packet) = self.held.take(given.id) else { continue };
            // A new packet has its whole length, and zeros: most programs leave most of them.
            if given.len as usize != packet.len() {
                packet.truncate(given.len as usize);
            }
            if given.departure != 0 {
                packet.set_departure(given.departure);
            }
            if given.priority | given.mark != 0 {
                packet.set_priority(given.priority);
                packet.set_mark(given.mark);
            }
            if given.hash != 0 {
                packet.set_hash(given.hash);
            }
            if given.segments > 1 {
                packet.set_gso(given.gso_size as u16, given.segments as u16);
            }
            self.finish(&mut packet, given.tos)?;
            list.push_back(packet);
        }
        Ok(list)
    }
}

/// Creates a sender of a device; `name` is its name in reports. Returns NULL for an error.
///
/// Threads: any; not in a callback. One thread at a time uses a sender; it may be another one at each call. For speed, give
/// each thread a sender of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sender_new(dev: *mut txq_dev, name: *const c_char) -> *mut txq_sender {
    border(|| {
        // SAFETY: the caller passes a text with a NUL.
        let name = unsafe { text(name, "the name") }?;
        device::with_outside(dev, |dev| {
            let (sender, datagram) = (dev.net().sender(name), dev.datagram());
            let held = Slab::with_capacity(64);
            Ok(Handle::create(Sending { sender, held, datagram, room: None }).cast())
        })
    })
}

/// Frees a sender; NULL is allowed. Packets that it has sent stay on their way; packets that the program still fills are freed.
/// Returns 0.
///
/// Threads: any, while no other thread uses the sender; also after the thread that used it has ended, and after the device was
/// freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sender_free(sender: *mut txq_sender) -> i32 {
    border(|| {
        drop(Handle::take(sender.cast::<Handle<Sending>>())?);
        Ok(0)
    })
}

/// Allocates up to `n` packets of `len` bytes for the program to fill. Writes them to `packets`, whose first element's `size`
/// must be set. All other fields are written, those after `id` with 0. Returns how many, at least 1, or TXQ_E_NO_BUFFER or
/// TXQ_E_LIMIT. Each packet must be given to `txq_xmit` or `txq_sender_discard`.
///
/// Threads: the one that uses the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sender_alloc(
    sender: *mut txq_sender,
    packets: *mut txq_packet,
    n: size_t,
    len: size_t,
) -> i64 {
    border(|| {
        check_array(packets, n, "the array of packets")?;
        with(sender, |sending| {
            if n == 0 {
                return Ok(0);
            }
            // SAFETY: the caller sets the first element's size.
            unsafe { check_size(packets, "the array of packets") }?;
            let mut list = PacketList::new();
            sending.sender.alloc_batch(n, len, &mut list).map_err(no_buffer)?;
            let mut written = 0;
            while let Some(mut packet) = list.pop_front() {
                let data = packet.data_mut().as_mut_ptr();
                let id = sending.held.insert(packet);
                let packet = txq_packet {
                    size: txq_packet::SIZE,
                    len: len as u32,
                    data,
                    id,
                    departure: 0,
                    priority: 0,
                    mark: 0,
                    hash: 0,
                    tos: 0,
                    gso_size: 0,
                    segments: 0,
                };
                // SAFETY: a list of at most `n` packets, so within the caller's array.
                unsafe { packets.add(written).write(packet) };
                written += 1;
            }
            Ok(written as i64)
        })
    })
}

/// Sends `n` packets of `txq_sender_alloc`, in order within each flow. Returns TXQ_SUCCESS, TXQ_CONGESTED or TXQ_DROPPED; the
/// library has the packets in any of these cases. An error has taken none.
///
/// Threads: the one that uses the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_xmit(sender: *mut txq_sender, packets: *const txq_packet, n: size_t) -> i32 {
    border(|| {
        // SAFETY: the caller passes an array of `n` packets.
        let packets = unsafe { array(packets, n, "the array of packets") }?;
        with(sender, |sending| {
            let mut list = sending.list(packets)?;
            Ok(verdict(sending.sender.xmit_batch(&mut list)))
        })
    })
}

/// As `txq_xmit`, for packets of one flow: they stay in order with all earlier packets of the flow, also those that other
/// senders have sent.
///
/// Threads: the one that uses the sender; the flow may be used by one thread at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_xmit_on(
    sender: *mut txq_sender,
    flow: *mut txq_flow,
    packets: *const txq_packet,
    n: size_t,
) -> i32 {
    border(|| {
        // SAFETY: the caller passes an array of `n` packets.
        let packets = unsafe { array(packets, n, "the array of packets") }?;
        with(sender, |sending| {
            Handle::with(flow.cast::<Handle<FlowValue>>(), |flow| {
                let mut list = sending.list(packets)?;
                Ok(verdict(sending.sender.xmit_batch_on(&mut flow.0, &mut list)))
            })
        })
    })
}

/// Frees packets of `txq_sender_alloc` without sending them. Returns 0.
///
/// Threads: the one that uses the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sender_discard(
    sender: *mut txq_sender,
    packets: *const txq_packet,
    n: size_t,
) -> i32 {
    border(|| {
        // SAFETY: the caller passes an array of `n` packets.
        let packets = unsafe { array(packets, n, "the array of packets") }?;
        with(sender, |sending| {
            sending.check_all(packets)?;
            packets.iter().for_each(|packet| drop(sending.held.take(packet.id)));
            Ok(0)
        })
    })
}

/// Sends a copy of `len` bytes as one packet. Returns TXQ_SUCCESS, TXQ_CONGESTED or TXQ_DROPPED, or an error such as
/// TXQ_E_NO_BUFFER, which has sent nothing.
///
/// Threads: the one that uses the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_send(sender: *mut txq_sender, data: *const u8, len: size_t) -> i32 {
    border(|| {
        // SAFETY: the caller passes `len` bytes.
        let data: &[u8] = unsafe { array(data, len, "the data") }?;
        with(sender, |sending| {
            let mut packet = sending.sender.packet(data).map_err(no_buffer)?;
            sending.finish(&mut packet, 0)?;
            Ok(verdict(sending.sender.xmit(packet)))
        })
    })
}

/// Limits the packets that the sender may have on their way (SO_SNDBUF, counted in packets). At the limit, allocation fails
/// with TXQ_E_LIMIT. Returns 0.
///
/// Threads: the one that uses the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sender_set_limit(sender: *mut txq_sender, packets: u64) -> i32 {
    border(|| {
        with(sender, |sending| {
            sending.sender.set_limit(packets);
            Ok(0)
        })
    })
}

/// Returns how many packets of the sender are known to be dropped so far.
///
/// Threads: the one that uses the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sender_dropped(sender: *mut txq_sender) -> i64 {
    border(|| with(sender, |sending| Ok(sending.sender.dropped() as i64)))
}

/// Creates a flow, for programs that serve many connections on one thread, or hand them from thread to thread. Returns NULL for
/// an error.
///
/// Threads: any. One thread at a time uses a flow.
#[unsafe(no_mangle)]
pub extern "C" fn txq_flow_new() -> *mut txq_flow {
    border(|| Ok(Handle::create(FlowValue(Flow::new())).cast()))
}

/// Frees a flow; NULL is allowed. Its packets stay on their way. Returns 0.
///
/// Threads: the one that uses the flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_flow_free(flow: *mut txq_flow) -> i32 {
    border(|| {
        drop(Handle::take(flow.cast::<Handle<FlowValue>>())?);
        Ok(0)
    })
}

/// Returns how many packets of the flow were handed in and are neither dropped nor completed yet.
///
/// Threads: the one that uses the flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_flow_outstanding(flow: *mut txq_flow) -> i64 {
    border(|| Handle::with(flow.cast::<Handle<FlowValue>>(), |flow| Ok(flow.0.outstanding() as i64)))
}
