//! Checks across keys: names that must differ or exist, keys that exclude each other.

use anyhow::{bail, ensure};
use txq::pool::FreeMode;
use txq_cli_common::rate::Rate;

use super::{Config, Device};

/// Fills in missing names of devices; returns an error for the first contradiction.
pub(super) fn check(config: &mut Config) -> anyhow::Result<()> {
    ensure!(!config.device.is_empty(), "there is no device: write a [[device]]");
    ensure!(!config.sender.is_empty(), "there is no sender: write a [[sender]]");
    for (index, device) in config.device.iter_mut().enumerate() {
        one_driver(device)?;
        bound_of_use(device)?;
        device.name.get_or_insert_with(|| format!("dev{index}"));
    }
    let names: Vec<String> = config.device.iter().flat_map(|device| device.name.clone()).collect();
    for (index, name) in names.iter().enumerate() {
        ensure!(!names[..index].contains(name), "two devices are called \"{name}\": give one another name");
    }
    for sender in &mut config.sender {
        match &sender.device {
            Some(name) if !names.contains(name) => {
                bail!("a sender's device \"{name}\" does not exist: use one of {}", names.join(", "))
            }
            None if names.len() > 1 => {
                bail!("a sender does not say its device: add device = \"{}\" or another", names[0])
            }
            _ => {}
        }
        let device = sender.device.get_or_insert_with(|| names[0].clone());
        ensure!(sender.rate != Rate::Recorded, "rate \"recorded\" is for replay: use pps, bit or max");
        let room = config.device.iter().find(|d| d.name.as_ref() == Some(device)).and_then(|d| d.pool.room);
        if let Some(room) = room.filter(|room| room.size() < sender.packet.longest()) {
            bail!(
                "packets of {} bytes do not fit into the {room} of pool.room: use smaller packets or more room",
                sender.packet.longest()
            );
        }
    }
    Ok(())
}

/// Refuses `pool.defer_max` where the mode of freeing has no inbox to bound.
fn bound_of_use(device: &Device) -> anyhow::Result<()> {
    if device.pool.defer_max.is_some() && device.pool.free != FreeMode::Defer {
        bail!("pool.defer_max is for pool.free = \"defer\": leave out one of the two");
    }
    Ok(())
}

fn one_driver(device: &Device) -> anyhow::Result<()> {
    let given = [
        ("null", device.null.is_some()),
        ("pcap", device.pcap.is_some()),
        ("af_packet", device.af_packet.is_some()),
        ("af_xdp", device.af_xdp.is_some()),
        ("tap", device.tap.is_some()),
        ("tun", device.tun.is_some()),
        ("udp", device.udp.is_some()),
    ];
    let mut given = given.iter().filter(|(_, given)| *given).map(|(name, _)| name);
    if let (Some(first), Some(second)) = (given.next(), given.next()) {
        bail!("a device is both {first} and {second}: keep one of the two");
    }
    Ok(())
}
