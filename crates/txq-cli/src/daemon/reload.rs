//! Reload: applies the difference between the file as it was last read and the file as it is.
//!
//! The new file has been checked, and its qdiscs rehearsed, before anything is touched. A device whose `qdisc`, `tc` or
//! `tx_queue_len` differs stays open and changes its queues ([`queues`]); one of which anything else differs is opened
//! anew. If a device does not open, the devices and bridges of the old file run again, and nothing has changed.

use std::fmt::Write;
use std::sync::Arc;

use crate::common::failure::Refused;
use anyhow::ensure;
use toml::{Table, Value};
use txq_device::Watch;

use super::live::{Live, use_of};
use super::queues;
use super::socket;
use super::state::State;
use crate::config::{Config, Device, Loaded};

/// Keys of a device that change while it is open.
const QUEUE_KEYS: [&str; 3] = ["qdisc", "tc", "tx_queue_len"];

/// What becomes of a device of the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It stays as it is.
    Same,
    /// It stays open, and its queues change.
    Queues,
    /// It is opened: new, or anew.
    Open,
}

/// Both files, side by side.
struct Both {
    old: Arc<Config>,
    new: Arc<Config>,
    fates: Vec<Fate>,
    /// Devices that are closed: those without a place in the new file, and those to be opened anew.
    closed: Vec<String>,
    /// Bridges that stay, by their ends.
    kept: Vec<[String; 2]>,
    /// Sockets that stay, by their names.
    kept_sockets: Vec<String>,
    /// Replays that stay, by their names.
    kept_replays: Vec<String>,
    /// Whether all senders stay.
    same_senders: bool,
}

impl State {
    /// Applies a file that was checked and rehearsed; returns a line for each change. After an error, nothing has changed.
    pub(super) fn reload(&mut self, loaded: Loaded) -> anyhow::Result<String> {
        self.apply(Arc::new(loaded.config), loaded.raw)
    }

    /// As [`reload`](Self::reload), of a file that may be the present one.
    pub(super) fn apply(&mut self, config: Arc<Config>, raw: Table) -> anyhow::Result<String> {
        let Some(old) = self.config.clone() else {
            return Err(Refused(
                "the daemon was started without --config: there is nothing to compare".to_owned(),
            )
            .into());
        };
        let both = Both::compare(old, &self.raw, config, &raw, &self.live);
        let devices = both.new.device.iter().zip(&both.fates);
        interfaces_exist(devices.filter(|(_, fate)| **fate == Fate::Open).map(|(device, _)| device))?;
        // Before anything is stopped: queues that cannot change in place are found on devices without a wire.
        let steps = queues::plan(&both.old, &both.new, |number| both.fates[number] == Fate::Queues)?;
        let _held = self.realtime.hold()?;
        if let Err(error) = self.replace_devices(&both) {
            self.restore(&both);
            return Err(error);
        }
        (self.config, self.raw) = (Some(both.new.clone()), raw);
        let mut said = String::new();
        for (number, steps) in steps {
            let name = both.name(number);
            let live = self.live.iter_mut().find(|live| live.name() == name);
            live.into_iter().for_each(|live| steps.apply(live, &mut said));
        }
        self.fit_pools();
        self.start_missing()?;
        both.tell(&mut said);
        Ok(if said.is_empty() { "txq: nothing has changed\n".to_owned() } else { said })
    }

    /// Stops what does not stay, closes and opens devices. Bridges and senders are not started again.
    fn replace_devices(&mut self, both: &Both) -> anyhow::Result<()> {
        if !both.same_senders {
            self.generators = None;
        }
        self.players.retain(|player| both.kept_replays.contains(&player.name));
        self.stop_bridges(|ends| both.kept.contains(ends));
        self.sockets.close(|name| both.keeps_socket(name));
        self.live.retain(|live| !both.closed.iter().any(|closed| closed == live.name()));
        for number in 0..both.new.device.len() {
            let name = both.name(number);
            match self.live.iter_mut().find(|live| live.name() == name) {
                Some(live) => live.belongs(&both.new, number),
                None => self.live.push(Live::open(&both.new, number)?),
            }
        }
        // In the order of the file, in which commands list them.
        self.live
            .sort_by_key(|live| (0..both.new.device.len()).find(|&number| both.name(number) == live.name()));
        // A path may be another program's.
        self.sockets.open_missing(&both.new, &self.live)
    }

    /// Opens the devices of the old file again that were closed, and starts its bridges and senders.
    fn restore(&mut self, both: &Both) {
        let old = |name: &str| {
            (0..both.old.device.len()).find(|&n| both.old.device[n].name.as_deref() == Some(name))
        };
        self.sockets.close(|name| both.keeps_socket(name));
        self.live.retain(|live| !both.is_opened(live.name()));
        for number in 0..both.old.device.len() {
            let name = both.old.device[number].name.clone().unwrap_or_default();
            match self.live.iter_mut().find(|live| live.name() == name) {
                Some(live) => live.belongs(&both.old, number),
                None => match Live::open(&both.old, number) {
                    Ok(live) => self.live.push(live),
                    Err(error) => eprintln!("txq: {}", crate::failure::line(&error)),
                },
            }
        }
        self.live.sort_by_key(|live| old(live.name()));
        if let Err(error) = self.start_missing() {
            eprintln!("txq: {}", crate::failure::line(&error));
        }
    }

    /// Stops the bridges that do not stay.
    fn stop_bridges(&mut self, stays: impl Fn(&[String; 2]) -> bool) {
        let (kept, stopped): (Vec<_>, Vec<_>) =
            self.bridges.drain(..).partition(|bridge| stays(&bridge.ends));
        self.bridges = kept;
        stopped.into_iter().for_each(|bridge| bridge.stop(&mut self.live));
    }
}

impl Both {
    fn compare(old: Arc<Config>, old_raw: &Table, new: Arc<Config>, new_raw: &Table, live: &[Live]) -> Self {
        let old_number =
            |name: &str| (0..old.device.len()).find(|&n| old.device[n].name.as_deref() == Some(name));
        let mut fates = Vec::new();
        for (number, device) in new.device.iter().enumerate() {
            let before = device.name.as_deref().and_then(old_number);
            let open = live.iter().find(|live| Some(live.name()) == device.name.as_deref());
            fates.push(match before {
                None => Fate::Open,
                Some(_) if !open.is_some_and(|live| live.serves(&use_of(&new, number), device)) => Fate::Open,
                Some(before) => fate(&table(old_raw, "device", before), &table(new_raw, "device", number)),
            });
        }
        let stays = |name: &Option<String>| {
            (0..new.device.len()).any(|n| new.device[n].name == *name && fates[n] != Fate::Open)
        };
        let closed: Vec<_> = old
            .device
            .iter()
            .map(|device| &device.name)
            .filter(|name| !stays(name))
            .flatten()
            .cloned()
            .collect();
        let mut kept = Vec::new();
        for (number, bridge) in old.bridge.iter().enumerate() {
            let same = (0..new.bridge.len())
                .any(|n| table(new_raw, "bridge", n) == table(old_raw, "bridge", number));
            if same && !bridge.devices.iter().any(|end| closed.contains(end)) {
                kept.push(bridge.devices.clone());
            }
        }
        let mut kept_sockets = Vec::new();
        for (number, socket) in old.socket.iter().enumerate() {
            let same = (0..new.socket.len())
                .find(|&n| table(new_raw, "socket", n) == table(old_raw, "socket", number))
                .filter(|&n| new.socket[n].device == socket.device);
            if same.is_some() && !socket.device.as_ref().is_some_and(|device| closed.contains(device)) {
                kept_sockets.push(socket::name(socket));
            }
        }
        let mut kept_replays = Vec::new();
        for (number, replay) in old.replay.iter().enumerate() {
            let same = new.replay.iter().enumerate().any(|(n, other)| {
                other.name() == replay.name()
                    && other.device == replay.device
                    && table(new_raw, "replay", n) == table(old_raw, "replay", number)
                    && matches!((&other.tape, &replay.tape), (Some(one), Some(other)) if one.is_like(other))
            });
            if same && !replay.device.as_ref().is_some_and(|device| closed.contains(device)) {
                kept_replays.push(replay.name().to_owned());
            }
        }
        let senders = |config: &Config| {
            config.sender.iter().filter_map(|sender| sender.device.clone()).collect::<Vec<_>>()
        };
        let same_senders = old_raw.get("sender") == new_raw.get("sender")
            && !senders(&old).iter().any(|device| closed.contains(device));
        Self { old, new, fates, closed, kept, kept_sockets, kept_replays, same_senders }
    }

    fn name(&self, number: usize) -> &str {
        self.new.device[number].name.as_deref().unwrap_or_default()
    }

    fn keeps_socket(&self, name: &str) -> bool {
        self.kept_sockets.iter().any(|kept| kept == name)
    }

    /// Returns whether a device of the new file is opened.
    fn is_opened(&self, name: &str) -> bool {
        (0..self.new.device.len()).any(|number| self.name(number) == name && self.fates[number] == Fate::Open)
    }

    /// Writes a line for each device and bridge that came, went or was opened anew.
    fn tell(&self, said: &mut String) {
        for name in self.closed.iter().filter(|name| !self.is_opened(name)) {
            let _ = writeln!(said, "txq: device \"{name}\" is closed");
        }
        for number in (0..self.fates.len()).filter(|&number| self.fates[number] == Fate::Open) {
            let name = self.name(number);
            let anew = if self.closed.iter().any(|closed| closed == name) { " anew" } else { "" };
            let _ = writeln!(said, "txq: device \"{name}\" is opened{anew}");
        }
        let ends =
            |config: &Config| config.bridge.iter().map(|bridge| bridge.devices.clone()).collect::<Vec<_>>();
        let (old, new) = (ends(&self.old), ends(&self.new));
        for [a, b] in old.iter().filter(|ends| !new.contains(ends)) {
            let _ = writeln!(said, "txq: the bridge of \"{a}\" and \"{b}\" is stopped");
        }
        for [a, b] in new.iter().filter(|ends| !self.kept.contains(ends)) {
            let _ = writeln!(said, "txq: the bridge of \"{a}\" and \"{b}\" is started");
        }
        let sockets = |config: &Config| config.socket.iter().map(socket::name).collect::<Vec<_>>();
        let gone = |name: &&String| !self.keeps_socket(name);
        for name in sockets(&self.old).iter().filter(gone) {
            let _ = writeln!(said, "txq: the socket \"{name}\" is closed");
        }
        for name in sockets(&self.new).iter().filter(gone) {
            let _ = writeln!(said, "txq: the socket \"{name}\" is opened");
        }
        let replays =
            |config: &Config| config.replay.iter().map(|replay| replay.name().to_owned()).collect::<Vec<_>>();
        let differs = |name: &&String| !self.kept_replays.contains(name);
        for name in replays(&self.old).iter().filter(differs) {
            let _ = writeln!(said, "txq: the replay \"{name}\" is stopped");
        }
        for name in replays(&self.new).iter().filter(differs) {
            let _ = writeln!(said, "txq: the replay \"{name}\" is started");
        }
        if !self.same_senders {
            let _ = writeln!(said, "txq: the senders are started anew");
        }
    }
}

/// Refuses devices whose interface does not exist.
pub(super) fn interfaces_exist<'c>(devices: impl IntoIterator<Item = &'c Device>) -> anyhow::Result<()> {
    for device in devices {
        let af_packet = device.af_packet.as_ref().map(|device| &device.interface);
        let af_xdp = device.af_xdp.as_ref().map(|device| &device.interface);
        for interface in af_packet.into_iter().chain(af_xdp) {
            let watch = Watch::interface(interface).map_err(|error| Refused(error.to_string()))?;
            ensure!(
                watch.index().is_some(),
                Refused(format!(
                    "there is no interface \"{interface}\": `ip link` lists the interfaces of this network namespace"
                ))
            );
        }
    }
    Ok(())
}

/// Returns the table number `number` of a list of tables.
fn table(raw: &Table, list: &str, number: usize) -> Table {
    let found = raw.get(list).and_then(Value::as_array).and_then(|list| list.get(number));
    found.and_then(Value::as_table).cloned().unwrap_or_default()
}

/// Compares two tables of one device.
fn fate(old: &Table, new: &Table) -> Fate {
    let rest = |table: &Table| -> Table {
        table
            .iter()
            .filter(|(key, _)| !QUEUE_KEYS.contains(&key.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    if old == new {
        Fate::Same
    } else if rest(old) == rest(new) {
        Fate::Queues
    } else {
        Fate::Open
    }
}
