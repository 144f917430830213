//! The daemon's devices, bridges, sockets, replays and senders.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use txq_control::socket::SocketStats;
use txq_control::{Server, tc};
use txq_device::forward::Meter;

use super::bridge::Bridge;
use super::generate::Generators;
use super::live::{Live, use_of};
use super::realtime::Realtime;
use super::replay::{self, Player};
use super::socket::{self, Sockets};
use crate::config::{Config, Loaded};
use crate::control;

/// How often the daemon checks the interfaces.
const INTERFACE_CHECK: Duration = Duration::from_millis(100);
/// How often it compares the pools with the qdiscs.
const FIT: Duration = Duration::from_secs(1);

/// What bridges, sockets and replays count, for the threads of the control server.
#[derive(Clone, Default)]
pub(crate) struct Meters(Arc<Mutex<Sources>>);

#[derive(Default)]
struct Sources {
    /// By the device that receives.
    bridges: BTreeMap<String, Vec<Meter>>,
    /// `None` while there is no socket.
    sockets: Option<Box<dyn Fn() -> Vec<SocketStats> + Send + Sync>>,
    replays: Vec<replay::Meter>,
}

impl Meters {
    /// Returns the counters of what a device receives, of its sockets and of its replays.
    pub(crate) fn of(&self, device: &str) -> Vec<(String, u64)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counters = all.bridges.get(device).map_or_else(Vec::new, |meters| received(meters));
        let sockets = all.sockets.iter().flat_map(|sockets| sockets());
        counters.extend(sockets.filter(|socket| socket.device == device).flat_map(|s| socket::counters(&s)));
        let replays = all.replays.iter().filter(|replay| replay.device == device);
        counters.extend(replays.flat_map(replay::Meter::counters));
        counters
    }

    pub(super) fn set(&self, bridges: &[Bridge], sockets: &Sockets, players: &[Player]) {
        let ways = bridges.iter().flat_map(|bridge| &bridge.ways);
        let bridges = ways.map(|way| (way.from.clone(), way.meters())).collect();
        let replays = players.iter().map(Player::meter).collect();
        let sources = Sources { bridges, sockets: sockets.meter(), replays };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = sources;
    }
}

/// Returns the counters of what a device receives.
fn received(meters: &[Meter]) -> Vec<(String, u64)> {
    let stats: Vec<_> = meters.iter().map(Meter::stats).collect();
    let sum = |of: fn(&txq_device::forward::Stats) -> u64| stats.iter().map(of).sum();
    // The names of `ethtool -S` and `ip -s -s link`.
    let counters = [
        ("rx_packets", sum(|stats| stats.rx.packets)),
        ("rx_bytes", sum(|stats| stats.rx.bytes)),
        ("rx_added_by_cuts", sum(|stats| stats.added_by_cuts)),
        ("rx_missed_errors", sum(|stats| stats.rx.missed)),
        ("rx_length_errors", sum(|stats| stats.rx.too_long)),
        ("rx_errors", sum(|stats| stats.rx.malformed)),
        ("rx_no_buffer", sum(|stats| stats.starved)),
    ];
    counters.map(|(name, value)| (name.to_owned(), value)).into()
}

/// All that the daemon runs. The fields are dropped in this order: those that send before the devices.
pub(crate) struct State {
    pub(super) generators: Option<Generators>,
    pub(super) players: Vec<Player>,
    pub(super) bridges: Vec<Bridge>,
    pub(super) sockets: Sockets,
    pub(super) live: Vec<Live>,
    pub(super) config: Option<Arc<Config>>,
    /// The file's plain values.
    pub(super) raw: toml::Table,
    meters: Meters,
    pub(super) realtime: Realtime,
    checked: Instant,
    fitted: Instant,
}

impl State {
    /// Opens everything that a file describes, and starts to forward.
    pub(crate) fn start(loaded: Option<Loaded>, meters: Meters, realtime: Realtime) -> anyhow::Result<Self> {
        let _held = realtime.hold()?;
        let now = Instant::now();
        let mut state = Self {
            generators: None,
            players: Vec::new(),
            bridges: Vec::new(),
            sockets: Sockets::default(),
            live: Vec::new(),
            config: None,
            raw: toml::Table::new(),
            meters,
            realtime,
            checked: now,
            fitted: now,
        };
        let Some(Loaded { config, raw }) = loaded else { return Ok(state) };
        let config = Arc::new(config);
        for number in 0..config.device.len() {
            state.live.push(Live::open(&config, number)?);
        }
        (state.config, state.raw) = (Some(config), raw);
        state.start_missing()?;
        Ok(state)
    }

    /// Starts the bridges, sockets, replays and senders that do not run.
    pub(super) fn start_missing(&mut self) -> anyhow::Result<()> {
        let Some(config) = self.config.clone() else { return Ok(()) };
        for bridge in &config.bridge {
            if !self.bridges.iter().any(|running| running.ends == bridge.devices) {
                self.bridges.push(Bridge::start(bridge, &mut self.live)?);
            }
        }
        self.sockets.open_missing(&config, &self.live)?;
        for (number, replay) in config.replay.iter().enumerate() {
            let live = self.live.iter().find(|live| Some(live.name()) == replay.device.as_deref());
            let is_playing = self.players.iter().any(|player| player.name == replay.name());
            if let Some(live) = live.filter(|_| !is_playing) {
                self.players.push(Player::start(&config, number, live)?);
            }
        }
        self.meters.set(&self.bridges, &self.sockets, &self.players);
        if self.generators.is_none() && !config.sender.is_empty() {
            self.generators = Some(Generators::start(&config, &self.live)?);
        }
        Ok(())
    }

    /// Lets the server reach all devices; a device that it reaches already is added once.
    pub(crate) fn serve(&self, server: &Server) -> anyhow::Result<()> {
        self.live.iter().try_for_each(|live| server.add(&live.dev)).map_err(control::failed)
    }

    /// Does the work that is due: checks the interfaces, and compares pools with qdiscs. Returns whether devices were opened anew.
    pub(crate) fn tick(&mut self) -> bool {
        let (now, mut opened) = (Instant::now(), false);
        if now - self.checked >= INTERFACE_CHECK {
            self.checked = now;
            opened = self.check_interfaces() && self.follow_mtu();
        }
        if now - self.fitted >= FIT {
            self.fitted = now;
            self.fit_pools();
        }
        opened
    }

    /// Opens the devices anew whose buffers are too small for the present MTUs, with the qdiscs that they have; returns whether
    /// there are any.
    fn follow_mtu(&mut self) -> bool {
        let Some(config) = self.config.clone() else { return false };
        let is_small =
            |live: &&Live| !live.serves(&use_of(&config, live.number()), &config.device[live.number()]);
        let small: Vec<_> = self.live.iter().filter(is_small).collect();
        // Without its addresses and routes an interface is of no use.
        if small.is_empty() || small.iter().any(|live| live.owns_interface()) {
            self.live.iter().for_each(Live::tell_room);
            return false;
        }
        let saved = small.iter().map(|live| (live.name().to_owned(), tc::save(&live.dev)));
        let saved: Vec<_> = saved.collect();
        match self.apply(config, self.raw.clone()) {
            Ok(said) => eprint!("{said}"),
            Err(error) => eprintln!("txq: {}", crate::failure::line(&error)),
        }
        for (name, commands) in saved {
            let Some(live) = self.live.iter().find(|live| live.name() == name) else { continue };
            let commands = commands.lines().filter(|line| !line.starts_with('#'));
            if let Some(error) = commands.filter_map(|command| tc::apply(&live.dev, command).err()).next() {
                eprintln!("txq: {error}");
            }
        }
        true
    }

    /// Gives each device's pool as many buffers as its qdiscs and its clients may need.
    pub(super) fn fit_pools(&self) {
        self.live.iter().for_each(|live| live.fit_pool(self.sockets.buffers(live.name())));
    }

    /// Checks all interfaces; returns whether one has another MTU.
    fn check_interfaces(&mut self) -> bool {
        let mut resized = false;
        for live in &mut self.live {
            let ways = || self.bridges.iter().flat_map(|bridge| &bridge.ways);
            let seen = live.check();
            resized |= seen.mtu;
            let name = live.name().to_owned();
            for way in ways().filter(|way| way.from == name) {
                if seen.receivers {
                    way.replace(live);
                }
                // The error of an interface that is not up was said as that.
                if let Some(error) = way.error().filter(|_| live.is_up()) {
                    eprintln!("txq: {error}");
                }
            }
        }
        resized
    }
}
