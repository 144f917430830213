//! Suite `rate`: one rate for many threads. One thread and two, each on a CPU and a txq of its own, below one rate that they
//! never reach, so that the cost shows. Then rates that are reached, and how exact they are (`exact.rs`).
//!
//! | row | |
//! |---|---|
//! | `tbf_mq` | a part for each txq, one bucket |
//! | `htb_mq` | a part for each txq, a class that has its rate from the class above it, the buckets of both shared |
//! | `cake_mq` | a cake for each txq, which divide the rate among those that are active |
//! | `tbf`, `htb` | one tbf, or one htb with the same classes, at the root of as many txqs |
//! | `mq` | a pfifo for each txq and no rate: what the parts could reach |
//! | `kernel tbf`, `kernel htb` | this kernel: packet sockets into an ifb below a tbf, or a class of htb |

use std::rc::Rc;

use txq::topology::Topology;
use txq::xps::XpsMap;
use txq_cli::common::failure::refused;

use super::case::{Case, Key};
use super::exact;
use super::kernel::{self, Kernel};
use super::peers::or_skip;
use super::plan::{Plan, case};
use super::rig::{Queue, Rig};
use crate::tree::Tree;

/// The suite's name.
pub(super) const RATE: &str = "rate";

/// The rows of txq, their roots, and the commands after those. The rate is 8300 packets of 120 bytes in 8 us.
const ROOTS: [(&str, &str, &str); 6] = [
    ("tbf_mq", "tbf_mq rate 1tbit burst 1gb limit 100mb", ""),
    ("htb_mq", "handle 1: htb_mq default 10", BORROWING_CLASS),
    ("cake_mq", "cake_mq bandwidth 1tbit besteffort", ""),
    ("tbf", "tbf rate 1tbit burst 1gb limit 100mb", ""),
    ("htb", "handle 1: htb default 10", BORROWING_CLASS),
    ("mq", "mq", ""),
];
/// A class that borrows nearly all that it sends.
const BORROWING_CLASS: &str = "class add parent 1: classid 1:1 htb rate 1tbit burst 1gb cburst 1gb; \
    class add parent 1:1 classid 1:10 htb rate 1mbit ceil 1tbit burst 10k cburst 1gb quantum 20000";

pub(super) fn cases(plan: &Plan<'_>) -> anyhow::Result<Vec<Case>> {
    let kernel = or_skip("kernel", Kernel::prepare(plan.lab)).map(Rc::new);
    let txqs = plan.lab.cpus.len().clamp(2, 64) as u16;
    let topology = Topology::read("/sys").map_err(refused("this machine's CPUs cannot be read"))?;
    let map = XpsMap::auto(&topology, txqs.into())?;
    let mut cases = Vec::new();
    for batch in plan.batches(&[1, 32]) {
        for threads in plan.threads(&[1, 2]) {
            for (name, root, classes) in ROOTS {
                for discipline in plan.discipline() {
                    let rig = Rig::new(
                        discipline,
                        Queue::Root(Tree::new(&format!("{root}; {classes}"))),
                        threads,
                        batch,
                    );
                    let rig = Rig { txqs, xps: Some(map.clone()), pinned: true, ..rig };
                    let key = Key { suite: RATE, qdisc: Some(name.into()), ..Key::default() };
                    cases.push(case(key, rig));
                }
            }
            let Some(kernel) = &kernel else { continue };
            for (index, (name, _)) in kernel::QDISCS.iter().enumerate().filter(|(_, of)| of.0 != "pfifo_fast")
            {
                let peer = Some(format!("kernel {name}"));
                let key = Key { suite: RATE, peer, threads, batch, ..Key::default() };
                let kernel = kernel.clone();
                let run = Box::new(move |lab: &_, time| kernel.measure(lab, time, index, threads, batch));
                cases.push(Case { key, run });
            }
        }
    }
    cases.extend(exact::cases());
    Ok(cases)
}
