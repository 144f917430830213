//! Suite `work`: the throughput of two threads through one queue, compared with one thread.
//!
//! Each packet costs a work of its sender outside the queue, and the qdisc's inside. The shaper of the default costs as much inside. Two
//! threads could send twice as much as one if the thread outside never waited for the thread inside.

use super::case::{Case, Key};
use super::costly::Cost;
use super::plan::{Plan, case};
use super::rig::{Queue, Rig};
use super::work::Work;

/// The name of the qdisc that works for `--work-ns` at each packet's dequeue.
pub(super) const SHAPER: &str = "shaper";
/// Packets that it holds: more than senders may have outstanding.
const SHAPER_LIMIT: usize = 1 << 20;

/// Returns the shaper.
pub(super) fn shaper(plan: &Plan<'_>) -> Queue {
    let none = Work::default();
    Queue::Costly(SHAPER, Cost { enqueue: none, dequeue: plan.work(), drop: none }, SHAPER_LIMIT)
}

pub(super) fn cases(plan: &Plan<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    for qdisc in plan.qdiscs(&[SHAPER]) {
        for discipline in plan.disciplines() {
            for batch in plan.batches(&[1]) {
                for threads in plan.threads(&[1, 2]) {
                    let rig = Rig::new(discipline, plan.queue(&qdisc), threads, batch);
                    let key = Key { suite: "work", qdisc: Some(qdisc.clone()), ..Key::default() };
                    cases.push(case(key, Rig { outside: plan.work(), ..rig }));
                }
            }
        }
    }
    cases
}
