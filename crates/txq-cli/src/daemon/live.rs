//! An open device of the daemon, and the watch of its interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use txq::NetDev;
use txq::receive::Receive;
use txq_control::tc;
use txq_device::Watch;
use txq_device::watch::{Claim, State as Link};

use super::socket;
use crate::config::{self, Config, Segments};
use crate::control;
use crate::device::{self, Opened, Received, Reception, Use};

/// The buffers of a device with a qdisc whose limit is not counted in packets, as cake's.
const UNBOUNDED: u64 = 16384;

/// An open device.
pub(super) struct Live {
    /// The file that it is from.
    config: Arc<Config>,
    /// Its number there.
    number: usize,
    pub(super) dev: NetDev,
    /// What it receives with, while no bridge has them.
    pub(super) receivers: Vec<Box<dyn Receive>>,
    watch: Option<Watch>,
    /// The interface's index at the last check.
    index: Option<u32>,
    link: Link,
    /// Whether it has existed.
    was_there: bool,
    /// Tells other bridges of this one.
    claim: Option<Claim>,
    /// Whether the pool was said to be too small for the qdiscs.
    short: AtomicBool,
    mtu: Option<u32>,
    /// Why the interface could not be opened again, as it was last said.
    refused: Option<String>,
}

/// The result of a check of an interface.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    /// Whether the device has new receivers.
    pub(super) receivers: bool,
    /// Whether the interface has another MTU.
    pub(super) mtu: bool,
}

/// Returns the use of device `number` of a file.
pub(super) fn use_of(config: &Config, number: usize) -> Use {
    let name = &config.device[number].name;
    let bridge =
        config.bridge.iter().find(|bridge| bridge.devices.iter().any(|end| Some(end) == name.as_ref()));
    let senders = || config.sender.iter().filter(|sender| sender.device == *name);
    let replays = || config.replay.iter().filter(|replay| replay.device == *name);
    // A device sends what the other end of its bridge receives, and what its clients write.
    let ends = || {
        let on_bridge = |device: &&config::Device| {
            bridge.is_some_and(|bridge| bridge.devices.iter().any(|end| Some(end) == device.name.as_ref()))
        };
        config.device.iter().filter(on_bridge)
    };
    let has_clients = config.socket.iter().any(|socket| socket.device == *name);
    let has_replays = || config.device.get(number).filter(|_| replays().next().is_some()).into_iter();
    let hosts = || config.device.get(number).filter(|_| has_clients).into_iter();
    let clients = config.socket.iter().filter(|socket| socket.device == *name).map(socket::buffers);
    let txqs = bridge.map_or(0, |_| config.device[number].txqs.map_or(1, |txqs| txqs.get()));
    Use {
        threads: txqs
            + senders().map(|sender| sender.threads.get()).sum::<u64>()
            + replays().map(|replay| replay.threads.get()).sum::<u64>(),
        clients: clients.fold(0, u64::saturating_add),
        limit: None,
        longest: senders()
            .map(|sender| sender.packet.longest())
            .chain(has_replays().map(device::longest_frame))
            .chain(ends().chain(hosts()).map(device::longest_frame))
            .max()
            .unwrap_or(0),
        rated: false,
        grows: true,
        waits: true,
        receive: match bridge.map(|bridge| bridge.segments) {
            None => Reception::Off,
            Some(Segments::Cut) => Reception::Cut,
            Some(Segments::Keep) => Reception::Whole,
        },
    }
}

impl Live {
    /// Opens device `number` of a file, with its qdiscs, classes and filters.
    pub(super) fn open(config: &Arc<Config>, number: usize) -> anyhow::Result<Self> {
        let device = &config.device[number];
        let Opened { dev, reception: Received { receivers, watch } } =
            device::open(device, use_of(config, number))?;
        device.tc.iter().try_for_each(|command| tc::apply(&dev, command)).map_err(control::failed)?;
        let mut live = Self {
            config: config.clone(),
            number,
            dev,
            receivers,
            index: watch.as_ref().and_then(Watch::index),
            mtu: watch.as_ref().and_then(Watch::mtu),
            was_there: watch.as_ref().is_none_or(|watch| watch.index().is_some()),
            watch,
            claim: None,
            short: AtomicBool::new(false),
            link: Link::Up,
            refused: None,
        };
        live.fit_pool(0);
        live.check();
        live.tell_room();
        live.tell_neighbours();
        Ok(live)
    }

    pub(super) fn name(&self) -> &str {
        &self.dev.info().name
    }

    /// Returns whether it can stay open for the use that another file makes of it, as its device `device`.
    pub(super) fn serves(&self, used: &Use, device: &config::Device) -> bool {
        use_of(&self.config, self.number).covers(used, &self.dev, device)
    }

    /// Returns whether its interface ends with it.
    pub(super) fn owns_interface(&self) -> bool {
        let config = self.config();
        config.tap.as_ref().or(config.tun.as_ref()).is_some_and(|tunnel| !tunnel.persistent)
    }

    /// Belongs to another file from now on, in which it is number `number`.
    pub(super) fn belongs(&mut self, config: &Arc<Config>, number: usize) {
        (self.config, self.number) = (config.clone(), number);
        device::grow_pool(&self.dev, self.config(), use_of(config, number));
    }

    /// Returns its number in its file.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn config(&self) -> &config::Device {
        &self.config.device[self.number]
    }

    /// Returns whether the interface was up at the last check.
    pub(super) fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// Gives the pool as many buffers as the qdiscs may queue, and `clients` more, those of the connected clients of its sockets.
    pub(super) fn fit_pool(&self, clients: u64) {
        // Without memory for more buffers, the pool stays as it is.
        let Ok(demand) = self.dev.fit_pool() else { return };
        let pool = self.dev.pool();
        // Buffers for whole packets are few: what they hold together is what the qdiscs hold of short ones.
        let whole = use_of(&self.config, self.number).receive == Reception::Whole;
        let is_short = demand.is_short() && !whole;
        if is_short != self.short.swap(is_short, Relaxed) && is_short {
            eprintln!(
                "txq: {demand}; meanwhile packets are refused for want of a buffer before the qdiscs drop any"
            );
        }
        let queued = if demand.others > 0 { UNBOUNDED } else { 0 }.max(demand.fitting());
        let wanted = queued.saturating_add(clients).min(pool.max_buffers().into()) as u32;
        if pool.buffers() < wanted {
            let _ = pool.resize(wanted);
        }
    }

    /// Checks the interface, says on stderr what has changed, and opens an interface that is back.
    pub(super) fn check(&mut self) -> Changes {
        let Some(watch) = &self.watch else { return Changes::default() };
        let resized = watch.mtu().filter(|mtu| self.mtu != Some(*mtu));
        if let Some(mtu) = resized {
            self.dev.set_mtu(mtu);
            self.mtu = resized;
        }
        let receivers = self.check_link();
        // A new interface has its own MTU.
        if let Some(mtu) = resized.filter(|_| !receivers) {
            eprintln!("txq: interface \"{}\" has an MTU of {mtu} bytes now", self.name());
        }
        Changes { receivers, mtu: resized.is_some() }
    }

    /// Says which frames do not fit into the pool's buffers.
    pub(super) fn tell_room(&self) {
        let longest = use_of(&self.config, self.number).longest;
        let room = self.dev.pool().room();
        if self.watch.is_none() || longest <= room {
            return;
        }
        let remedy = match &self.config().af_xdp {
            Some(xdp) => format!(
                "af_xdp takes no longer ones: use af_packet, or `ip link set {} mtu {}`",
                xdp.interface,
                room.saturating_sub(device::HEADERS)
            ),
            None => format!("set pool.room to {longest}"),
        };
        eprintln!(
            "txq: device \"{}\": the MTUs allow frames of {longest} bytes; those of more than {room} are dropped \
             (rx_length_errors): {remedy}",
            self.name()
        );
    }

    /// Says what else receives the frames of a bridge's interface: the kernel, and other bridges.
    fn tell_neighbours(&mut self) {
        let Some(watch) = self.watch.as_ref().filter(|watch| watch.index().is_some()) else { return };
        let is_elsewhere = self.config().tap.as_ref().is_some_and(|tap| tap.namespace.is_some());
        if self.receivers.is_empty() || self.config().tun.is_some() || is_elsewhere {
            return;
        }
        let name = watch.name();
        self.claim = watch.claim();
        if self.claim.is_none() {
            eprintln!(
                "txq: interface \"{name}\" is bridged by another txq, too: both forward each frame; end one of them"
            );
        }
        if watch.has_address() {
            eprintln!(
                "txq: interface \"{name}\" has an IP address: the kernel answers frames that are bridged, too; \
                 `ip addr flush dev {name}` removes it"
            );
        }
    }

    /// Checks the interface's link; returns whether the device has new receivers.
    fn check_link(&mut self) -> bool {
        let Some(watch) = &self.watch else { return false };
        let (index, name) = (watch.index(), watch.name().to_owned());
        // An interface that is made between the two reads is seen at the next check.
        let link = if index.is_some() { watch.state() } else { Link::Gone };
        if index.is_some() && index != self.index {
            if !self.reopen(index) {
                return false;
            }
            let seen = if self.was_there { "back" } else { "there" };
            eprintln!("txq: interface \"{name}\" is {seen}");
            self.was_there = true;
            // The next check says its state by then: an interface that has just been made is not up yet.
            self.link = Link::Up;
            return true;
        }
        self.tell(&name, link);
        false
    }

    /// Says the state of the interface if it differs from the last one.
    fn tell(&mut self, name: &str, link: Link) {
        if link == self.link {
            return;
        }
        match link {
            Link::Gone if !self.was_there => {
                eprintln!(
                    "txq: interface \"{name}\" does not exist: its device waits for it; `ip link` lists all"
                );
            }
            Link::Gone => eprintln!("txq: interface \"{name}\" is gone: its bridge waits until it is back"),
            Link::Down => eprintln!("txq: interface \"{name}\" is down: `ip link set {name} up` starts it"),
            Link::Up => eprintln!("txq: interface \"{name}\" is up again"),
            other => eprintln!("txq: interface \"{name}\" {other}"),
        }
        self.link = link;
    }

    fn reopen(&mut self, index: Option<u32>) -> bool {
        match device::reopen(&self.dev, self.config(), use_of(&self.config, self.number)) {
            Ok(reception) => {
                self.receivers = reception.receivers;
                (self.watch, self.index, self.refused) = (reception.watch, index, None);
                self.claim = None;
                self.tell_neighbours();
                true
            }
            Err(error) => {
                // It is tried again at the next check.
                let why = crate::failure::line(&error);
                if self.refused.as_ref() != Some(&why) {
                    eprintln!("txq: {why}");
                    self.refused = Some(why);
                }
                false
            }
        }
    }
}
