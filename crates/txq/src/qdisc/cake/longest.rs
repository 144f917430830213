//! Which of all queues has the most bytes.
//!
//! Asked only beyond the memory limit, so what each packet pays is a store and a comparison. A block of queues promises
//! that none of them has more than it says. The block that may have the longest is looked through, and then again the
//! next, until one holds what it promises. A promise is made by a push, and looking makes it true: a push pays for one look.

/// Queues that are looked through at a time.
const BLOCK: usize = 64;

/// The bytes of all queues.
#[derive(Debug)]
pub(super) struct Longest {
    bytes: Box<[u32]>,
    tops: Box<[u32]>,
}

impl Longest {
    pub(super) fn new(queues: usize) -> Self {
        Self { bytes: vec![0; queues].into(), tops: vec![0; queues.div_ceil(BLOCK)].into() }
    }

    /// A queue has so many bytes now.
    #[inline]
    pub(super) fn set(&mut self, queue: usize, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.bytes[queue] = bytes;
        let top = &mut self.tops[queue / BLOCK];
        *top = bytes.max(*top);
    }

    /// The longest queue; `queue` if none is longer.
    pub(super) fn find(&mut self, queue: usize) -> usize {
        loop {
            let (block, &may) = self.tops.iter().enumerate().max_by_key(|&(_, &top)| top).unwrap_or((0, &0));
            if may <= self.bytes[queue] {
                return queue;
            }
            let start = block * BLOCK;
            let end = (start + BLOCK).min(self.bytes.len());
            let bytes = &self.bytes[start..end];
            let most = bytes.iter().fold(0, |most, &bytes| most.max(bytes));
            self.tops[block] = most;
            if most == may {
                return start + bytes.iter().position(|&bytes| bytes == most).unwrap_or_default();
            }
        }
    }
}
