//! Suite `crowd`: threads through one queue, by qdisc and enqueue discipline. Many should send what one sends, whatever the qdisc
//! (`shares.rs`).
//!
//! The device is endless, and a sender is held by its own outstanding packets, as a socket is. All senders together have the same
//! number of flows, so that the qdisc has as many queues whatever the number of threads.
//!
//! The qdisc `slow` stands for fq_codel and cake under overload: it works for each packet at enqueue and at dequeue, pays
//! ten times as much for a drop, and holds fewer packets than the crowd may have outstanding.

use txq::Discipline;

use super::case::{Case, Key};
use super::costly::Cost;
use super::plan::{Plan, case, or};
use super::rig::{Queue, Rig};

/// The suite's name.
pub(super) const CROWD: &str = "crowd";
/// The default qdiscs.
const REAL: [&str; 11] =
    ["pfifo", "fq", "fq_codel", "cake", "htb-fq_codel", "sfq", "prio", "netem", "dualpi2", "codel", "tbf"];
/// The default disciplines: txq's own, and the plain lock that it must not fall below.
const COMPARED: [Discipline; 2] = [Discipline::Combine, Discipline::Spinlock];
/// The default number of flows of all senders together.
const FLOWS: u64 = 200;
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
    for qdisc in plan.qdiscs(&REAL) {
        for flows in plan.flows(&[FLOWS]) {
            for batch in plan.batches(&[1, 32]) {
                for discipline in or(&plan.args.discipline, |&discipline| discipline, &COMPARED) {
                    for threads in plan.threads(&[1, 2, 8, 64]) {
                        let rig = Rig::new(discipline, plan.queue(&qdisc), threads, batch);
                        let rig = Rig { flows: (flows / threads).max(1) as u32, ..rig };
                        let qdisc = Some(qdisc.clone());
                        let key = Key { suite: CROWD, qdisc, flows: Some(flows), ..Key::default() };
                        cases.push(case(key, rig));
                    }
                }
            }
        }
    }
    cases
}
