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

/// The longest capture, in bytes: all of it is in memory while it is sent.
const MAX_CAPTURE_BYTES: u64 = 512 << 20;

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

/// Reads the captures of all replays; returns the first that its device cannot send.
pub(in crate::config) fn read(config: &mut Config) -> Result<(), Fault> {
    for (index, replay) in config.replay.iter_mut().enumerate() {
        let fault = |message: String| Fault::new(steps!["replay", index, "file"], message);
        let Some(device) = config.device.iter().find(|device| device.name == replay.device) else { continue };
        readable(&replay.file).map_err(fault)?;
        let remote = device.udp.as_ref().map(|udp| udp.remote);
        let tape = Tape::read(&replay.file, remote).map_err(|error| fault(crate::failure::line(&error)))?;
        suits(device, &replay.file, &tape).map_err(fault)?;
        replay.tape = Some(Arc::new(tape));
    }
    Ok(())
}

/// Returns why a daemon does not read a file: another type would make it wait, and a longer one takes its memory.
fn readable(file: &Path) -> Result<(), String> {
    // One that is not there is refused when it is read.
    let Ok(found) = fs::metadata(file) else { return Ok(()) };
    let shown = file.display();
    if !found.is_file() {
        return Err(format!("capture \"{shown}\" is no regular file: use one that is"));
    }
    if found.len() > MAX_CAPTURE_BYTES {
        let (size, most) = (found.len() >> 20, MAX_CAPTURE_BYTES >> 20);
        return Err(format!(
            "capture \"{shown}\" has {size} MiB, and a daemon reads {most} MiB at most into memory: cut it, with `editcap -r`"
        ));
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
    if let Some(room) = device.pool.room.filter(|room| room.size() < tape.longest()) {
        let longest = tape.longest();
        return Err(format!(
            "packets of {longest} bytes do not fit into the {room} of pool.room: use more room, or another capture"
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
