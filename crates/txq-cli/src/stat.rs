//! `txq stat`: the counters of a running program's devices, as `ethtool -S` prints those of a card.

use crate::common::out::{self, cell};
use serde_json::{Map, Value, json};
use txq_control::Counters;

use crate::args::StatArgs;
use crate::control;

/// Prints a line for each counter, under its device's name.
pub(crate) fn stat(args: &StatArgs) -> anyhow::Result<()> {
    let mut client = control::connect(&args.target)?;
    let found = client.stat(args.dev.as_deref()).map_err(control::failed)?;
    if args.json {
        let devices: Vec<Value> = found.iter().map(object).collect();
        return out::write(&format!("{}\n", json!(devices)));
    }
    let lines = |device: &Counters| {
        let counters = device.counters.iter().map(|(name, value)| format!("     {}: {value}\n", cell(name)));
        format!("{} statistics:\n{}", cell(&device.device), counters.collect::<String>())
    };
    out::write(&found.iter().map(lines).collect::<String>())
}

fn object(device: &Counters) -> Value {
    let counters: Map<_, _> =
        device.counters.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({ "device": device.device, "counters": counters })
}
