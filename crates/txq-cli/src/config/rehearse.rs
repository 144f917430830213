//! A rehearsal of a file's qdiscs, classes and filters on devices without a wire: what tc would refuse is found before any
//! device is opened or changed.

use txq::NetDev;
use txq::driver::Link;
use txq::pool::{Backing, PoolConfig};
use txq_control::tc;
use txq_device::Null;

use super::locate::{Fault, steps};
use super::{Config, Device};

/// Tries all devices; returns the first fault.
pub(crate) fn rehearse(config: &Config) -> Result<(), Fault> {
    (0..).zip(&config.device).try_for_each(|(index, device)| stand_in(index, device).map(drop))
}

/// Builds a device without a wire, with the qdiscs, classes and filters that `device`, number `index` of its file, describes.
/// It has no threads, and is not sent through.
pub(crate) fn stand_in(index: usize, device: &Device) -> Result<NetDev, Fault> {
    // In turn, so that a fault is that of the last one.
    build(device, &[]).map_err(|error| Fault::new(steps!["device", index], error))?;
    build(device, &["qdisc"]).map_err(|error| Fault::new(steps!["device", index, "qdisc"], error))?;
    let keys = ["qdisc", "default_qdisc"];
    build(device, &keys).map_err(|error| Fault::new(steps!["device", index, "default_qdisc"], error))?;
    let keys = ["qdisc", "default_qdisc", "txq_qdiscs"];
    let dev =
        build(device, &keys).map_err(|error| Fault::new(steps!["device", index, "txq_qdiscs"], error))?;
    for (at, command) in device.tc.iter().enumerate() {
        tc::apply(&dev, command).map_err(|error| {
            Fault::new(steps!["device", index, "tc", at], without_usage(&error.to_string()))
        })?;
    }
    Ok(dev)
}

/// Returns how many packets the qdiscs of a device may queue, as far as their limits are counted in packets. A wrong text counts
/// nothing.
pub(crate) fn queued(device: &Device) -> u64 {
    let Ok(dev) = build(device, &["qdisc", "default_qdisc", "txq_qdiscs"]) else { return 0 };
    device.tc.iter().for_each(|command| drop(tc::apply(&dev, command)));
    dev.pool_demand().queued
}

/// Builds a device with the qdiscs of these keys; returns why not in a line.
fn build(device: &Device, keys: &[&str]) -> Result<NetDev, String> {
    let txqs = device.txqs.map_or(1, |txqs| txqs.get() as u16);
    let link = match device.tun.is_some() || device.udp.is_some() {
        true => Link::Ip,
        false => device.link.unwrap_or_default(),
    };
    let pool = PoolConfig { buffers: 64, backing: Backing::Heap, ..PoolConfig::default() };
    let driver = Null { name: device.name.clone().unwrap_or_default(), link, ..Null::new(txqs) };
    let mut builder = NetDev::builder(driver).txqs(txqs).pool_config(pool);
    if let Some(packets) = device.tx_queue_len {
        builder = builder.tx_queue_len(packets.get() as u32);
    }
    if let Some(qdisc) = device.qdisc.as_ref().filter(|_| keys.contains(&"qdisc")) {
        builder = builder.qdisc(qdisc);
    }
    if let Some(qdisc) = device.default_qdisc.as_ref().filter(|_| keys.contains(&"default_qdisc")) {
        builder = builder.default_qdisc(qdisc);
    }
    for (txq, qdisc) in device.txq_qdiscs.iter().filter(|_| keys.contains(&"txq_qdiscs")) {
        builder = builder.child(txq.0, qdisc);
    }
    builder.build().map_err(|error| without_usage(&error.to_string()))
}

/// Returns an error as one line, without the usage that tc prints after some.
fn without_usage(error: &str) -> String {
    let end = ["\nUsage:", "; Usage:"].iter().filter_map(|usage| error.find(usage)).min();
    error[..end.unwrap_or(error.len())].trim_end().replace('\n', "; ")
}
