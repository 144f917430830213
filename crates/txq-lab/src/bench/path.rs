//! Suite `path`: the cost of a packet on one thread, from its allocation to its free.

use super::case::{Case, Key};
use super::plan::{Plan, case};
use super::rig::Rig;

pub(super) fn cases(plan: &Plan<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    for qdisc in plan.qdiscs(&["noqueue", "pfifo", "pfifo_fast"]) {
        for discipline in plan.discipline() {
            for batch in plan.batches(&[1, 8, 32]) {
                let key = Key { suite: "path", qdisc: Some(qdisc.clone()), ..Key::default() };
                cases.push(case(key, Rig::new(discipline, plan.queue(&qdisc), 1, batch)));
            }
        }
    }
    cases
}
