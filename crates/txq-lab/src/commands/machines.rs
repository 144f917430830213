//! `txq sim machines`: lists the machines that can be simulated.

use std::fs;

use crate::sim::machine::Machine;
use serde_json::{Value, json};
use txq_cli::common::out;
use txq_cli::common::table::{align, number};

use super::args::MachinesArgs;

/// Prints all machines, or one.
pub(crate) fn machines(args: &MachinesArgs) -> anyhow::Result<()> {
    let text = match (&args.name, args.json) {
        (Some(name), true) => line(name, &Machine::find(name)?),
        (Some(name), false) => file(name)?,
        (None, true) => all()?.iter().map(|(name, machine)| line(name, machine)).collect(),
        (None, false) => table(&all()?),
    };
    out::write(&text)
}

fn all() -> anyhow::Result<Vec<(&'static str, Machine)>> {
    Machine::names().map(|name| Ok((name, Machine::named(name)?))).collect()
}

/// Returns the file of a machine after checking it.
fn file(name: &str) -> anyhow::Result<String> {
    Machine::find(name)?;
    Ok(match Machine::text(name) {
        Some(text) => text.to_owned(),
        None => fs::read_to_string(name)?,
    })
}

/// Returns one line of JSON: the name to call the machine by, the number of CPUs, and the fields of the file.
fn line(name: &str, machine: &Machine) -> String {
    let mut line = json!({ "machine": name, "cpus": machine.topology.cpus() });
    if let (Value::Object(line), Value::Object(fields)) = (&mut line, json!(machine)) {
        line.extend(fields);
    }
    format!("{line}\n")
}

fn table(machines: &[(&str, Machine)]) -> String {
    let heads = [
        "machine",
        "CPUs",
        "sockets",
        "dies",
        "complexes",
        "cores",
        "threads",
        "hit",
        "rmw",
        "core",
        "complex",
        "die",
        "socket",
        "other",
        "memory",
    ];
    let cells = machines.iter().map(|(name, machine)| {
        let (t, a) = (&machine.topology, &machine.access);
        let counts = [t.cpus(), t.sockets, t.dies, t.complexes, t.cores, t.threads];
        let times =
            [a.hit, a.rmw, a.same_core, a.same_complex, a.same_die, a.same_socket, a.other_socket, a.memory];
        let mut cells = vec![(*name).to_owned()];
        cells.extend(counts.map(|count| count.to_string()));
        cells.extend(times.map(number));
        cells
    });
    let mut text = String::new();
    align(&mut text, heads.map(str::to_owned).to_vec(), cells.collect());
    text
}
