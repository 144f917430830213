//! A serving program and its devices.

use serde::{Deserialize, Serialize};
use txq::NetDev;

/// A serving program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Info {
    /// The name of the program.
    pub program: String,
    /// Its process.
    pub pid: u32,
    /// The release of txq-control in it.
    pub version: String,
    /// The version of the protocol that it speaks.
    pub protocol: u32,
    /// Its devices.
    pub devices: Vec<InfoDevice>,
}

/// A device of a serving program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InfoDevice {
    /// Its name.
    pub name: String,
    /// The longest packet without its link-layer header, in bytes.
    pub mtu: u32,
    /// The maximum number of txqs.
    pub numtxqueues: u16,
    /// The kind of its root qdisc.
    pub qdisc: String,
}

impl InfoDevice {
    /// Returns the description of a device.
    pub(crate) fn of(dev: &NetDev) -> Self {
        let info = dev.info();
        let root = dev.qdiscs(Default::default()).into_iter().next();
        Self {
            name: info.name.clone(),
            mtu: dev.mtu(),
            numtxqueues: info.txqs,
            qdisc: root.map_or_else(|| "noqueue".to_owned(), |root| root.kind),
        }
    }
}
