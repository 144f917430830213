//! What the kernel says of one of its interfaces: txqs and XPS maps from sysfs, qdiscs from tc, offloads from ethtool.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::failure::Refused;
use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value};
use txq::cpumask::CpuMask;

mod advice;
pub(crate) mod doctor;
pub(crate) mod programs;
pub(crate) mod xps;

/// An interface of the kernel. A value that the machine does not tell is `None`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// The driver's name.
    pub(crate) driver: Option<String>,
    pub(crate) up: bool,
    pub(crate) carrier: Option<bool>,
    /// In Mbit/s.
    pub(crate) speed: Option<u64>,
    pub(crate) mtu: u64,
    /// How many CPUs are online.
    pub(crate) cpus: usize,
    pub(crate) txqs: Vec<Txq>,
    /// Rows of `tc -s -j qdisc show`.
    pub(crate) qdiscs: Option<Vec<Map<String, Value>>>,
    /// Features that can be changed, and whether they are on.
    pub(crate) offloads: Option<BTreeMap<String, bool>>,
    /// The most channels that the device can have, and how many it has.
    pub(crate) channels: Option<(u64, u64)>,
}

/// A transmit queue.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Txq {
    /// CPUs whose packets go here, as a list such as `0-3,8`; empty without a map.
    pub(crate) cpus: Vec<usize>,
    /// Whether it is chosen by receive queue.
    pub(crate) by_rxq: bool,
    /// How often its watchdog has expired.
    pub(crate) timeouts: u64,
    /// In Mbit/s; 0 for none.
    pub(crate) max_rate: u64,
    /// The byte queue limit, if the driver has them.
    pub(crate) bql: Option<Bql>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Bql {
    pub(crate) limit: u64,
    pub(crate) limit_max: u64,
    pub(crate) inflight: u64,
}

/// Returns an interface's folder in sysfs; an error if there is none.
fn folder(name: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new("/sys/class/net").join(name);
    let strange = name.is_empty() || name.contains('/') || name.starts_with('.');
    if !strange && path.join("queues").is_dir() {
        return Ok(path);
    }
    let known = names();
    anyhow::bail!("interface \"{name}\": there is none here; there are {}", known.join(", "))
}

/// Returns the names of all interfaces of this namespace.
pub(crate) fn names() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.path().join("queues").is_dir());
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

impl Interface {
    /// Reads all there is about an interface.
    pub(crate) fn read(name: &str) -> anyhow::Result<Self> {
        let path = folder(name)?;
        let text =
            |file: &str| std::fs::read_to_string(path.join(file)).ok().map(|text| text.trim().to_owned());
        let number = |file: &str| text(file).and_then(|text| text.parse::<u64>().ok());
        let driver = std::fs::read_link(path.join("device/driver")).ok();
        let flags =
            text("flags").and_then(|flags| u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok());
        Ok(Self {
            name: name.to_owned(),
            driver: driver.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned())),
            up: flags.is_some_and(|flags| flags & 1 != 0),
            carrier: number("carrier").map(|carrier| carrier == 1),
            // An interface without a wire says -1, or refuses.
            speed: number("speed"),
            mtu: number("mtu").unwrap_or(0),
            cpus: online()?.len(),
            txqs: txqs(&path)?,
            qdiscs: json("tc", &["-s", "-j", "qdisc", "show", "dev", name]),
            offloads: offloads(name),
            channels: channels(name),
        })
    }
}

/// Returns the CPUs that are online.
fn online() -> anyhow::Result<CpuMask> {
    let path = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(path).context(path)?;
    CpuMask::parse_list(text.trim(), 1 << 16).context(path)
}

fn txqs(path: &Path) -> anyhow::Result<Vec<Txq>> {
    let mut txqs = Vec::new();
    loop {
        let queue = path.join(format!("queues/tx-{}", txqs.len()));
        if !queue.is_dir() {
            return Ok(txqs);
        }
        let text =
            |file: &str| std::fs::read_to_string(queue.join(file)).ok().map(|text| text.trim().to_owned());
        let number = |file: &str| text(file).and_then(|text| text.parse::<u64>().ok());
        // A device with one txq has no maps: the kernel answers ENOENT.
        let mask = |file: &str| text(file).and_then(|mask| CpuMask::parse(&mask, 1 << 16).ok());
        let bql = number("byte_queue_limits/limit").map(|limit| Bql {
            limit,
            limit_max: number("byte_queue_limits/limit_max").unwrap_or(0),
            inflight: number("byte_queue_limits/inflight").unwrap_or(0),
        });
        txqs.push(Txq {
            cpus: mask("xps_cpus").map(|mask| mask.iter().collect()).unwrap_or_default(),
            by_rxq: mask("xps_rxqs").is_some_and(|mask| !mask.is_empty()),
            timeouts: number("tx_timeout").unwrap_or(0),
            max_rate: number("tx_maxrate").unwrap_or(0),
            bql,
        });
    }
}

/// Runs a program that prints JSON; `None` if it is missing, or fails.
fn json<T: serde::de::DeserializeOwned>(program: &str, words: &[&str]) -> Option<T> {
    let out = Command::new(program).args(words).output().ok().filter(|out| out.status.success())?;
    serde_json::from_slice(&out.stdout).ok()
}

fn offloads(name: &str) -> Option<BTreeMap<String, bool>> {
    let rows: Vec<Map<String, Value>> = json("ethtool", &["--json", "-k", name])?;
    let row = rows.into_iter().next()?;
    // A group has null: it can be changed if one of its features can.
    let member = |feature: &str, group: &str| match group {
        "tcp-segmentation-offload" => feature.starts_with("tx-tcp"),
        "tx-checksumming" => feature.starts_with("tx-checksum-"),
        "scatter-gather" => feature.starts_with("tx-scatter-gather"),
        _ => false,
    };
    let can_change = |name: &str, of: &Value| match of["fixed"].as_bool() {
        Some(fixed) => !fixed,
        None => row.iter().any(|(feature, of)| member(feature, name) && of["fixed"] == false),
    };
    let changeable = row.iter().filter(|(name, of)| can_change(name, of));
    Some(changeable.filter_map(|(name, of)| Some((name.clone(), of["active"].as_bool()?))).collect())
}

/// Reads the channels that transmit: `ethtool -l` has no JSON in the releases that distributions ship.
fn channels(name: &str) -> Option<(u64, u64)> {
    let out = Command::new("ethtool").args(["-l", name]).output().ok().filter(|out| out.status.success())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (most, now) = text.split_once("Current hardware settings")?;
    let count = |part: &str| {
        let of =
            |kind: &str| part.lines().find_map(|line| line.strip_prefix(kind)?.trim().parse::<u64>().ok());
        Some(of("TX:").unwrap_or(0) + of("Combined:").unwrap_or(0)).filter(|&n| n > 0)
    };
    Some((count(most)?, count(now)?))
}

/// Writes a mask of CPUs for each txq.
pub(crate) fn write_xps(name: &str, masks: &[String]) -> anyhow::Result<()> {
    let path = folder(name)?;
    for (txq, mask) in masks.iter().enumerate() {
        let file = path.join(format!("queues/tx-{txq}/xps_cpus"));
        std::fs::write(&file, mask).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "run it as root, in the host's or the container's own namespace"
                }
                io::ErrorKind::NotFound => "an interface with one txq has no map: nothing is to be chosen",
                _ => "does the kernel have CONFIG_XPS?",
            };
            Refused(format!("{}: {error}: {remedy}", file.display()))
        })?;
    }
    Ok(())
}
