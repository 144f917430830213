//! Growing a packet at its end: for the tag of an AEAD, a checksum, padding.

use libc::size_t;
use txq::packet::Packet;

use super::{Sending, txq_packet, txq_sender, with};
use crate::error::{Error, Result, border};
use crate::slab::Slab;
use crate::strings::check_size;

/// Returns how many bytes the packet can grow by from the length that the program has set. The packet was checked.
fn tailroom(held: &Slab<Packet>, given: &txq_packet) -> usize {
    held.get(given.id).map_or(0, |packet| packet.tailroom() + packet.len() - given.len as usize)
}

/// Checks a packet of the sender; returns a copy of the struct.
///
/// # Safety
/// `packet` is null or points to a `txq_packet`.
unsafe fn checked(sending: &Sending, packet: *const txq_packet) -> Result<txq_packet> {
    // SAFETY: the caller's promise.
    unsafe { check_size(packet, "the packet") }?;
    // SAFETY: its size is right.
    let given = unsafe { packet.read() };
    sending.check(0, &given)?;
    Ok(given)
}

/// Returns the number of bytes that `txq_packet_put` can append to a packet of `txq_sender_alloc`: what its `len` is shorter than
/// the longest packet (the key room), and the key tailroom. It may be up to 127 bytes more, because buffers are whole cache lines.
///
/// Threads: the one that uses the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_packet_tailroom(sender: *mut txq_sender, packet: *const txq_packet) -> i64 {
    border(|| {
        with(sender, |sending| {
            // SAFETY: the caller passes a packet.
            let given = unsafe { checked(sending, packet) }?;
            Ok(tailroom(&sending.held, &given) as i64)
        })
    })
}

/// Grows a packet of `txq_sender_alloc` at its end by `n` bytes (`skb_put`): adds `n` to its `len`, and returns the first of the
/// new bytes, which are the program's to fill and undefined before. `data` does not change. Returns NULL if `n` is more than
/// `txq_packet_tailroom`, and for an error.
///
/// Threads: the one that uses the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_packet_put(
    sender: *mut txq_sender,
    packet: *mut txq_packet,
    n: size_t,
) -> *mut u8 {
    border(|| {
        with(sender, |sending| {
            // SAFETY: the caller passes a packet.
            let given = unsafe { checked(sending, packet) }?;
            let free = tailroom(&sending.held, &given);
            let Some(held) = sending.held.get_mut(given.id).filter(|_| n <= free) else {
                let remedy = "allocate shorter packets, or set the key tailroom";
                return Err(Error::invalid(format!(
                    "the packet has {free} bytes behind it, not {n}: {remedy}"
                )));
            };
            let before = given.len as usize;
            held.truncate(before);
            let end = held.put(n).map(|end| end.as_mut_ptr());
            let end = end.ok_or_else(|| Error::invalid("the packet cannot grow"))?;
            // SAFETY: checked above to be the caller's `txq_packet`.
            unsafe { (*packet).len = (before + n) as u32 };
            Ok(end)
        })
    })
}
