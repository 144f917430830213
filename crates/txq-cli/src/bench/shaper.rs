//! Suite `work`: how much two threads get through one shaper, compared with one.
//!
//! A packet is worked for twice, as long inside the queue as its sender does outside: two threads could send twice what one
//! sends, if the one that is outside never waited for the one that is inside.

use super::case::{Case, Key};
use super::costly::Cost;
use super::plan::{Plan, case};
use super::rig::{Queue, Rig};
use super::work::Work;

/// Packets that the queue holds: more than senders may have on their way.
const LIMIT: usize = 1 << 20;

/// A queue that works for `inside` at each packet's dequeue, with senders that work as long before.
fn rig(plan: &Plan<'_>, discipline: &str, threads: u64, batch: u64) -> Rig {
    let none = Work::default();
    let queue = Queue::Costly("shaper", Cost { enqueue: none, dequeue: plan.work(), drop: none }, LIMIT);
    Rig { outside: plan.work(), ..Rig::new(discipline, queue, threads, batch) }
}

pub(super) fn cases(plan: &Plan<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    for discipline in plan.disciplines() {
        for batch in plan.batches(&[1]) {
            for threads in plan.threads(&[1, 2]) {
                let key = Key { suite: "work", qdisc: Some("shaper".into()), ..Key::default() };
                cases.push(case(key, rig(plan, &discipline, threads, batch)));
            }
        }
    }
    cases
}
