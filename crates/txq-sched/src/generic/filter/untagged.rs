//! A frame's bytes without its VLAN tags. Offsets of u32, `cmp` and `nbyte` count in them: Linux takes the tag out of a frame that it
//! receives, so the bytes in front of the network header are the MAC addresses and the ethertype.

use std::iter::Chain;
use std::slice::Iter;

/// Bytes of the MAC addresses, which the tags follow.
const MAC_BYTES: usize = 12;

#[derive(Clone, Copy)]
pub(super) struct Untagged<'p> {
    /// The whole frame.
    data: &'p [u8],
    /// Bytes of the tags.
    tags: usize,
}

impl<'p> Untagged<'p> {
    pub(super) fn new(data: &'p [u8], tags: usize) -> Self {
        Self { data, tags }
    }

    /// Returns the bytes of the tags.
    pub(super) fn tags(&self) -> usize {
        self.tags
    }

    pub(super) fn len(&self) -> usize {
        self.data.len().saturating_sub(self.tags)
    }

    /// Returns `len` bytes from `start` on; `None` beyond the frame's end.
    pub(super) fn bytes(&self, start: usize, len: usize) -> Option<Chain<Iter<'p, u8>, Iter<'p, u8>>> {
        let end = start + len;
        let behind = |at: usize| at.max(MAC_BYTES) + self.tags;
        let head = self.data.get(start.min(MAC_BYTES)..end.min(MAC_BYTES))?;
        let tail = if end > MAC_BYTES { self.data.get(behind(start)..behind(end))? } else { &[] };
        Some(head.iter().chain(tail))
    }

    /// Returns the bytes from `start` on; those in front of the frame are 0. Returns `None` beyond the frame's end.
    #[inline]
    pub(super) fn array<const N: usize>(&self, start: i64) -> Option<[u8; N]> {
        if let Ok(start) = usize::try_from(start)
            && (self.tags == 0 || start >= MAC_BYTES)
        {
            let start = start + self.tags;
            return self.data.get(start..start + N)?.try_into().ok();
        }
        let mut array = [0; N];
        for (at, byte) in (start..).zip(&mut array) {
            if let Ok(at) = usize::try_from(at) {
                *byte = *self.bytes(at, 1)?.next()?;
            }
        }
        Some(array)
    }
}
