//! The far end of the wire, which answers each frame after a delay, and the interrupts in which answers arrive.
//!
//! An answer arrives at the rx queue that its flow's hash selects; each rx queue has a CPU of its own. Its interrupt takes
//! that CPU, does the stack's work and wakes the waiting task.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use txq_core::arch::{Arch, Event, Nanos};

use super::flow_of;
use crate::sim::arch::{Sim, Sleep};
use crate::sim::device::OnWire;
use crate::sim::machine::Picos;
use crate::sim::sim;
use crate::sim::world::{Task, World};

thread_local! {
    /// The sleeps of the pairs in the world that this thread runs.
    static PAIRS: RefCell<Vec<Arc<Sleep>>> = const { RefCell::new(Vec::new()) };
}

/// Sleeps until the pair's answer arrives.
pub(super) fn wait(pair: u32) {
    let event = PAIRS.with_borrow(|pairs| pairs[pair as usize].clone());
    event.wait(None);
}

/// Answers in flight: arrival time and pair.
type Coming = BinaryHeap<Reverse<(Nanos, u32)>>;

/// An rx queue.
#[derive(Default)]
struct RxQueue {
    coming: Mutex<Coming>,
    /// The task number of its interrupt.
    task: AtomicU32,
}

/// All rx queues.
pub(crate) struct Answers {
    queues: Arc<[RxQueue]>,
    /// Cost of an answer, in picoseconds.
    cost: Picos,
    round_trip: Nanos,
}

impl Answers {
    /// Creates `pairs` pairs, and an rx queue on each CPU. `cost` and `round_trip` are nanoseconds.
    pub(super) fn new(pairs: u32, cpus: u32, cost: f64, round_trip: f64) -> Self {
        let pairs: Vec<_> = (0..pairs).map(|_| Arc::new(Sleep::new())).collect();
        pairs.iter().for_each(|pair| Sim::name(&**pair, "pair: sleep"));
        PAIRS.set(pairs);
        let queues = (0..cpus).map(|_| RxQueue::default()).collect();
        Self { queues, cost: (cost * 1e3) as Picos, round_trip: round_trip as Nanos }
    }

    /// Returns the function that the card calls for each frame.
    pub(crate) fn peer(&self) -> OnWire {
        let (queues, round_trip) = (self.queues.clone(), self.round_trip);
        Arc::new(move |frame, sent| {
            let Some(flow) = flow_of(frame) else { return };
            // A hash that is independent of CPUs (Knuth's multiplier).
            let hash = (u64::from(flow.wrapping_mul(2_654_435_761)) * queues.len() as u64) >> 32;
            let queue = &queues[hash as usize];
            let at = sent + round_trip;
            queue.coming.lock().unwrap_or_else(PoisonError::into_inner).push(Reverse((at, flow)));
            sim::interrupt(queue.task.load(Relaxed), at * 1000);
        })
    }

    /// Spawns the interrupts' tasks.
    pub(crate) fn spawn(self, world: &mut World) {
        for cpu in 0..self.queues.len() {
            let (queues, cost) = (self.queues.clone(), self.cost);
            let name = format!("irq rx {cpu}");
            let task = Task { name, cpu: Some(cpu as u32), urgent: true, ..Task::default() };
            world.spawn(task, move || receive(&queues[cpu], cost));
        }
    }
}

/// The body of an interrupt's task.
fn receive(queue: &RxQueue, cost: Picos) {
    queue.task.store(sim::task(), Relaxed);
    loop {
        let now = sim::now() / 1000;
        let (pair, next) = {
            let mut coming = queue.coming.lock().unwrap_or_else(PoisonError::into_inner);
            let due = coming.peek().is_some_and(|Reverse((at, _))| *at <= now);
            let pair = if due { coming.pop() } else { None };
            (pair, coming.peek().map(|Reverse((at, _))| *at))
        };
        match (pair, next) {
            (Some(Reverse((_, pair))), _) => {
                sim::work(cost);
                let event = PAIRS.with_borrow(|pairs| pairs[pair as usize].clone());
                event.notify();
            }
            (None, Some(at)) => sim::sleep_until(at * 1000),
            (None, None) => sim::sleep_until(Picos::MAX / 2),
        }
    }
}
