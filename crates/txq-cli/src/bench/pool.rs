//! Suite `pool`: buffers that are freed on another CPU than they are allocated on, by the way they come home.
//!
//! Senders are on all CPUs but the last, completions on the last, which looks for them all the time, as DPDK's consumer does in
//! `peers`; so the CPU time includes all of that CPU's. On one CPU they share it.

use txq::pool::{FreeMode, PoolConfig};

use super::case::{Case, Key};
use super::plan::{Plan, case};
use super::rig::Rig;

/// Packets that a sender may have on their way: twice what it may in a crowd, as they are longer on it.
const LIMIT: u64 = 256;

/// A way home: its name, and what makes a pool do it.
pub(super) type Mode = (&'static str, fn(PoolConfig) -> PoolConfig);

/// All ways home, the default first.
pub(super) fn modes() -> Vec<Mode> {
    vec![
        ("defer", |config| PoolConfig { free: FreeMode::Defer, ..config }),
        ("shared", |config| PoolConfig { free: FreeMode::Shared, ..config }),
        ("keep", |config| PoolConfig { free: FreeMode::Keep, ..config }),
    ]
}

/// A rig whose completions are apart from its senders.
pub(super) fn rig(
    plan: &Plan<'_>,
    discipline: &str,
    qdisc: &str,
    threads: u64,
    batch: u64,
    mode: Mode,
) -> Rig {
    let rig = Rig::new(discipline, plan.queue(qdisc), threads, batch);
    Rig { apart: true, limit: LIMIT.max(rig.limit), pool: mode.1, ..rig }
}

pub(super) fn cases(plan: &Plan<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    for qdisc in plan.qdiscs(&["pfifo"]) {
        for discipline in plan.discipline() {
            for mode in modes() {
                for batch in plan.batches(&[1, 32]) {
                    for threads in plan.threads(&[1, 2, 4]) {
                        let key = Key {
                            suite: "pool",
                            qdisc: Some(qdisc.clone()),
                            pool: Some(mode.0),
                            ..Key::default()
                        };
                        cases.push(case(key, rig(plan, &discipline, &qdisc, threads, batch, mode)));
                    }
                }
            }
        }
    }
    cases
}
