//! What the suite needs of a device, and the devices.

use std::path::PathBuf;
use std::time::Duration;

use txq::driver::{Driver, Link};
use txq::pool::Pool;
use txq_device::{AfPacket, AfXdp, Capture, Null, Pcap, Tun, tun};

use crate::support::netns::{Counters, Netns};
use crate::support::process::wait_until;
use crate::support::receiver::Receiver;
use crate::support::skip::{require, require_af_xdp, require_root, require_tools};
use crate::support::tempdir::TempDir;

/// How long a busy machine may need.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A driver, and the pool that it must be used with, if any.
pub(crate) type Opened = (Box<dyn Driver>, Option<Pool>);

/// A device with something at its other end.
pub(crate) trait Wire {
    /// Returns what its packets begin with.
    fn link(&self) -> Link;

    /// Opens it.
    fn open(&mut self, txqs: u16) -> Opened;

    /// Waits until `packets` have arrived at the other end, and returns all that have arrived since the last call, from
    /// their first header on. `None` if there is no other end.
    fn arrived(&mut self, packets: usize) -> Option<Vec<Vec<u8>>>;

    /// Returns how many packets the device itself has counted as sent since it was made.
    fn counted(&self) -> Option<u64> {
        None
    }

    /// Takes the link down or up; returns false if it has none.
    fn set_up(&mut self, _: bool) -> bool {
        false
    }

    /// Removes the device under its driver; returns false if that cannot happen.
    fn remove(&mut self) -> bool {
        false
    }

    /// Returns whether it refuses packets longer than its MTU and header.
    fn has_mtu(&self) -> bool {
        true
    }

    /// Returns whether two drivers may be open at the same time.
    fn is_shared(&self) -> bool {
        true
    }

    /// Returns whether a packet may arrive with the checksum `is`, where `right` would be right and `partial` is one that is left to
    /// the device.
    fn accepts(&self, is: u16, right: u16, _partial: u16) -> bool {
        is == right
    }
}

/// The null device has no other end.
pub(crate) fn null(_: &str) -> Option<Box<dyn Wire>> {
    struct Wires;
    impl Wire for Wires {
        fn link(&self) -> Link {
            Link::Ethernet
        }
        fn open(&mut self, txqs: u16) -> Opened {
            (Box::new(Null { ring: 64, ..Null::new(txqs) }), None)
        }
        fn arrived(&mut self, _: usize) -> Option<Vec<Vec<u8>>> {
            None
        }
        fn has_mtu(&self) -> bool {
            false
        }
    }
    Some(Box::new(Wires))
}

/// A file, of Ethernet frames or of IP packets.
pub(crate) fn pcap(_: &str) -> Option<Box<dyn Wire>> {
    Some(Box::new(File { folder: TempDir::new(), files: 0, link: Link::Ethernet }))
}

pub(crate) fn pcap_ip(_: &str) -> Option<Box<dyn Wire>> {
    Some(Box::new(File { folder: TempDir::new(), files: 0, link: Link::Ip }))
}

struct File {
    folder: TempDir,
    files: usize,
    link: Link,
}

impl File {
    fn path(&self, n: usize) -> PathBuf {
        self.folder.path().join(format!("{n}.pcap"))
    }
}

impl Wire for File {
    fn link(&self) -> Link {
        self.link
    }

    fn open(&mut self, txqs: u16) -> Opened {
        self.files += 1;
        (Box::new(Pcap::create(self.path(self.files), txqs).unwrap().link(self.link)), None)
    }

    /// Only a device that has ended has written everything.
    fn arrived(&mut self, _: usize) -> Option<Vec<Vec<u8>>> {
        let capture = Capture::open(self.path(self.files)).unwrap();
        let (mut frames, mut all) = (capture.frames(), Vec::new());
        while frames.advance().unwrap() {
            all.push(frames.frame().data.to_vec());
        }
        Some(all)
    }

    fn has_mtu(&self) -> bool {
        false
    }

    fn is_shared(&self) -> bool {
        false
    }
}

/// A veth pair: tx0 in one namespace, rx0 in another.
pub(crate) struct Veth<O> {
    pub(crate) near: Netns,
    far: Netns,
    before: Counters,
    receiver: Option<Receiver>,
    /// Whether two drivers may be open at the same time.
    shared: bool,
    open: O,
}

impl<O: FnMut(&Netns, u16) -> Opened> Veth<O> {
    pub(crate) fn make(test: &str, open: O) -> Option<Self> {
        if !(require_root(test) && require_tools(test, &["ip", "tc"])) {
            return None;
        }
        let (near, far) = (Netns::new(), Netns::new());
        near.connect("tx0", &far, "rx0", 8);
        let before = near.counters("tx0");
        let receiver = Some(Receiver::start(&far, "rx0"));
        Some(Self { near, far, before, receiver, shared: true, open })
    }
}

impl<O: FnMut(&Netns, u16) -> Opened> Wire for Veth<O> {
    fn link(&self) -> Link {
        Link::Ethernet
    }

    fn open(&mut self, txqs: u16) -> Opened {
        (self.open)(&self.near, txqs)
    }

    fn arrived(&mut self, packets: usize) -> Option<Vec<Vec<u8>>> {
        let receiver = self.receiver.take()?;
        wait_until(LONG, || receiver.count() >= packets as u64);
        let frames = receiver.finish();
        self.receiver = Some(Receiver::start(&self.far, "rx0"));
        Some(frames)
    }

    fn counted(&self) -> Option<u64> {
        Some(self.near.counters("tx0").since(self.before).tx_packets)
    }

    fn set_up(&mut self, up: bool) -> bool {
        self.near.ip(&format!("link set tx0 {}", if up { "up" } else { "down" }));
        if up {
            self.near.wait_carrier("tx0");
        }
        true
    }

    fn remove(&mut self) -> bool {
        // The other end goes with it.
        self.receiver = None;
        self.near.ip("link del tx0");
        true
    }

    fn is_shared(&self) -> bool {
        self.shared
    }
}

pub(crate) fn af_packet(test: &str) -> Option<Box<dyn Wire>> {
    veth_of(test, false)
}

/// The kernel cuts packets with segments.
pub(crate) fn af_packet_gso(test: &str) -> Option<Box<dyn Wire>> {
    veth_of(test, true)
}

/// A queue has one socket.
pub(crate) fn af_xdp(test: &str) -> Option<Box<dyn Wire>> {
    if !require_af_xdp(test) {
        return None;
    }
    let open = |near: &Netns, txqs| {
        let pool = Pool::new(&AfXdp::pool_config(4096)).unwrap();
        let of = pool.clone();
        let device = near.call(move || AfXdp::open("tx0", txqs, &of).unwrap());
        (Box::new(device) as Box<dyn Driver>, Some(pool))
    };
    Some(Box::new(Veth { shared: false, ..Veth::make(test, open)? }))
}

/// A TUN whose interface the kernel receives from.
pub(crate) fn tun(test: &str) -> Option<Box<dyn Wire>> {
    tun_of(test, Tun::create("t0"), Link::Ip)
}

/// A TAP without virtio-net headers, so senders cut packets with segments.
pub(crate) fn tap(test: &str) -> Option<Box<dyn Wire>> {
    tun_of(test, Tun::create_tap("t0").vnet_header(false), Link::Ethernet)
}

fn tun_of(test: &str, config: tun::Config, link: Link) -> Option<Box<dyn Wire>> {
    let is_there = std::path::Path::new("/dev/net/tun").exists();
    if !(require_root(test)
        && require_tools(test, &["ip"])
        && require(test, is_there, "needs /dev/net/tun (modprobe tun)"))
    {
        return None;
    }
    let netns = Netns::new();
    // The interface stays when a driver ends, so the receiver and the counters do, too. It has several queues.
    let config = config.namespace(netns.name());
    drop(config.clone().queues(2).persistent(true).open().unwrap());
    let receiver = Some(Receiver::start(&netns, "t0"));
    Some(Box::new(Tunnel { netns, config, link, receiver }))
}

struct Tunnel {
    netns: Netns,
    config: tun::Config,
    link: Link,
    receiver: Option<Receiver>,
}

impl Wire for Tunnel {
    fn link(&self) -> Link {
        self.link
    }

    fn open(&mut self, txqs: u16) -> Opened {
        (Box::new(self.config.clone().queues(txqs).attach(true).open().unwrap()), None)
    }

    fn arrived(&mut self, packets: usize) -> Option<Vec<Vec<u8>>> {
        let receiver = self.receiver.take()?;
        wait_until(LONG, || receiver.count() >= packets as u64);
        let frames = receiver.finish();
        self.receiver = Some(Receiver::start(&self.netns, "t0"));
        Some(frames)
    }

    fn counted(&self) -> Option<u64> {
        let shown: serde_json::Value =
            serde_json::from_str(&self.netns.ip("-s -j link show dev t0")).expect("JSON of ip");
        shown[0]["stats64"]["rx"]["packets"].as_u64()
    }

    /// The kernel receives what the program sends, and needs no checksum of a program's own machine.
    fn accepts(&self, is: u16, right: u16, partial: u16) -> bool {
        is == right || is == partial
    }

    fn set_up(&mut self, up: bool) -> bool {
        self.netns.ip(&format!("link set t0 {}", if up { "up" } else { "down" }));
        true
    }

    fn remove(&mut self) -> bool {
        self.receiver = None;
        self.netns.ip("link del t0");
        true
    }
}

fn veth_of(test: &str, gso: bool) -> Option<Box<dyn Wire>> {
    let open = move |near: &Netns, txqs| {
        let device = near.call(move || AfPacket::open("tx0", txqs).unwrap().gso(gso));
        (Box::new(device) as Box<dyn Driver>, None)
    };
    Some(Box::new(Veth::make(test, open)?))
}

pub(crate) fn udp(test: &str) -> Option<Box<dyn Wire>> {
    crate::datagrams::wire(test)
}
