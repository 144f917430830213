use std::collections::VecDeque;
use std::thread;

use proptest::prelude::*;

use super::*;

/// A ring on ordinary memory, in place of the kernel's.
struct Memory {
    ring: Ring<u64>,
    cursors: *mut [AtomicU32; 3],
    slots: *mut [u64],
}

impl Memory {
    /// Returns an empty ring whose cursors stand at `start`.
    fn new(size: u32, start: u32) -> Self {
        let cursors = [start, start, 0].map(AtomicU32::new);
        let cursors = Box::into_raw(Box::new(cursors));
        let slots = Box::into_raw(vec![u64::MAX; size as usize].into_boxed_slice());
        // SAFETY: within the array just allocated.
        let at = |i| NonNull::new(unsafe { cursors.cast::<AtomicU32>().add(i) }).unwrap();
        let first = NonNull::new(slots.cast::<u64>()).unwrap();
        // SAFETY: `Memory` frees both only when it is dropped, after the sides.
        let ring = unsafe { Ring::new(at(0), at(1), at(2), first, size) };
        Self { ring, cursors, slots }
    }

    fn sides(&self) -> (Producer<u64>, Consumer<u64>) {
        // SAFETY: each test takes the two sides once.
        unsafe { (Producer::new(self.ring), Consumer::new(self.ring)) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: both came from boxes, and the sides are not used any more.
        unsafe {
            drop(Box::from_raw(self.cursors));
            drop(Box::from_raw(self.slots));
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Push(u8),
    PublishPushed,
    Pop(u8),
    PublishPopped,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..12u8).prop_map(Step::Push),
        Just(Step::PublishPushed),
        (1..12u8).prop_map(Step::Pop),
        Just(Step::PublishPopped),
    ]
}

/// Runs the steps on a ring and on a model: three queues, of values pushed, published, and popped but not yet returned.
fn compare(size: u32, start: u32, steps: &[Step]) {
    let memory = Memory::new(size, start);
    let (mut producer, mut consumer) = memory.sides();
    let (mut pushed, mut published, mut popped) = (VecDeque::new(), VecDeque::new(), 0);
    let mut next = 0;
    for &step in steps {
        match step {
            Step::Push(n) => {
                for _ in 0..n {
                    let room = size as usize - pushed.len() - published.len() - popped;
                    assert!(producer.room(u32::MAX) as usize == room);
                    assert_eq!(producer.push(next), room > 0);
                    if room > 0 {
                        pushed.push_back(next);
                        assert_eq!(producer.filled(producer.head().wrapping_sub(1)), next);
                        next += 1;
                    }
                }
            }
            Step::PublishPushed => {
                producer.publish();
                published.append(&mut pushed);
                assert_eq!(memory.ring.produced(), start.wrapping_add(next as u32));
            }
            Step::Pop(n) => {
                for _ in 0..n {
                    assert_eq!(consumer.peek(), published.front().copied());
                    let value = published.pop_front();
                    popped += usize::from(value.is_some());
                    assert_eq!(consumer.pop(), value);
                }
            }
            Step::PublishPopped => {
                consumer.publish();
                popped = 0;
                assert_eq!(memory.ring.has_pending(), !published.is_empty());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 500 }, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn a_ring_is_a_queue_also_where_its_cursors_wrap(
        size in 0..5u32, before_wrap in 0..20u32, steps in prop::collection::vec(step(), 0..60),
    ) {
        compare(1 << size, 0u32.wrapping_sub(before_wrap), &steps);
    }

    /// Under Miri an index outside of the ring is an error.
    #[test]
    fn a_cursor_that_lies_leads_nowhere(
        size in 0..5u32, start: u32, lies in prop::collection::vec(lie(), 1..20),
    ) {
        let size = 1 << size;
        let memory = Memory::new(size, start);
        let (mut producer, mut consumer) = memory.sides();
        let (mut pushed, mut popped) = (0, 0);
        for lie in lies {
            // The kernel is the consumer of one ring and the producer of another; here both lie about the same memory.
            memory.ring.consumer().store(start.wrapping_add(lie), Relaxed);
            while pushed < 3 * size && producer.push(7) {
                pushed += 1;
            }
            prop_assert!(producer.room(u32::MAX) <= size);
            prop_assert!(producer.head().wrapping_sub(start.wrapping_add(lie)) <= size || producer.room(1) == 0);
            producer.filled(producer.head().wrapping_sub(1));
            memory.ring.producer().store(start.wrapping_add(lie), Relaxed);
            let before = popped;
            while consumer.pop().is_some() {
                popped += 1;
                prop_assert!(popped - before <= size, "more values than slots");
            }
            prop_assert_eq!(consumer.peek(), None);
        }
    }
}

/// Returns a distance that a cursor claims to have gone: a little, or any.
fn lie() -> impl Strategy<Value = u32> {
    prop_oneof![0..64u32, any::<u32>(), (0..64u32).prop_map(|back| 0u32.wrapping_sub(back))]
}

/// The orderings: under Miri a missing one is a data race on a slot.
#[test]
fn values_cross_between_threads_in_order() {
    // On a busy machine every few values cost each thread a wait for its next slice.
    let values = if cfg!(miri) { 60 } else { 4_000 };
    let memory = Memory::new(4, u32::MAX - 10);
    let (mut producer, mut consumer) = memory.sides();
    thread::scope(|scope| {
        scope.spawn(move || {
            for value in 0..values {
                while !producer.push(value) {
                    producer.publish();
                    thread::yield_now();
                }
                if value % 3 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        scope.spawn(move || {
            for value in 0..values {
                while consumer.peek().is_none() {
                    consumer.publish();
                    thread::yield_now();
                }
                assert_eq!(consumer.pop(), Some(value));
            }
            assert_eq!(consumer.pop(), None);
        });
    });
}

#[test]
fn a_side_begins_where_the_last_one_has_stopped() {
    let memory = Memory::new(4, 7);
    let (mut producer, mut consumer) = memory.sides();
    for value in 0..3 {
        assert!(producer.push(value));
    }
    producer.publish();
    assert_eq!(consumer.pop(), Some(0));
    consumer.publish();
    let (mut producer, mut consumer) = memory.sides();
    assert_eq!(producer.room(1), 2);
    assert!(producer.push(3));
    producer.publish();
    assert_eq!([(); 4].map(|()| consumer.pop()), [Some(1), Some(2), Some(3), None]);
}

#[test]
fn the_kernels_flag_asks_for_a_wakeup() {
    let memory = Memory::new(1, 0);
    assert!(!memory.ring.needs_wakeup());
    // SAFETY: the cursors live as long as `memory`.
    unsafe { memory.ring.flags.as_ref() }.store(NEED_WAKEUP | 2, Relaxed);
    assert!(memory.ring.needs_wakeup());
}

#[test]
#[should_panic(expected = "a ring of 3 slots")]
fn a_size_that_is_no_power_of_two_is_refused() {
    let (cursor, slots) = (AtomicU32::new(0), [0u64; 3]);
    let at = NonNull::from(&cursor);
    // SAFETY: all pointers are valid, and the ring is not used.
    let _ = unsafe { Ring::new(at, at, at, NonNull::from(&slots).cast::<u64>(), 3) };
}
