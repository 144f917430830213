//! TUN and TAP in namespaces: packets of both directions, the kernel's counters and the library's counters must agree,
//! also while interfaces go down, come back, disappear and are left behind by killed programs.

#[allow(dead_code, reason = "shared with tests that need more of it")]
#[path = "../support"]
mod support {
    pub(crate) mod home;
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod receiver;
    pub(crate) mod skip;
}
mod cable;
mod errors;
mod killed;
mod receive;
mod segments;
mod send;
mod wire;

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use support::home::assert_home;
use support::netns::Netns;
use support::process::wait_until;
use support::skip::{require, require_root, require_tools};
use txq::netdev::Builder;
use txq::packet::PacketList;
use txq::pool::{Backing, PoolConfig};
use txq::receive::Receive;
use txq::stats::device::DeviceStats;
use txq::{NetDev, Sender};
use txq_device::Tun;
use txq_device::tun::{Config, Receiver as Queue};

const PATIENCE: Duration = Duration::from_secs(10);

/// A namespace for a test that runs alone: a process that another test starts inherits the queues until it executes its
/// program, and an interface exists while a queue does.
struct Place {
    netns: Netns,
    _alone: MutexGuard<'static, ()>,
}

impl Deref for Place {
    type Target = Netns;

    fn deref(&self) -> &Netns {
        &self.netns
    }
}

/// Waits for the other tests to end.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a namespace, or `None` if the machine cannot run the test.
fn namespace(test: &str) -> Option<Place> {
    let is_there = std::path::Path::new("/dev/net/tun").exists();
    let may = require_root(test)
        && require_tools(test, &["ip", "tc"])
        && require(test, is_there, "needs /dev/net/tun (modprobe tun)");
    may.then(|| {
        let alone = alone();
        Place { netns: Netns::new(), _alone: alone }
    })
}

/// Opens an interface in a namespace.
#[track_caller]
fn open(config: Config, namespace: &Netns) -> Tun {
    config.namespace(namespace.name()).open().unwrap()
}

fn builder(tun: Tun) -> Builder {
    let pool = PoolConfig { buffers: 2048, backing: Backing::Heap, ..PoolConfig::default() };
    NetDev::builder(tun).qdisc("pfifo limit 10000").pool_config(pool)
}

/// A pool whose buffers hold the longest packets.
fn long_buffers(buffers: u32) -> PoolConfig {
    PoolConfig { buffers, room: 65_553, backing: Backing::Heap, ..PoolConfig::default() }
}

fn send(sender: &mut Sender, packets: impl IntoIterator<Item = Vec<u8>>) {
    for packet in packets {
        let packet = sender.packet(&packet).unwrap();
        let _ = sender.xmit(packet);
    }
}

/// Waits until all packets have left, and checks that the interface counts as many, and that no packet is lost.
#[track_caller]
fn settle(dev: &NetDev, namespace: &Netns) -> DeviceStats {
    assert!(dev.drain(PATIENCE), "packets do not leave: {:?}", dev.stats());
    assert_home(dev);
    let stats = dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    let rx = &counters(namespace, &dev.info().name)["rx"];
    let counted = (rx["packets"].as_u64().unwrap(), rx["bytes"].as_u64().unwrap());
    assert_eq!((stats.sent, stats.bytes_sent), counted, "{stats:?} {rx}");
    stats
}

/// Returns the kernel's counters of an interface.
fn counters(namespace: &Netns, interface: &str) -> Value {
    let list: Value =
        serde_json::from_str(&namespace.ip(&format!("-s -j link show dev {interface}"))).unwrap();
    list[0]["stats64"].clone()
}

/// Receives `n` packets; returns their bytes.
#[track_caller]
fn receive(queue: &mut Queue, sender: &mut Sender, n: usize) -> Vec<Vec<u8>> {
    let mut packets = PacketList::new();
    let enough = wait_until(PATIENCE, || {
        let missing = n - packets.len();
        queue.receive(missing, sender, &mut packets).unwrap();
        packets.len() == n || {
            let _ = queue.wait(Some(Duration::from_millis(10))).unwrap();
            false
        }
    });
    assert!(enough, "{} of {n} packets came: {:?}", packets.len(), queue.stats());
    packets.iter().map(|packet| packet.data().to_vec()).collect()
}
