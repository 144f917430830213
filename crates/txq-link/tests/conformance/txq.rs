//! txq's own qdiscs.

use std::time::Duration;

use txq_link::Instant;
use txq_link::conformance::{Codel, DualQ, Ecn, FqCodel, Queue, TestPacket, rfc8289, rfc8290, rfc9332};
use txq_sched::qdisc::Env;
use txq_sched::scheduler::Config;
use txq_sched::{Item, Scheduler};

use super::fails;

/// A qdisc under test.
struct Txq(Scheduler<TestPacket>);

impl Txq {
    fn new(text: &str) -> Self {
        Self::with_mtu(text, 1514)
    }

    fn with_mtu(text: &str, mtu: u32) -> Self {
        let config = Config { seed: Some(7), env: Env { mtu, ..Env::default() }, ..Config::default() };
        Self(Scheduler::with_config(text, &config).unwrap())
    }
}

impl Queue for Txq {
    fn enqueue(&mut self, now: Instant, packet: TestPacket) {
        let item = Item::new(packet.len, packet).tos(packet.ecn as u8).flow(packet.flow);
        let _ = self.0.enqueue(now, item);
    }

    fn dequeue(&mut self, now: Instant) -> Option<TestPacket> {
        let departed = self.0.dequeue(now)?;
        let ecn = departed.tos.map_or(departed.value.ecn, Ecn::from_tos);
        Some(TestPacket { ecn, ..departed.value })
    }
}

#[test]
fn codel_conforms() {
    for text in ["codel limit 1000 ecn", "fq_codel"] {
        let report = rfc8289(&Codel::default(), || Txq::new(text));
        println!("{text}\n{report}");
        fails(text, &report, &[]);
    }
    let codel = Codel {
        target: Duration::from_millis(1),
        interval: Duration::from_millis(20),
        mtu: 9000,
        ecn: false,
    };
    let text = "codel target 1ms interval 20ms";
    let report = rfc8289(&codel, || Txq::with_mtu(text, 9014));
    println!("{text}\n{report}");
    fails(text, &report, &[]);
}

#[test]
fn fq_codel_conforms() {
    let report = rfc8290(&FqCodel::default(), || Txq::new("fq_codel"));
    println!("fq_codel\n{report}");
    fails("fq_codel", &report, &[]);
    let fq = FqCodel { quantum: 600, limit: 1000, ..FqCodel::default() };
    let report = rfc8290(&fq, || Txq::new("fq_codel quantum 600 limit 1000"));
    fails("fq_codel quantum 600 limit 1000", &report, &[]);
}

/// cake's queues are of COBALT, and its limit counts bytes: the cases of turns hold.
#[test]
fn cake_takes_turns() {
    let report = rfc8290(&FqCodel { limit: 0, ..FqCodel::default() }, || Txq::new("cake"));
    println!("cake\n{report}");
    fails("cake", &report, &[]);
}

#[test]
fn dualpi2_conforms() {
    let dualq = DualQ { classic_share: 0.1, ..DualQ::default() };
    for text in ["dualpi2", "dualpi2 drop_enqueue"] {
        let report = rfc9332(&dualq, || Txq::new(text));
        println!("{text}\n{report}");
        fails(text, &report, &[]);
    }
}
