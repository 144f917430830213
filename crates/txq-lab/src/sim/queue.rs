//! The queue of events, ordered by time.
//!
//! Most events are due within a microsecond or two. They are in a [`Wheel`], where insertion and removal take a few steps
//! however many events there are. Later events, and those that find no room there, are in a [`Heap`] until they are due. The
//! next event is the earlier of the first one of the wheel and the first one of the heap.
//!
//! Events of the same time are ordered by insertion.

mod heap;
mod wheel;

use heap::Heap;
use wheel::Wheel;

use crate::sim::machine::Picos;

/// An event: its time and its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Picos,
    /// Sequence number among all events; it identifies the event that a task or a CPU waits for.
    pub(crate) seq: u64,
    pub(crate) target: Target,
}

/// The target of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A task continues.
    Task(u32),
    /// A CPU's time slice ends.
    Tick(u32),
    /// A task moves to another CPU.
    Move(u32),
    /// A task wakes up, if it sleeps.
    Wake(u32),
    /// The world's time is over.
    Stop,
}

/// Time, number and target in one integer that compares as events do.
type Key = u128;
/// Greater than every event's key.
const LAST_KEY: Key = Key::MAX;
const TARGET_BITS: u32 = 24;
const INDEX_BITS: u32 = 22;
/// The index of no task.
const STOP: u32 = (1 << INDEX_BITS) - 1;

fn key(event: Event) -> Key {
    let (kind, index) = match event.target {
        Target::Task(i) => (0, i),
        Target::Tick(i) => (1, i),
        Target::Move(i) => (2, i),
        Target::Wake(i) => (3, i),
        Target::Stop => (3, STOP),
    };
    u128::from(event.at) << 64 | u128::from(event.seq << TARGET_BITS | kind << INDEX_BITS | u64::from(index))
}

fn event(key: Key) -> Event {
    let low = key as u64;
    let index = (low & ((1 << INDEX_BITS) - 1)) as u32;
    let target = match low >> INDEX_BITS & 3 {
        0 => Target::Task(index),
        1 => Target::Tick(index),
        2 => Target::Move(index),
        _ if index == STOP => Target::Stop,
        _ => Target::Wake(index),
    };
    Event { at: (key >> 64) as u64, seq: low >> TARGET_BITS, target }
}

/// Returns the time of an event.
fn at(key: Key) -> Picos {
    (key >> 64) as u64
}

#[derive(Debug)]
pub(crate) struct Queue {
    /// The earliest event; [`LAST_KEY`] when there is none.
    first: Key,
    wheel: Wheel,
    heap: Heap,
    seq: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self { first: LAST_KEY, wheel: Wheel::new(), heap: Heap::default(), seq: 0 }
    }
}

impl Queue {
    /// Returns the time of the earliest event; the end of time when there is none.
    #[inline]
    pub(crate) fn first(&self) -> Picos {
        at(self.first)
    }

    /// Returns the task of the earliest event, if that event has a task to continue.
    #[inline]
    pub(crate) fn first_task(&self) -> Option<u32> {
        let low = self.first as u64;
        (low >> INDEX_BITS & 3 == 0).then_some((low & ((1 << INDEX_BITS) - 1)) as u32)
    }

    /// Inserts an event; returns its sequence number.
    #[inline]
    pub(crate) fn put(&mut self, at: Picos, target: Target) -> u64 {
        self.seq += 1;
        let key = key(Event { at, seq: self.seq, target });
        if !self.wheel.put(key) {
            self.heap.put(key);
        }
        self.first = self.first.min(key);
        self.seq
    }

    /// Returns whether there are no events.
    pub(crate) fn is_empty(&self) -> bool {
        self.first == LAST_KEY
    }

    /// Takes the earliest event.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Event> {
        let first = self.first;
        if first == LAST_KEY {
            return None;
        }
        if self.wheel.first() == first {
            self.wheel.take();
        } else {
            self.heap.take();
        }
        self.wheel.turn(at(first));
        self.first = self.wheel.first().min(self.heap.first());
        Some(event(first))
    }

    /// Takes the earliest event, which there is, and puts another. Returns it, and the number of the other.
    #[inline]
    pub(crate) fn replace_first(&mut self, at: Picos, target: Target) -> (Event, u64) {
        let first = self.take().expect("there is an event");
        (first, self.put(at, target))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Against a sorted map, with times that are often equal, and steps of which some leave the wheel.
    #[test]
    fn events_come_by_time_and_then_by_number() {
        let mut queue = Queue::default();
        let mut model: BTreeMap<(Picos, u64), u32> = BTreeMap::new();
        let first = |model: &mut BTreeMap<_, _>| {
            let ((at, seq), task) = model.pop_first().unwrap();
            Event { at, seq, target: Target::Task(task) }
        };
        let (mut x, mut now) = (1u64, 0);
        for i in 0..20_000u32 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Now and then one that is too late for the wheel, or of the past.
            let at = match i % 16 {
                0 => x >> 40,
                1 => now / 2,
                2 => now + (x >> 43),
                _ => now + (x >> 58),
            };
            if i % 3 == 0 && !model.is_empty() {
                let (event, seq) = queue.replace_first(at, Target::Task(i));
                now = now.max(event.at);
                assert_eq!(event, first(&mut model));
                model.insert((at, seq), i);
            } else if i % 5 < 4 {
                model.insert((at, queue.put(at, Target::Task(i))), i);
            } else if let Some(event) = queue.take() {
                now = now.max(event.at);
                assert_eq!(event, first(&mut model));
            }
        }
        assert!(model.len() > 1000);
        while let Some(event) = queue.take() {
            assert_eq!(event, first(&mut model));
        }
        assert!(model.is_empty() && queue.is_empty());
    }
}
