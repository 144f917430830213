//! Copies of packets. A copy counts for no sender (`qdisc/copying.rs`).

use std::ops::Range;
use std::ptr;

use crate::arch::{Arch, CellApi, Nanos};
use crate::drop::DropReason;
use crate::packet::Packet;
use crate::pool::slot::Body;
use crate::pool::{AllocError, Cache};

impl<A: Arch> Cache<A> {
    /// Copies a packet as [`copy`](Cache::copy) does, but as a packet of this sender, as if it had allocated and filled it.
    ///
    /// # Panics
    /// The packet does not have these bytes.
    #[doc(hidden)]
    #[inline(never)]
    pub fn copy_own(
        &mut self,
        of: &Packet<A>,
        head: usize,
        part: Range<usize>,
    ) -> Result<Packet<A>, AllocError> {
        let (head, part) = (&of.data()[..head], &of.data()[part]);
        let mut copy = self.alloc(head.len() + part.len())?;
        let data = copy.data_mut();
        data[..head.len()].copy_from_slice(head);
        data[head.len()..].copy_from_slice(part);
        let (_, flags, tstamp) = own_fields(of);
        of.body(|from| {
            copy.body_mut(|to| {
                let Body { hash, mark, priority, txq, network, transport, protocol, cookie, .. } = *from;
                (to.tstamp, to.hash, to.mark, to.priority) = (tstamp, hash, mark, priority);
                (to.txq, to.network, to.transport) = (txq, network, transport);
                (to.protocol, to.cookie, to.flags) = (protocol, cookie, flags);
            });
        });
        Ok(copy)
    }

    /// Copies a packet of this pool or another: its first `head` bytes, then the bytes of `part`, behind as much of its
    /// headroom as fits. The buffer comes from this cache, but the copy counts for no sender: no limit applies to it, and
    /// freeing it returns credit to no sender.
    ///
    /// # Panics
    /// The packet does not have these bytes.
    #[doc(hidden)]
    #[inline(never)]
    pub fn copy(&mut self, of: &Packet<A>, head: usize, part: Range<usize>) -> Result<Packet<A>, AllocError> {
        let (head, part) = (&of.data()[..head], &of.data()[part]);
        let len = head.len() + part.len();
        let space = self.store().space;
        if len > space {
            return Err(self.too_long(len));
        }
        if self.home().is_kicked() {
            self.empty_inbox();
        }
        if self.stack.is_empty() {
            self.restock(self.home().account().read())?;
        }
        let home = ptr::from_ref(self.shared.memory.homes.nobody(&self.shared.memory.store));
        let slot = self.stack.pop().expect("restocked");
        // SAFETY: a buffer on the stack is ours alone.
        let s = unsafe { slot.as_ref() };
        s.check.out(home);
        let (whole, flags, tstamp) = own_fields(of);
        of.body(|from| {
            s.body.with_mut(|b| {
                // SAFETY: as above.
                let b = unsafe { &mut *b };
                *b = Body {
                    data: b.data,
                    home,
                    stamp: 0,
                    off: from.off.min(u16::try_from(space - len).unwrap_or(u16::MAX)),
                    reason: DropReason::NotSpecified,
                    flags,
                    tstamp,
                    ..*from
                };
                if b.is_beyond() {
                    // The rest of the packet is beyond the copy's buffer, too.
                    b.gso_size = len.min(from.gso_size.into()) as u16;
                    b.len = whole;
                } else {
                    b.len = len as u32;
                }
                // SAFETY: `off + len` is within this buffer, which is not the packet's.
                unsafe {
                    let data = b.data.add(b.off.into());
                    ptr::copy_nonoverlapping(head.as_ptr(), data, head.len());
                    ptr::copy_nonoverlapping(part.as_ptr(), data.add(head.len()), part.len());
                }
            });
        });
        // SAFETY: the one handle to this buffer.
        Ok(unsafe { Packet::from_slot(slot) })
    }
}

/// Returns `len`, `flags` and `tstamp` of a copy of all of a packet: with the packet's own length, and not counted by a flow.
fn own_fields<A: Arch>(of: &Packet<A>) -> (u32, u8, Nanos) {
    let own = of.own();
    of.body(|b| {
        let (len, flags) = own.map_or((b.len, b.flags), |own| (own.len(), own.flags::<A>(b.flags)));
        (len, flags & !Body::<A>::COUNTED, b.tstamp & !Body::<A>::PKT_LEN)
    })
}
