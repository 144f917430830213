//! The state that a qdisc moves: which cache lines its calls read and write, and how long its own code takes.
//!
//! The code that runs says it: one thread enqueues and dequeues packets of many flows, and valgrind's tool `lackey` prints the
//! address of each access. (Accesses announced by hand would have to be kept right in each of thirty qdiscs; a debugger's watch or
//! the pages that the kernel marks as written see neither reads nor lines.) The calls are told apart by stores to known
//! addresses, which the trace contains (`ops`). A line counts if a call writes it: a line that is only read stays in the cache
//! of each CPU. Packets and the stack do not count: the simulator knows the accesses to packets, and a stack does not move.
//!
//! The same calls without valgrind, and without the stores, take the time of the qdisc's own code.

mod lines;
mod ops;
mod time;
mod trace;

use txq_cli::common::failure::refused;

use crate::sim::state::State;

pub use ops::traced;

/// The qdiscs that are measured, and their texts in the words of `--qdisc`: `pfifo` is what the others are compared with. Limits
/// are so low that a trace reaches them.
pub const MEASURED_QDISCS: [(&str, &str); 10] = [
    ("pfifo", "pfifo limit 500"),
    ("fq", "fq limit 500"),
    ("fq_codel", "fq_codel limit 500"),
    ("cake", "cake memlimit 128k"),
    (
        "htb",
        "handle 1: htb default 30; \
         class add parent 1: classid 1:1 htb rate 1tbit burst 1gb cburst 1gb; \
         class add parent 1:1 classid 1:10 htb rate 1mbit ceil 1tbit burst 10k cburst 1gb quantum 20000; \
         class add parent 1:1 classid 1:20 htb rate 1mbit ceil 1tbit burst 10k cburst 1gb quantum 20000; \
         class add parent 1:1 classid 1:30 htb rate 1mbit ceil 1tbit burst 10k cburst 1gb quantum 20000; \
         qdisc add parent 1:10 pfifo limit 200; qdisc add parent 1:20 pfifo limit 200; \
         qdisc add parent 1:30 pfifo limit 200",
    ),
    (
        "htb-fq_codel",
        "handle 1: htb default 30; \
         class add parent 1: classid 1:1 htb rate 1tbit burst 1gb cburst 1gb; \
         class add parent 1:1 classid 1:10 htb rate 1mbit ceil 1tbit burst 10k cburst 1gb quantum 20000; \
         class add parent 1:1 classid 1:20 htb rate 1mbit ceil 1tbit burst 10k cburst 1gb quantum 20000; \
         class add parent 1:1 classid 1:30 htb rate 1mbit ceil 1tbit burst 10k cburst 1gb quantum 20000; \
         qdisc add parent 1:10 fq_codel limit 200; qdisc add parent 1:20 fq_codel limit 200; \
         qdisc add parent 1:30 fq_codel limit 200",
    ),
    ("sfq", "sfq"),
    ("prio", "prio"),
    ("tbf", "tbf rate 1tbit burst 1gb limit 60k"),
    ("netem", "netem limit 500"),
];

/// Measures the states of all qdiscs. `program` is this program with the arguments that make it call [`traced`] with
/// the text that follows; `tell` gets the name of each qdisc that is traced.
///
/// # Errors
/// When valgrind does not run.
pub fn states(program: &[&str], mut tell: impl FnMut(&str)) -> anyhow::Result<Vec<State>> {
    let traced = MEASURED_QDISCS.iter().map(|(name, text)| {
        tell(name);
        let program: Vec<String> = program.iter().chain([text]).map(|word| (*word).to_owned()).collect();
        let calls = trace::calls(&program).map_err(refused("valgrind's trace of the qdisc is incomplete"))?;
        Ok((*text, calls))
    });
    let traced = traced.collect::<anyhow::Result<Vec<_>>>()?;
    let times = time::times(&traced)?;
    let all = MEASURED_QDISCS.iter().zip(traced).zip(times);
    Ok(all.map(|(((name, _), (_, calls)), times)| lines::state(name, &calls, times)).collect())
}
