//! Devices that `txq dev add` names in words: the keys are those of the tables in a file.

use anyhow::{anyhow, bail};
use toml::{Table, Value};
use txq_control::NewDevice;

use super::{Device, keys};

/// The types that have an interface: its name is that of the device unless the words say otherwise.
const INTERFACES: [&str; 4] = ["af_packet", "af_xdp", "tap", "tun"];
const TYPES: [&str; 8] = ["dummy", "null", "pcap", "af_packet", "af_xdp", "tap", "tun", "udp"];

/// Returns the configuration of a device's type.
pub(crate) fn of_words(new: &NewDevice) -> anyhow::Result<Device> {
    let kind = new.kind.as_str();
    if !TYPES.contains(&kind) {
        bail!("type \"{kind}\" is none: use one of {}", TYPES.join(", "));
    }
    if new.mtu.is_some() && !matches!(kind, "dummy" | "null" | "tap" | "tun") {
        bail!("mtu is for dummy, null, tap and tun: a device of type {kind} has an MTU of its own");
    }
    let as_in_a_file = |(key, text): &(String, String)| {
        let text = text.as_str();
        (key.clone(), if keys::takes_text(kind, key) { text.into() } else { value(text) })
    };
    let mut keys: Table = new.options.iter().map(as_in_a_file).collect();
    if INTERFACES.contains(&kind) {
        keys.entry("interface").or_insert_with(|| new.name.clone().into());
    }
    if let ("tap" | "tun", Some(mtu)) = (kind, new.mtu) {
        keys.entry("mtu").or_insert(i64::from(mtu).into());
    }
    let mut device = Table::new();
    if kind != "dummy" {
        device.insert(kind.to_owned(), Value::Table(keys));
    }
    device.try_into().map_err(|error: toml::de::Error| {
        anyhow!("type {kind}: {}: `txq run --print-keys` lists the keys of [device.{kind}]", error.message())
    })
}

/// Returns a value that need not be a text as a file would have it: a number, true or false, or a text.
fn value(text: &str) -> Value {
    match text {
        "true" => true.into(),
        "false" => false.into(),
        _ => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
    }
}
