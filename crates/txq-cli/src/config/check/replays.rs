//! Checks of `[[replay]]`s: names that must differ, devices that must exist, and captures that their devices can send.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::common::rate::Rate;
use txq::driver::Link;

use super::super::locate::{Fault, steps};
use super::super::{Config, Device};
use super::{own_device, own_name};
use crate::replay::Tape;

/// Fills in missing names of replays and of their devices; returns the first contradiction.
pub(super) fn check(config: &mut Config, devices: &[String]) -> Result<(), Fault> {
    let mut earlier: Vec<String> = Vec::new();
    for (index, replay) in config.replay.iter_mut().enumerate() {
        let fault = |key: &'static str, message: String| Fault::new(steps!["replay", index, key], message);
        let name =
            own_name("replay", &mut replay.name, &replay.file, &earlier).map_err(|why| fault("name", why))?;
        earlier.push(name);
        own_device("replay", &mut replay.device, devices).map_err(|why| fault("device", why))?;
        if replay.max_gap.is_some() && replay.rate != Rate::Recorded {
            return Err(fault("max_gap", "max_gap is for rate = \"recorded\": leave it out".to_owned()));
        }
        if replay.speed.is_some() && replay.rate != Rate::Recorded {
            let remedy = "leave out one of the two";
            return Err(fault("speed", format!("speed is for rate = \"recorded\": {remedy}")));
        }
    }
    Ok(())
}

/// How far captures are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// To the first frame.
    First,
    /// To the end.
    Whole,
}

/// Opens the captures of all replays; returns the first that its device cannot send.
pub(in crate::config) fn open(config: &mut Config, depth: Depth) -> Result<(), Fault> {
    for (index, replay) in config.replay.iter_mut().enumerate() {
        let fault = |message: String| Fault::new(steps!["replay", index, "file"], message);
        let Some(device) = config.device.iter().find(|device| device.name == replay.device) else { continue };
        readable(&replay.file).map_err(fault)?;
        let wrong = |error: anyhow::Error| fault(crate::failure::line(&error));
        let tape = Tape::open(&replay.file).map_err(wrong)?;
        suits(device, &replay.file, &tape).map_err(fault)?;
        if depth == Depth::Whole {
            let longest = tape.read(device.udp.as_ref().map(|udp| udp.remote)).map_err(wrong)?;
            has_room(device, longest).map_err(fault)?;
        }
        replay.tape = Some(Arc::new(tape));
    }
    Ok(())
}

/// Returns why a daemon does not read a file: another type would make it wait.
fn readable(file: &Path) -> Result<(), String> {
    // One that is not there is refused when it is read.
    let Ok(found) = fs::metadata(file) else { return Ok(()) };
    let shown = file.display();
    if !found.is_file() {
        return Err(format!("capture \"{shown}\" is no regular file: use one that is"));
    }
    Ok(())
}

/// Returns why a device cannot send a capture.
fn suits(device: &Device, file: &Path, tape: &Tape) -> Result<(), String> {
    let (shown, name) = (file.display(), device.name.as_deref().unwrap_or_default());
    let (carries, remedy) = match device {
        // A datagram's payload may be either.
        Device { udp: Some(_), .. } => (tape.link(), ""),
        Device { tun: Some(_), .. } => (Link::Ip, "use a device of af_packet, af_xdp or tap"),
        Device { af_packet: Some(_), .. } | Device { af_xdp: Some(_), .. } | Device { tap: Some(_), .. } => {
            (Link::Ethernet, "use a device of tun")
        }
        _ => match tape.link() {
            Link::Ip => (device.link.unwrap_or_default(), "add link = \"ip\" to the device"),
            _ => (device.link.unwrap_or_default(), "add link = \"ethernet\" to the device"),
        },
    };
    if carries != tape.link() {
        return Err(format!(
            "capture \"{shown}\" has packets that begin with {}, and those of device \"{name}\" begin with {carries}: {remedy}",
            tape.link()
        ));
    }
    let same = |output: &Path| {
        fs::canonicalize(output).is_ok_and(|output| fs::canonicalize(file).is_ok_and(|file| file == output))
    };
    if device.pcap.as_ref().is_some_and(|pcap| same(&pcap.file)) {
        return Err(format!("device \"{name}\" would overwrite the capture \"{shown}\": use another file"));
    }
    Ok(())
}

/// Returns why a device has no room for packets of `longest` bytes. What an interface has room for, it decides when the device opens.
fn has_room(device: &Device, longest: usize) -> Result<(), String> {
    let has_interface =
        device.af_packet.is_some() || device.af_xdp.is_some() || device.tap.is_some() || device.tun.is_some();
    let room = match device.pool.room {
        Some(room) => room.size(),
        None if has_interface => return Ok(()),
        None => crate::device::default_room(device),
    };
    if room >= longest {
        return Ok(());
    }
    let name = device.name.as_deref().unwrap_or_default();
    Err(format!(
        "packets of {longest} bytes do not fit into the {room} of device \"{name}\": set its pool.room to {longest}, or use another \
         capture"
    ))
}
