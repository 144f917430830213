use std::ptr;

use proptest::prelude::*;

use super::*;

/// Bytes of a block here, and their number.
const SMALL: usize = 512;
const FEW: usize = 3;

/// A ring on ordinary memory, and the kernel's side of it.
struct Memory {
    base: *mut [u128; SMALL * FEW / 16],
    /// The block that the kernel fills next.
    next: usize,
}

impl Memory {
    fn new() -> (Self, Ring) {
        let base = Box::into_raw(Box::new([0; SMALL * FEW / 16]));
        let first = NonNull::new(base.cast::<u8>()).unwrap();
        // SAFETY: as large, and freed only when `Memory` is dropped, after the ring's last use.
        (Self { base, next: 0 }, unsafe { Ring::new(first, SMALL, FEW) })
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        // SAFETY: within the memory, which lives as long as `self`.
        unsafe { &*self.base.cast::<u8>().add(block * SMALL + STATUS_AT).cast() }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        // SAFETY: the tests write within a block that is the kernel's.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.base.cast::<u8>().add(self.next * SMALL + at),
                bytes.len(),
            )
        };
    }

    /// Fills the next block with frames, as the kernel does; returns false if it is the program's.
    fn fill(&mut self, frames: &[Vec<u8>]) -> bool {
        if self.status(self.next).load(Acquire) != KERNEL {
            return false;
        }
        let word = |at, value: usize| self.write(at, &(value as u32).to_ne_bytes());
        word(NUM_FRAMES_AT, frames.len());
        word(FIRST_FRAME_AT, 48);
        let mut at = 48;
        for frame in frames {
            let begin = FRAME_HEADER_BYTES + 32;
            let next = (begin + frame.len()).next_multiple_of(16);
            word(at + NEXT_AT, next);
            word(at + SECONDS_AT, 1);
            word(at + NANOSECONDS_AT, frame.len());
            word(at + SNAPLEN_AT, frame.len());
            word(at + LEN_AT, frame.len());
            word(at + FLAGS_AT, 0);
            self.write(at + MAC_AT, &(begin as u16).to_ne_bytes());
            self.write(at + begin - vnet::LEN, &[0; vnet::LEN]);
            self.write(at + begin, frame);
            at += next;
        }
        self.hand_over();
        true
    }

    fn hand_over(&mut self) {
        self.status(self.next).store(USER, Release);
        self.next = (self.next + 1) % FEW;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: from a box, and the ring is not used any more.
        drop(unsafe { Box::from_raw(self.base) });
    }
}

#[test]
fn frames_come_in_order_block_after_block() {
    let (mut memory, mut ring) = Memory::new();
    let mut expected = Vec::new();
    for round in 0..20u8 {
        let frames: Vec<Vec<u8>> = (0..round % 4).map(|n| vec![round; usize::from(n) * 9 + 1]).collect();
        assert!(memory.fill(&frames));
        expected.extend(frames);
        // Each second round leaves its frames to the next one.
        if round % 2 == 0 {
            continue;
        }
        for frame in expected.drain(..) {
            let found = ring.peek().expect("a frame");
            assert_eq!((found.data, found.len), (&frame[..], frame.len()));
            assert_eq!(found.notes.time, Some(1_000_000_000 + frame.len() as u64));
            ring.pop();
        }
        assert!(ring.peek().is_none());
        assert!(!ring.is_filled());
    }
}

#[test]
fn a_block_is_the_programs_until_its_last_frame_is_taken() {
    let (mut memory, mut ring) = Memory::new();
    for _ in 0..FEW {
        assert!(memory.fill(&[vec![1], vec![2]]));
    }
    assert!(!memory.fill(&[vec![3]]), "all blocks are the program's");
    ring.peek().unwrap();
    ring.pop();
    assert!(!memory.fill(&[vec![3]]));
    ring.peek().unwrap();
    ring.pop();
    assert!(memory.fill(&[vec![3]]));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 20 } else { 1000 }, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Under Miri a read outside of the memory is an error.
    #[test]
    fn a_block_of_nonsense_leads_nowhere(words in prop::collection::vec((0..SMALL / 4, nonsense()), 0..20)) {
        let (mut memory, mut ring) = Memory::new();
        prop_assert!(memory.fill(&[vec![1], vec![2]]));
        memory.next = 0;
        for (at, word) in words {
            if at * 4 != STATUS_AT {
                memory.write(at * 4, &word.to_ne_bytes());
            }
        }
        let mut bytes = 0;
        for _ in 0..100 {
            let Some(frame) = ring.peek() else { break };
            bytes += frame.data.iter().map(|&byte| usize::from(byte)).sum::<usize>();
            ring.pop();
        }
        prop_assert!(bytes <= 100 * SMALL * 255);
    }

    /// The orderings: under Miri a missing one is a data race.
    #[test]
    fn frames_cross_between_threads(lens in prop::collection::vec(0..40usize, 1..10)) {
        let (memory, ring) = Memory::new();
        let (mut kernel, mut program) = (Side(memory), Side(ring));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for len in &lens {
                    while !kernel.get().fill(&[vec![7; *len]]) {
                        std::thread::yield_now();
                    }
                }
            });
            scope.spawn(|| {
                for len in &lens {
                    while !program.get().is_filled() {
                        std::thread::yield_now();
                    }
                    assert_eq!(program.get().peek().expect("a frame").data, vec![7; *len]);
                    program.get().pop();
                }
            });
        });
    }
}

/// One side of the ring, for the thread that has it.
struct Side<T>(T);

// SAFETY: the memory belongs to both sides, which keep to the protocol.
unsafe impl<T> Send for Side<T> {}

impl<T> Side<T> {
    fn get(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Returns a length or an offset: small, at the end of the block, or any.
fn nonsense() -> impl Strategy<Value = u32> {
    prop_oneof![0..64u32, SMALL as u32 - 64..SMALL as u32 + 64, any::<u32>()]
}
