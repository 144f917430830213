//! Suite `crowd`: threads that send single packets through one queue, by enqueue discipline and qdisc.
//!
//! The qdisc `slow` stands for fq_codel and cake under overload: it works for each packet at enqueue and at dequeue, pays
//! ten times as much for a drop, and holds fewer packets than the crowd may have outstanding.

use super::case::{Case, Key};
use super::costly::Cost;
use super::plan::{Plan, case};
use super::rig::{Queue, Rig};

/// The name of the costly qdisc.
pub(super) const SLOW: &str = "slow";
/// Packets that it holds.
const SLOW_LIMIT: usize = 512;
/// The cost of a drop, in units of an enqueue.
const DROP: u64 = 10;

pub(super) fn slow(plan: &Plan<'_>) -> Queue {
    let work = plan.work();
    let drop = plan.lab.calibration.work(plan.args.work_ns.get() * DROP);
    Queue::Costly(SLOW, Cost { enqueue: work, dequeue: work, drop }, SLOW_LIMIT)
}

pub(super) fn cases(plan: &Plan<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    for qdisc in plan.qdiscs(&["pfifo", "pfifo_fast", SLOW]) {
        for discipline in plan.disciplines() {
            for batch in plan.batches(&[1]) {
                for threads in plan.threads(&[1, 2, 4, 8, 16, 64]) {
                    let rig = Rig::new(discipline, plan.queue(&qdisc), threads, batch);
                    let key = Key { suite: "crowd", qdisc: Some(qdisc.clone()), ..Key::default() };
                    cases.push(case(key, rig));
                }
            }
        }
    }
    cases
}
