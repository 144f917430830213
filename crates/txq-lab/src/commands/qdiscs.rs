//! `txq sim qdiscs`: measures the state of real qdiscs, and writes the file that the simulator reads.

use std::fmt::Write as _;
use std::fs;

use anyhow::Context as _;
use txq_cli::common::failure::refused;
use txq_cli::common::out;
use txq_cli::common::tell::Tell;

use super::args::QdiscsArgs;
use crate::bench::path_ns;
use crate::bench::state::{states, traced};
use crate::sim::state::{Each, State, States};

/// Measures all qdiscs, or makes one's calls for the trace.
pub(crate) fn qdiscs(args: &QdiscsArgs) -> anyhow::Result<()> {
    if let Some(name) = &args.traced {
        return traced(name);
    }
    let own = std::env::current_exe().context("the program's own path")?;
    let own = own.to_str().context("the program's own path is no text")?;
    let mut tell = Tell::new(args.quiet);
    let qdisc = states(&[own, "sim", "qdiscs", "--traced"], |name| tell.say(&format!("qdisc {name}")))?;
    tell.end();
    let states = States { path_ns: path_ns()?, qdisc };
    let text = text(&states);
    match &args.out {
        None => out::write(&text),
        Some(file) => fs::write(file, text).map_err(refused(&file.display().to_string())),
    }
}

/// Returns the file's text.
fn text(states: &States) -> String {
    let mut text = String::from(
        "# The cache lines that the calls of qdiscs read and write, and the nanoseconds of their code. `txq sim qdiscs --out FILE`\n\
         # writes this file; crates/txq-lab/src/sim/state.rs says what each field means.\n",
    );
    let _ = writeln!(text, "path_ns = [{:.1}, {:.1}]", states.path_ns[0], states.path_ns[1]);
    for State { name, fixed, flow, others, again, recent, among, data, ns } in &states.qdisc {
        let _ = write!(
            text,
            "\n[[qdisc]]\nname = {name:?}\nfixed = {}\nflow = {}\nothers = {}\nagain = {}\nrecent = {}\namong = {among}\ndata = {data}\n\
             ns = {{ call = {}, packet = {} }}\n",
            each(fixed),
            each(flow),
            each(others),
            each(again),
            each(recent),
            each(&ns.call),
            each(&ns.packet)
        );
    }
    text
}

fn each<T: std::fmt::Debug>(values: &Each<T>) -> String {
    let Each { enqueue, dequeue, drop } = values;
    format!("{{ enqueue = {enqueue:?}, dequeue = {dequeue:?}, drop = {drop:?} }}")
}
