//! Suite `work`: the throughput of two threads through one shaper, compared with one thread.
//!
//! Each packet costs two equal works: one of its sender outside the queue, and one inside. Two threads could send twice as
//! much as one if the thread outside never waited for the thread inside.

use txq::Discipline;

use super::case::{Case, Key};
use super::costly::Cost;
use super::plan::{Plan, case};
use super::rig::{Queue, Rig};
use super::work::Work;

/// Packets that the queue holds: more than senders may have outstanding.
const LIMIT: usize = 1 << 20;

/// Returns a rig whose queue works for `--work-ns` at each packet's dequeue, and whose senders work as long before it.
fn rig(plan: &Plan<'_>, discipline: Discipline, threads: u64, batch: u64) -> Rig {
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
                cases.push(case(key, rig(plan, discipline, threads, batch)));
            }
        }
    }
    cases
}
