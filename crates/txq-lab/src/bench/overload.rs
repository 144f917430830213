//! Suite `overload`: goodput when senders offer more than the queue can send.
//!
//! With a qdisc that is slow to enqueue, an owner that enqueued all packets of the other senders would send nothing any
//! more: the higher the load, the lower the goodput. So the suite first measures the peak, with one sender that its send
//! buffer holds back. Then it measures senders x flows x multiples of the peak, offered at a fixed rate.
//!
//! With `--rate` the device is finite, and senders at max fill its links (`link.rs`).

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use txq::Discipline;

use super::aqm::AQM;
use super::case::{Case, Key};
use super::offer::Open;
use super::plan::{Plan, case};
use super::rig::Rig;

mod link;
mod report;
mod target;

pub(super) use report::tables;
pub(crate) use target::{LinkRate, Reapers, Root, Steering};
pub(super) use target::{Target, hash_for};

/// The suite's name.
pub(super) const OVERLOAD: &str = "overload";

/// An offered load, in units of the peak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load(pub(super) f64);

/// The default loads.
const LOADS: [Load; 6] = [Load(0.5), Load(1.0), Load(2.0), Load(5.0), Load(10.0), Load(40.0)];

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let load = text.parse().ok().filter(|load| (0.01..=1000.0).contains(load));
        load.map(Self).ok_or_else(|| format!("\"{text}\" is no load: use 0.01 to 1000 times the peak"))
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x", self.0)
    }
}

pub(super) fn cases(plan: &Plan<'_>) -> anyhow::Result<Vec<Case>> {
    if !plan.args.rate.is_empty() {
        return link::cases(plan);
    }
    let mut cases = Vec::new();
    for qdisc in plan.qdiscs(&[AQM]) {
        for discipline in plan.disciplines() {
            for batch in plan.batches(&[1]) {
                sweep(plan, &qdisc, discipline, batch, &mut cases);
            }
        }
    }
    Ok(cases)
}

/// Adds a discipline's peak, with the fewest flows, and the cells with multiples of it.
fn sweep(plan: &Plan<'_>, qdisc: &str, discipline: Discipline, batch: u64, cases: &mut Vec<Case>) {
    let rig = |threads| Rig::new(discipline, plan.queue(qdisc), threads, batch);
    let all_flows = plan.flows(&[1, 32, 1024]);
    let fewest = all_flows.iter().copied().min().unwrap_or(1);
    // In Mpps. Each repetition measures its own peak first.
    let peak = Rc::new(Cell::new(0.0));
    let key =
        |flows| Key { suite: OVERLOAD, qdisc: Some(qdisc.into()), flows: Some(flows), ..Key::default() };
    let alone = case(key(fewest), Rig { flows: fewest as u32, ..rig(1) });
    let found = peak.clone();
    cases.push(Case {
        key: alone.key,
        run: Box::new(move |lab, time| {
            let sample = (alone.run)(lab, time)?;
            found.set(sample.mpps);
            Ok(sample)
        }),
    });
    for &flows in &all_flows {
        for threads in plan.threads(&[1, 2, 4, 8]) {
            for load in plan.loads(&LOADS) {
                let (peak, rig) = (peak.clone(), rig(threads));
                let key = case(Key { load: Some(load), ..key(flows) }, rig.clone()).key;
                let run = Box::new(move |lab: &_, time| {
                    let open = Open { rate: peak.get() * 1e6 * load.0, flows: flows as u32 };
                    Rig { open: Some(open), ..rig.clone() }.measure(lab, time)
                });
                cases.push(Case { key, run });
            }
        }
    }
}
