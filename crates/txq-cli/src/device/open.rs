//! Opens the driver that a `[[device]]` names.

use std::io;

use crate::common::failure::Refused;
use anyhow::ensure;
use txq::driver::{DeviceInfo, Driver, Link};
use txq::pool::{Pool, PoolConfig};
use txq::receive::Receive;
use txq_device::faults::{Faults, Rates};
use txq_device::{AfPacket, AfXdpConfig, Null, Pcap, Tun, Udp, Watch};

use super::absent::{Absent, Silent};
use super::late::Late;
use super::{DELAY, MTU, Received, Reception, STALL, Use, refusal};
use crate::config;

/// A driver, the pool that it must be used with, if any, and what the device receives with.
pub(super) struct Driven {
    pub(super) driver: Box<dyn Driver>,
    pub(super) pool: Option<Pool>,
    pub(super) reception: Received,
}

/// The device to open.
struct Opening<'c> {
    config: &'c config::Device,
    name: &'c str,
    txqs: u16,
    used: Use,
    /// Whether the device's interface was open before, and has been removed since.
    again: bool,
    reception: Received,
}

/// Opens the driver that a device names. An interface is checked, and a tunnel created, at once; AF_PACKET sockets are bound and
/// files created when the first txq is opened. `before` is the pool of a device whose interface was removed and is back.
pub(super) fn driver(
    config: &config::Device,
    name: &str,
    txqs: u16,
    used: Use,
    before: Option<&Pool>,
) -> anyhow::Result<Driven> {
    let (again, reception) = (before.is_some(), Received::default());
    let mut opening = Opening { config, name, txqs, used, again, reception };
    let mut pool = None;
    let late = if let Some(pcap) = &config.pcap {
        opening.pcap(pcap)
    } else if let Some(af_packet) = &config.af_packet {
        opening.af_packet(af_packet)?
    } else if let Some(af_xdp) = &config.af_xdp {
        let ring = super::xdp_ring(af_xdp);
        if super::is_pinned(config, used.receive) {
            let own = before.cloned().map_or_else(|| opening.pool(super::pool(config, name, used)), Ok)?;
            opening.af_xdp(af_xdp, ring, pool.insert(own))?
        } else {
            let rings = opening.pool(super::rings_memory(config, name, ring, used))?;
            opening.af_xdp(af_xdp, ring, &rings)?
        }
    } else if let Some(tun) = &config.tun {
        opening.tun(tun, Link::Ip)?
    } else if let Some(tap) = &config.tap {
        opening.tun(tap, Link::Ethernet)?
    } else if let Some(udp) = &config.udp {
        opening.udp(udp)?
    } else {
        opening.null()
    };
    let driver: Box<dyn Driver> = match &config.faults {
        Some(faults) => Box::new(Faults::new(late, faults.seed, rates(faults))),
        None => Box::new(late),
    };
    Ok(Driven { driver, pool, reception: opening.reception })
}

impl Opening<'_> {
    /// What packets begin with, of a device that does not say it itself.
    fn link(&self) -> Link {
        self.config.link.unwrap_or_default()
    }

    fn info(&self, mtu: u32) -> DeviceInfo {
        DeviceInfo::new(self.name).txqs(self.txqs).mtu(mtu).link(self.link()).gso(true)
    }

    fn pool(&self, config: PoolConfig) -> anyhow::Result<Pool> {
        Pool::new(&config).map_err(|error| refusal(error.into()))
    }

    /// Refuses packets that do not begin as those of the device do.
    fn same_link(&self, device: Link) -> anyhow::Result<()> {
        let packets = self.config.link.unwrap_or(device);
        let remedy = match device {
            Link::Ethernet => "send them through one of IP packets, or capture on an Ethernet interface",
            _ => "send them through an Ethernet device",
        };
        ensure!(
            packets == device,
            "the packets begin with {packets}, and those of device \"{}\" with {device}: {remedy}",
            self.name
        );
        Ok(())
    }

    /// Gives a device that is open the name of the configuration.
    fn opened(&self, driver: Box<dyn Driver>) -> anyhow::Result<Late> {
        let is = driver.info();
        self.same_link(is.link)?;
        let info = DeviceInfo::new(self.name)
            .txqs(is.txqs)
            .mtu(is.mtu)
            .link(is.link)
            .gso(is.gso)
            .checksum(is.checksum);
        Ok(Late::new(info, move || Ok(driver)))
    }

    fn null(&self) -> Late {
        let config = self.config.null.as_ref();
        let null =
            Null { link: self.link(), ..config.map_or_else(|| Null::new(self.txqs), |null| self.wire(null)) };
        Late::new(self.info(self.config.mtu.unwrap_or(MTU)), move || Ok(null))
    }

    fn wire(&self, config: &config::Null) -> Null {
        let default = Null::new(self.txqs);
        Null {
            ring: config.ring.map_or(default.ring, |ring| ring.get() as u32),
            rate: config.rate.map(|rate| rate.0),
            delay: config.delay.map_or(default.delay, |span| span.0),
            coalesce: config.coalesce.map_or(default.coalesce, |span| span.0),
            inline: config.inline.unwrap_or(default.inline),
            ..default
        }
    }

    fn pcap(&self, pcap: &config::Pcap) -> Late {
        let (file, txqs, link) = (pcap.file.clone(), self.txqs, self.link());
        Late::new(self.info(MTU), move || Ok(Pcap::create(file, txqs)?.link(link)))
    }

    fn af_packet(&mut self, config: &config::AfPacket) -> anyhow::Result<Late> {
        let interface = &config.interface;
        // Before anything is opened.
        self.same_link(Link::Ethernet)?;
        let whole = self.used.receive == Reception::Whole;
        if self.watches(interface)? {
            return Ok(self.absent(|info| info.gso(whole).checksum(whole)));
        }
        let device = AfPacket::open(interface, self.txqs).map_err(refused)?;
        if self.reception.watch.is_none() && !device.is_up() {
            let text = format!("interface \"{interface}\" is down: `ip link set {interface} up` starts it");
            return Err(Refused(text).into());
        }
        if self.used.receive != Reception::Off {
            self.receives(device.receivers(self.txqs).map_err(refused)?);
        }
        self.opened(Box::new(device.bypass(!config.kernel_qdisc).gso(whole)))
    }

    fn af_xdp(&mut self, config: &config::AfXdp, ring: u32, pool: &Pool) -> anyhow::Result<Late> {
        self.same_link(Link::Ethernet)?;
        if self.watches(&config.interface)? {
            return Ok(self.absent(|info| info));
        }
        let (first_queue, receive) = (config.first_queue, self.used.receive != Reception::Off);
        let xdp =
            AfXdpConfig { first_queue, receive, ring, ..AfXdpConfig::new(&config.interface, self.txqs) };
        let mut device = xdp.open(pool).map_err(refused)?;
        if receive {
            self.receives(device.receivers());
        }
        self.opened(Box::new(device))
    }

    fn tun(&mut self, tun: &config::Tun, link: Link) -> anyhow::Result<Late> {
        self.same_link(link)?;
        let mut options = match link {
            Link::Ip => Tun::create(&tun.interface),
            _ => Tun::create_tap(&tun.interface),
        };
        let whole = self.used.receive == Reception::Whole;
        // The user who removed the interface makes it again, with its addresses and routes.
        options = options.queues(self.txqs).persistent(tun.persistent).gro(whole).attach(self.again);
        if let Some(mtu) = tun.mtu {
            options = options.mtu(mtu.get() as u32);
        }
        if let Some(namespace) = &tun.namespace {
            options = options.namespace(namespace);
        }
        let device = options.open().map_err(refused)?;
        if self.used.receive != Reception::Off {
            self.receives(device.receivers());
            self.reception.watch = Some(device.watch().map_err(refused)?);
        }
        self.opened(Box::new(device))
    }

    /// Watches the interface of a device that stays open, and returns whether the device waits for its interface.
    fn watches(&mut self, interface: &str) -> anyhow::Result<bool> {
        if !self.used.waits {
            return Ok(false);
        }
        let watch = Watch::interface(interface).map_err(refused)?;
        let is_absent = watch.index().is_none();
        self.reception.watch = Some(watch);
        Ok(is_absent)
    }

    /// Returns the driver of an interface that does not exist; its receivers are kept for the caller.
    fn absent(&mut self, own: impl FnOnce(DeviceInfo) -> DeviceInfo) -> Late {
        let info = own(DeviceInfo::new(self.name).txqs(self.txqs).mtu(MTU).link(Link::Ethernet));
        if self.used.receive != Reception::Off {
            self.receives((0..self.txqs).map(|_| Silent).collect());
        }
        let absent = Absent(info.clone());
        Late::new(info, move || Ok(absent))
    }

    /// Keeps the receivers for the caller.
    fn receives<R: Receive + 'static>(&mut self, receivers: Vec<R>) {
        let boxed = |receiver| Box::new(receiver) as Box<dyn Receive>;
        self.reception.receivers = receivers.into_iter().map(boxed).collect();
    }

    fn udp(&self, udp: &config::Udp) -> anyhow::Result<Late> {
        let any = if udp.remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let local = udp.local.unwrap_or_else(|| any.parse().expect("an address"));
        let device = Udp::connect(local, udp.remote).map_err(|error| {
            Refused(format!(
                "device \"{}\" has no socket from {local} to {}: {error}: check `ip route`",
                self.name, udp.remote
            ))
        })?;
        self.opened(Box::new(device.txqs(self.txqs)))
    }
}

/// What the system refuses.
fn refused(error: io::Error) -> anyhow::Error {
    Refused(error.to_string()).into()
}

fn rates(config: &config::Faults) -> Rates {
    Rates {
        busy: config.busy.0,
        stall: config.stall.0,
        stall_time: config.stall_time.map_or(STALL, |span| span.0),
        drop: config.drop.0,
        delay: config.delay.0,
        delay_time: config.delay_time.map_or(DELAY, |span| span.0),
        reorder: config.reorder.0,
    }
}
