//! Devices that `txq dev add` names in words, and their sockets: the keys are those of the tables in a file.

use anyhow::{anyhow, bail};
use serde::de::DeserializeOwned;
use toml::{Table, Value};
use txq_control::NewDevice;

use crate::common::within::{Txqs, Within};

use super::check::{self, Purpose};
use super::{Config, Device, Socket, keys};

/// The types that have an interface: its name is that of the device unless the words say otherwise.
const INTERFACE_TYPES: [&str; 4] = ["af_packet", "af_xdp", "tap", "tun"];
const TYPES: [&str; 8] = ["dummy", "null", "pcap", "af_packet", "af_xdp", "tap", "tun", "udp"];

/// The keys of a socket; `socket` is its path.
const SOCKET: [&str; 7] = ["socket", "group", "clients", "slots", "credit", "priority_max", "idle_timeout"];

/// The types that open nothing of the system: no file, interface or socket.
const INTERNAL_TYPES: [&str; 2] = ["dummy", "null"];

/// Returns the configuration of a device, and that of its socket if it has one.
///
/// # Errors
/// The words are wrong, or the client may not have what they name: this process opens files, interfaces and sockets with its own
/// permissions, so only its own user and root may name them.
pub(crate) fn of_words(new: &NewDevice) -> anyhow::Result<(Device, Option<Socket>)> {
    let kind = new.kind.as_str();
    let opens = |(key, _): &(String, String)| SOCKET.contains(&key.as_str());
    if !new.by_owner
        && TYPES.contains(&kind)
        && (!INTERNAL_TYPES.contains(&kind) || new.options.iter().any(opens))
    {
        bail!(
            "Operation not permitted: a member of the daemon's group adds devices of type {} without a socket: ask root for a [[device]] in the \
             daemon's file",
            INTERNAL_TYPES.join(" and ")
        );
    }
    let (of_socket, options): (Vec<_>, Vec<_>) =
        new.options.iter().cloned().partition(|(key, _)| SOCKET.contains(&key.as_str()));
    let mut plain = new.clone();
    plain.options = options;
    let device = Device {
        name: Some(new.name.clone()),
        txqs: Some(Txqs::of(new.txqs.into())),
        tx_queue_len: new.tx_queue_len.map(|len| Within::of(len.into())),
        mtu: new.mtu,
        ..of_type(&plain)?
    };
    if of_socket.is_empty() {
        return Ok((device, None));
    }
    let is_text = |key: &str| matches!(key, "socket" | "group" | "idle_timeout");
    let keys = of_socket.iter().map(|(key, text)| {
        let name = if key == "socket" { "path" } else { key };
        (name.to_owned(), if is_text(key) { text.as_str().into() } else { value(text) })
    });
    let keys: Table = keys.collect();
    if !keys.contains_key("path") {
        bail!("{} is a key of a socket: add socket PATH", of_socket[0].0);
    }
    let socket = read(&keys).map_err(|error| {
        anyhow!("socket: {}: `txq run --print-keys` lists the keys of [[socket]]", error.message())
    })?;
    let mut config = Config { device: vec![device], socket: vec![socket], ..Config::default() };
    check::check(&mut config, Purpose::Daemon).map_err(|fault| fault.at("txq dev add", ""))?;
    Ok((config.device.remove(0), config.socket.pop()))
}

/// Returns the configuration of a device's type.
fn of_type(new: &NewDevice) -> anyhow::Result<Device> {
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
    if INTERFACE_TYPES.contains(&kind) {
        keys.entry("interface").or_insert_with(|| new.name.clone().into());
    }
    if let ("tap" | "tun", Some(mtu)) = (kind, new.mtu) {
        keys.entry("mtu").or_insert(i64::from(mtu).into());
    }
    let mut device = Table::new();
    if kind != "dummy" {
        device.insert(kind.to_owned(), Value::Table(keys));
    }
    read(&device).map_err(|error| {
        anyhow!("type {kind}: {}: `txq run --print-keys` lists the keys of [device.{kind}]", error.message())
    })
}

/// Reads a table as a file is read. A table can be read without its text, but each type would be compiled once more for that.
fn read<T: DeserializeOwned>(table: &Table) -> Result<T, toml::de::Error> {
    toml::from_str(&table.to_string())
}

/// Returns a value that need not be a text as a file would have it: a number, true or false, or a text.
fn value(text: &str) -> Value {
    match text {
        "true" => true.into(),
        "false" => false.into(),
        _ => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
    }
}
