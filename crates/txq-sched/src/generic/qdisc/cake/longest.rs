//! Finds the queue with the most bytes.
//!
//! The search runs only beyond the memory limit, so each packet pays a store and a comparison. Each block of queues keeps
//! an upper bound of their lengths. The search scans the block with the highest bound and sets the bound to the exact
//! maximum, until a bound was exact. Only a push raises a bound, and a scan makes it exact, so each push pays for at most
//! one scan.

/// The number of queues in a block.
const QUEUES_PER_BLOCK: usize = 64;

/// The lengths of all queues.
#[derive(Debug)]
pub(super) struct Longest {
    /// The number of queues.
    queues: usize,
    /// The length of each queue ([`Tin::size_of`](super::flows::Tin::size_of)). Both tables are empty before the first packet.
    bytes: Box<[u32]>,
    /// An upper bound of the lengths in each block.
    tops: Box<[u32]>,
}

impl Longest {
    pub(super) fn new(queues: usize) -> Self {
        Self { queues, bytes: Box::default(), tops: Box::default() }
    }

    /// Sets the length of a queue.
    #[inline]
    pub(super) fn set(&mut self, queue: usize, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if self.bytes.is_empty() {
            if bytes == 0 {
                return;
            }
            self.allocate();
        }
        self.bytes[queue] = bytes;
        let top = &mut self.tops[queue / QUEUES_PER_BLOCK];
        *top = bytes.max(*top);
    }

    #[cold]
    fn allocate(&mut self) {
        self.bytes = vec![0; self.queues].into();
        self.tops = vec![0; self.queues.div_ceil(QUEUES_PER_BLOCK)].into();
    }

    /// Returns the longest queue; `queue` if no other is longer.
    pub(super) fn find(&mut self, queue: usize) -> usize {
        if self.bytes.is_empty() {
            return queue;
        }
        loop {
            let (block, &may) = self.tops.iter().enumerate().max_by_key(|&(_, &top)| top).unwrap_or((0, &0));
            if may <= self.bytes[queue] {
                return queue;
            }
            let start = block * QUEUES_PER_BLOCK;
            let end = (start + QUEUES_PER_BLOCK).min(self.bytes.len());
            let bytes = &self.bytes[start..end];
            let most = bytes.iter().fold(0, |most, &bytes| most.max(bytes));
            self.tops[block] = most;
            if most == may {
                return start + bytes.iter().position(|&bytes| bytes == most).unwrap_or_default();
            }
        }
    }
}
