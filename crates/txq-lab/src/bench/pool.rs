//! Suite `pool`: buffers that are freed on another CPU than the one that allocated them, by the mode of freeing.
//!
//! Senders run on all CPUs but the last. Completions run on the last one, which polls all the time, as DPDK's consumer
//! does in `peers`; so the CPU time includes all of that CPU's time. On a machine with one CPU they share it.

use txq::Discipline;
use txq::pool::{FreeMode, PoolConfig};

use super::case::{Case, Key};
use super::plan::{Plan, case};
use super::rig::Rig;

/// Outstanding packets of a sender: twice those of a crowd, because packets are outstanding for longer here.
const LIMIT: u64 = 256;

/// A mode of freeing: its name, and a function that selects it in a pool's configuration.
pub(super) type Mode = (&'static str, fn(PoolConfig) -> PoolConfig);

/// Returns all modes, the default first.
pub(super) fn modes() -> Vec<Mode> {
    vec![
        ("defer", |config| PoolConfig { free: FreeMode::Defer, ..config }),
        ("shared", |config| PoolConfig { free: FreeMode::Shared, ..config }),
        ("keep", |config| PoolConfig { free: FreeMode::Keep, ..config }),
    ]
}

/// Returns a rig whose completions run apart from its senders.
pub(super) fn rig(
    plan: &Plan<'_>,
    discipline: Discipline,
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
                        cases.push(case(key, rig(plan, discipline, &qdisc, threads, batch, mode)));
                    }
                }
            }
        }
    }
    cases
}
