//! The events to come, in the order of their times.
//!
//! A heap of four children to a node: half as deep as a binary one, and the children of a node share a cache line. Who
//! gives a CPU's turn away puts its own next event in the place of the earliest and takes that, in one walk down
//! ([`Queue::replace_first`]); taking and putting one after the other would be two.
//!
//! Events of the same time come in the order in which they were put.

use crate::machine::Picos;

/// What happens, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Picos,
    /// Its number among all events; who waits for one knows it by this.
    pub(crate) seq: u64,
    pub(crate) target: Target,
}

/// Whom an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A task goes on.
    Task(u32),
    /// A CPU's time slice ends.
    Tick(u32),
    /// A task is moved to another CPU.
    Move(u32),
    /// A task is woken, if it sleeps.
    Wake(u32),
    /// The world's time is over.
    Stop,
}

/// Time, number and target in one integer that compares as events do.
type Key = u128;
const TARGET: u32 = 24;
const INDEX: u32 = 22;
/// The index of no task.
const STOP: u32 = (1 << INDEX) - 1;

fn key(event: Event) -> Key {
    let (kind, index) = match event.target {
        Target::Task(i) => (0, i),
        Target::Tick(i) => (1, i),
        Target::Move(i) => (2, i),
        Target::Wake(i) => (3, i),
        Target::Stop => (3, STOP),
    };
    u128::from(event.at) << 64 | u128::from(event.seq << TARGET | kind << INDEX | u64::from(index))
}

fn event(key: Key) -> Event {
    let low = key as u64;
    let index = (low & ((1 << INDEX) - 1)) as u32;
    let target = match low >> INDEX & 3 {
        0 => Target::Task(index),
        1 => Target::Tick(index),
        2 => Target::Move(index),
        _ if index == STOP => Target::Stop,
        _ => Target::Wake(index),
    };
    Event { at: (key >> 64) as u64, seq: low >> TARGET, target }
}

/// The heap.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: Vec<Key>,
    seq: u64,
}

impl Queue {
    /// The time of the earliest event; the end of time when there is none.
    #[inline]
    pub(crate) fn first(&self) -> Picos {
        self.heap.first().map_or(Picos::MAX, |key| (key >> 64) as u64)
    }

    fn next(&mut self, at: Picos, target: Target) -> Event {
        self.seq += 1;
        Event { at, seq: self.seq, target }
    }

    /// Puts an event, and tells its number.
    pub(crate) fn put(&mut self, at: Picos, target: Target) -> u64 {
        let event = self.next(at, target);
        let key = key(event);
        let mut i = self.heap.len();
        self.heap.push(key);
        while i > 0 {
            let parent = (i - 1) / 4;
            if self.heap[parent] <= key {
                break;
            }
            self.heap[i] = self.heap[parent];
            i = parent;
        }
        self.heap[i] = key;
        event.seq
    }

    /// Whether nothing is to come.
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Takes the earliest event.
    pub(crate) fn take(&mut self) -> Option<Event> {
        let first = *self.heap.first()?;
        let last = self.heap.pop()?;
        if !self.heap.is_empty() {
            self.sift(last);
        }
        Some(event(first))
    }

    /// Takes the earliest event and puts another. Returns it, and the number of the other.
    #[inline]
    pub(crate) fn replace_first(&mut self, at: Picos, target: Target) -> (Event, u64) {
        let event_put = self.next(at, target);
        let first = self.heap[0];
        self.sift(key(event_put));
        (event(first), event_put.seq)
    }

    /// Puts `key` where it belongs, from the top down, over the first.
    #[inline]
    fn sift(&mut self, key: Key) {
        let heap = &mut self.heap[..];
        let (mut i, n) = (0, heap.len());
        loop {
            let child = 4 * i + 1;
            if child >= n {
                break;
            }
            let (mut least, mut at) = (heap[child], child);
            for (c, &k) in heap.iter().enumerate().take((child + 4).min(n)).skip(child + 1) {
                if k < least {
                    (least, at) = (k, c);
                }
            }
            if key <= least {
                break;
            }
            heap[i] = least;
            i = at;
        }
        heap[i] = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a sorted list, with times that are often equal.
    #[test]
    fn events_come_by_time_and_then_by_number() {
        let mut queue = Queue::default();
        let mut list: Vec<(Picos, u64, u32)> = Vec::new();
        let mut x = 1u64;
        for i in 0..20_000u32 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = x >> 58;
            if i % 3 == 0 && !list.is_empty() {
                let (first, seq) = queue.replace_first(at, Target::Task(i));
                list.sort_unstable();
                assert_eq!(
                    (first.at, first.seq, first.target),
                    (list[0].0, list[0].1, Target::Task(list[0].2))
                );
                list[0] = (at, seq, i);
            } else if i % 5 < 4 {
                list.push((at, queue.put(at, Target::Task(i)), i));
            } else if let Some(event) = queue.take() {
                list.sort_unstable();
                let (at, seq, task) = list.remove(0);
                assert_eq!(event, Event { at, seq, target: Target::Task(task) });
            }
        }
        assert!(list.len() > 1000);
    }
}
