//! Suite `xps`: a txq for each CPU, chosen by the CPU or by the flow, against one txq for all.
//!
//! With XPS a sender's packets stay on its CPU's txq. By hash its flows are spread over all txqs, so all CPUs use each
//! txq. A flow's hash is given with the packet, as a socket gives it.
//!
//! The crowded rows have many more senders and txqs than CPUs: 64 threads, 64 txqs, mq with fq_codel, short rings that are
//! never full, batches of 8. XPS uses one txq for each CPU there, and nothing need be dropped with it or without.

use anyhow::bail;
use txq::topology::Topology;
use txq::xps::XpsMap;
use txq_cli::common::failure::refused;

use super::case::{Case, Key};
use super::overload::{Reapers, Root, Steering, Target};
use super::plan::{OWN, Plan, case};
use super::rig::{Queue, Rig};

/// Flows of a sender.
const FLOWS: u32 = 64;

/// The crowded rows.
const CROWD_SENDERS: u64 = 64;
const CROWD_QDISC: &str = "fq_codel";
const CROWD_TARGET: Target = Target {
    rate: None,
    ring: 64,
    txqs: CROWD_SENDERS as u16,
    root: Root::Mq,
    completions: Reapers::Inline,
    steering: Steering::Hash,
};
const CROWD_BATCH: u64 = 8;

pub(super) fn cases(plan: &Plan<'_>) -> anyhow::Result<Vec<Case>> {
    let txqs = plan.lab.cpus.len().clamp(1, 64) as u16;
    let topology = Topology::read("/sys").map_err(refused("this machine's CPUs cannot be read"))?;
    let map = XpsMap::auto(&topology, txqs.into())?;
    let ways = [("xps", txqs, Some(map)), ("hash", txqs, None), ("one queue", 1, None)];
    let mut cases = Vec::new();
    for qdisc in plan.qdiscs(&["pfifo"]) {
        if OWN.contains(&&*qdisc) {
            bail!("qdisc \"{qdisc}\" serves one txq: name another one for suite xps, or leave the suite out");
        }
        for discipline in plan.discipline() {
            for (name, txqs, xps) in &ways {
                for batch in plan.batches(&[1]) {
                    for threads in plan.threads(&[1, 2, 4, 8]) {
                        let rig = Rig::new(discipline, plan.queue(&qdisc), threads, batch);
                        let rig = Rig { txqs: *txqs, xps: xps.clone(), flows: FLOWS, ..rig };
                        // Not every qdisc can be under mq.
                        rig.check()?;
                        let key = Key {
                            suite: "xps",
                            qdisc: Some(qdisc.clone()),
                            steering: Some(name),
                            ..Key::default()
                        };
                        cases.push(case(key, rig));
                    }
                }
            }
        }
    }
    if plan.args.qdisc.is_empty() || plan.args.qdisc.iter().any(|qdisc| qdisc == CROWD_QDISC) {
        crowded(plan, &topology, &mut cases)?;
    }
    Ok(cases)
}

/// Adds the rows with many senders and txqs, with XPS and without.
fn crowded(plan: &Plan<'_>, topology: &Topology, cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let map = XpsMap::auto(topology, CROWD_TARGET.txqs.into())?;
    for discipline in plan.discipline() {
        for (name, xps) in [("xps", Some(&map)), ("hash", None)] {
            let rig = Rig::new(discipline, Queue::text(CROWD_QDISC), CROWD_SENDERS, CROWD_BATCH);
            let rig = Rig { xps: xps.cloned(), flows: FLOWS, ..rig.through(CROWD_TARGET) };
            let key = Key {
                suite: "xps",
                qdisc: Some(CROWD_QDISC.into()),
                steering: Some(name),
                target: Some(CROWD_TARGET),
                ..Key::default()
            };
            cases.push(case(key, rig));
        }
    }
    Ok(())
}
