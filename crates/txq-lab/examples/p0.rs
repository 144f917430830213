//! Compares disciplines with 240 senders and 30 txqs, and prints how fast the simulation is: `cargo run --release -p txq-lab
//! --example p0 [MILLISECONDS]`.

#[path = "../tests/sim/support.rs"]
mod support;

use txq::Discipline;

use support::{Case, MS, P0, run};

fn main() {
    let ms: u64 = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(10);
    println!(
        "senders   discipline  qdisc   Mpps  CPU ns/packet  of it waiting  CPUs in use  switch  moves  accesses    wall  M/s"
    );
    for (local, pinned) in [(false, true), (true, true), (false, false)] {
        for qdisc in ["pfifo", "fq"] {
            for discipline in
                [Discipline::Spinlock, Discipline::Busylock, Discipline::Llist, Discipline::Combine]
            {
                let case = Case { discipline, qdisc, local, pinned, time: ms * MS, ..P0 };
                let ran = run(&case);
                let wall = ran.wall.as_secs_f64();
                let (cpu, waiting) = ran.per_packet();
                let all = ran.outcome.total();
                let busy = (all.busy + all.spinning) as f64 / (ran.outcome.now - ran.outcome.from) as f64;
                let placed = if !pinned {
                    "unpinned"
                } else if local {
                    "local"
                } else {
                    "spread"
                };
                let accesses = ran.outcome.accesses as f64 / 1e6;
                println!(
                    "{placed:8}  {discipline:10}  {qdisc:5}  {:5.1}  {cpu:13.0}  {waiting:13.0}  {busy:11.0}  {:6}  {:5}  {accesses:6.1} M  {wall:4.2} s  {:3.1}",
                    ran.mpps(),
                    ran.outcome.switches,
                    ran.outcome.migrations,
                    accesses / wall,
                );
            }
        }
    }
}
