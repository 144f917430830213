//! An open device of the daemon, and the watch of its interface.

use std::sync::Arc;

use txq::NetDev;
use txq::receive::Receive;
use txq_control::tc;
use txq_device::Watch;
use txq_device::watch::State as Link;

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
    /// What the last look at the interface found.
    index: Option<u32>,
    link: Link,
    /// Why the interface could not be opened again, as it was last said.
    refused: Option<String>,
}

/// Returns the use of device `number` of a file.
pub(super) fn use_of(config: &Config, number: usize) -> Use {
    let name = &config.device[number].name;
    let bridge =
        config.bridge.iter().find(|bridge| bridge.devices.iter().any(|end| Some(end) == name.as_ref()));
    let senders = || config.sender.iter().filter(|sender| sender.device == *name);
    let replays = || config.replay.iter().filter(|replay| replay.device == *name);
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
            .chain(replays().map(|replay| replay.longest()))
            .max()
            .unwrap_or(0),
        rated: false,
        grows: true,
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
            watch,
            link: Link::Up,
            refused: None,
        };
        live.fit_pool(0);
        live.look();
        Ok(live)
    }

    pub(super) fn name(&self) -> &str {
        &self.dev.info().name
    }

    /// Returns whether it can stay open for the use that another file makes of it, as its device `device`.
    pub(super) fn serves(&self, used: &Use, device: &config::Device) -> bool {
        use_of(&self.config, self.number).covers(used, &self.dev, device)
    }

    /// Belongs to another file from now on, in which it is number `number`.
    pub(super) fn belongs(&mut self, config: &Arc<Config>, number: usize) {
        (self.config, self.number) = (config.clone(), number);
        device::grow_pool(&self.dev, self.config(), use_of(config, number));
    }

    pub(super) fn config(&self) -> &config::Device {
        &self.config.device[self.number]
    }

    /// Returns whether the interface was up when it was last looked at.
    pub(super) fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// Gives the pool as many buffers as the qdiscs may queue, and `clients` more, those of the connected clients of its sockets.
    pub(super) fn fit_pool(&self, clients: u64) {
        // Without memory for more buffers, the pool stays as it is.
        let Ok(demand) = self.dev.fit_pool() else { return };
        let pool = self.dev.pool();
        let queued = if demand.others > 0 { UNBOUNDED } else { 0 }.max(demand.fitting());
        let wanted = queued.saturating_add(clients).min(pool.max_buffers().into()) as u32;
        if pool.buffers() < wanted {
            let _ = pool.resize(wanted);
        }
    }

    /// Looks at the interface, says on stderr what has changed, and opens an interface that is back. Returns whether the
    /// device has new receivers.
    pub(super) fn look(&mut self) -> bool {
        let Some(watch) = &self.watch else { return false };
        let (index, name) = (watch.index(), watch.name().to_owned());
        // An interface that is made between the two looks is seen at the next one.
        let link = if index.is_some() { watch.state() } else { Link::Gone };
        if index.is_some() && index != self.index {
            if !self.reopen(index) {
                return false;
            }
            eprintln!("txq: interface \"{name}\" is back");
            self.link = Link::Up;
            self.tell(&name, link);
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
                true
            }
            Err(error) => {
                // It is tried again at the next look.
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
