//! Checks across keys: names that must differ or exist, keys that exclude each other.

use std::path::Path;

use crate::common::rate::Rate;
use txq::pool::FreeMode;

use super::locate::{Fault, steps};
use super::words::Segments;
use super::{Bridge, Config, Device};
use crate::device::WHOLE;

mod replays;
mod sockets;

pub(crate) use replays::Depth;
pub(super) use replays::open as open_captures;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `txq run`: it sends.
    Run,
    /// `txq daemon`: it forwards, and may send.
    Daemon,
}

/// Fills in missing names of devices; returns the first contradiction.
pub(super) fn check(config: &mut Config, purpose: Purpose) -> Result<(), Fault> {
    if config.device.is_empty() && purpose == Purpose::Run {
        return Err(Fault::new(steps!["device"], "there is no device: write a [[device]]"));
    }
    match purpose {
        Purpose::Run if config.sender.is_empty() => {
            return Err(Fault::new(steps!["sender"], "there is no sender: write a [[sender]]"));
        }
        Purpose::Run if !config.bridge.is_empty() => {
            let remedy = "use `txq daemon --config`";
            return Err(Fault::new(steps!["bridge"], format!("a bridge is for a daemon: {remedy}")));
        }
        Purpose::Run if !config.socket.is_empty() => {
            let remedy = "use `txq daemon --config`";
            return Err(Fault::new(steps!["socket"], format!("a socket is for a daemon: {remedy}")));
        }
        Purpose::Run if !config.replay.is_empty() => {
            let remedy = "use `txq replay`, or `txq daemon --config`";
            return Err(Fault::new(steps!["replay"], format!("a replay is for a daemon: {remedy}")));
        }
        Purpose::Daemon if config.duration.is_some() => {
            let remedy = "leave it out: a daemon ends by a signal";
            return Err(Fault::new(steps!["duration"], format!("duration is for `txq run`: {remedy}")));
        }
        _ => {}
    }
    for (index, device) in config.device.iter_mut().enumerate() {
        one_driver(index, device)?;
        bound_of_use(index, device)?;
        let name = device.name.get_or_insert_with(|| format!("dev{index}"));
        if name.contains(char::is_control) {
            let message = format!("{name:?} cannot name a device: use characters that can be printed");
            return Err(Fault::new(steps!["device", index, "name"], message));
        }
    }
    let names: Vec<String> = config.device.iter().flat_map(|device| device.name.clone()).collect();
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            let message = format!("two devices are called \"{name}\": give one another name");
            return Err(Fault::new(steps!["device", index, "name"], message));
        }
    }
    senders(config, &names)?;
    sockets::check(config, &names)?;
    replays::check(config, &names)?;
    for (index, bridge) in config.bridge.iter().enumerate() {
        ends(index, bridge, config, &names)?;
    }
    Ok(())
}

/// Fills in the device of a sender, a socket or a replay, and returns it; or returns why it has none.
fn own_device<'d>(
    user: &str,
    device: &'d mut Option<String>,
    devices: &[String],
) -> Result<&'d mut String, String> {
    let [first, others @ ..] = devices else {
        return Err(format!("a {user} has no device: write a [[device]]"));
    };
    match device {
        Some(name) if !devices.contains(name) => {
            let known = devices.join(", ");
            Err(format!("a {user}'s device \"{name}\" does not exist: use one of {known}"))
        }
        None if !others.is_empty() => {
            Err(format!("a {user} does not say its device: add device = \"{first}\" or another"))
        }
        _ => Ok(device.get_or_insert_with(|| first.clone())),
    }
}

/// Fills in the name of a socket or a replay, which is by default that of its file, and returns it; or returns why it has none.
fn own_name(
    user: &str,
    name: &mut Option<String>,
    file: &Path,
    earlier: &[String],
) -> Result<String, String> {
    let stem = || file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.get_or_insert_with(stem);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        let remedy = "add a name of 1 to 64 of the characters a-z, A-Z, 0-9, _ and -";
        return Err(format!("\"{name}\" cannot name a {user}: {remedy}"));
    }
    if earlier.contains(name) {
        return Err(format!("two {user}s are called \"{name}\": give one another name"));
    }
    Ok(name.clone())
}

fn senders(config: &mut Config, names: &[String]) -> Result<(), Fault> {
    for (index, sender) in config.sender.iter_mut().enumerate() {
        let fault = |key: &'static str, message: String| Fault::new(steps!["sender", index, key], message);
        let device = own_device("sender", &mut sender.device, names).map_err(|why| fault("device", why))?;
        if sender.rate == Rate::Recorded {
            return Err(fault("rate", "rate \"recorded\" is for replay: use pps, bit or max".to_owned()));
        }
        let room = config.device.iter().find(|d| d.name.as_ref() == Some(&*device)).and_then(|d| d.pool.room);
        if let Some(room) = room.filter(|room| room.size() < sender.packet.longest()) {
            let longest = sender.packet.longest();
            let remedy = "use smaller packets or more room";
            return Err(fault(
                "packet",
                format!("packets of {longest} bytes do not fit into the {room} of pool.room: {remedy}"),
            ));
        }
    }
    Ok(())
}

/// Checks the devices of a bridge.
fn ends(index: usize, bridge: &Bridge, config: &Config, names: &[String]) -> Result<(), Fault> {
    let fault =
        |end: usize, message: String| Err(Fault::new(steps!["bridge", index, "devices", end], message));
    let mut links = Vec::new();
    for (end, name) in bridge.devices.iter().enumerate() {
        let Some(device) = names.iter().position(|known| known == name) else {
            let known = names.join(", ");
            return fault(end, format!("a bridge's device \"{name}\" does not exist: use two of {known}"));
        };
        let Some(carries) = carries(&config.device[device]) else {
            let remedy = "use af_packet, af_xdp, tap or tun";
            return fault(end, format!("device \"{name}\" does not receive for a bridge: {remedy}"));
        };
        let users = config.bridge[..=index].iter().flat_map(|bridge| &bridge.devices);
        let earlier = users.take(2 * index + end).any(|other| other == name);
        if earlier {
            let remedy = "give each bridge two devices of its own";
            return fault(end, format!("device \"{name}\" is an end of a bridge already: {remedy}"));
        }
        let room = config.device[device].pool.room.filter(|room| room.size() < WHOLE);
        if let (Segments::Keep, Some(room)) = (bridge.segments, room) {
            let message = format!(
                "pool.room {room} is too small for segments = \"keep\": leave it out, or use {WHOLE} or more"
            );
            return Err(Fault::new(steps!["device", device, "pool", "room"], message));
        }
        links.push(carries);
    }
    if links[0] != links[1] {
        let [a, b] = &bridge.devices;
        let message = format!(
            "device \"{a}\" carries {}, and \"{b}\" {}: use two of af_packet, af_xdp and tap; or two of tun, \
             and let the kernel route between one of them and the interface",
            links[0], links[1]
        );
        return fault(1, message);
    }
    Ok(())
}

/// Returns what a device carries that a bridge can receive from; `None` for any other device.
fn carries(device: &Device) -> Option<&'static str> {
    let ethernet = device.af_packet.is_some() || device.af_xdp.is_some() || device.tap.is_some();
    match (ethernet, device.tun.is_some()) {
        (true, _) => Some("Ethernet frames"),
        (false, true) => Some("IP packets"),
        _ => None,
    }
}

/// Refuses `pool.defer_max` where the mode of freeing has no inbox to bound.
fn bound_of_use(index: usize, device: &Device) -> Result<(), Fault> {
    if device.pool.defer_max.is_some() && device.pool.free != FreeMode::Defer {
        let message = "pool.defer_max is for pool.free = \"defer\": leave out one of the two";
        return Err(Fault::new(steps!["device", index, "pool", "defer_max"], message));
    }
    Ok(())
}

fn one_driver(index: usize, device: &Device) -> Result<(), Fault> {
    let given = [
        ("null", device.null.is_some()),
        ("pcap", device.pcap.is_some()),
        ("af_packet", device.af_packet.is_some()),
        ("af_xdp", device.af_xdp.is_some()),
        ("tap", device.tap.is_some()),
        ("tun", device.tun.is_some()),
        ("udp", device.udp.is_some()),
    ];
    let mut given = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name);
    if let (Some(first), Some(second)) = (given.next(), given.next()) {
        let message = format!("a device is both {first} and {second}: keep one of the two");
        return Err(Fault::new(steps!["device", index, second], message));
    }
    Ok(())
}
