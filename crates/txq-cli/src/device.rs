//! Opens devices from a `[[device]]` of a file; the options of `txq replay` are converted into one.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use crate::common::failure::Refused;
use anyhow::{Context, anyhow, ensure};
use txq::netdev::{BuildError, Builder, Sampling};
use txq::pool::{Pool, PoolConfig, PoolError};
use txq::receive::Receive;
use txq::topology::Topology;
use txq::{NetDev, WorkerPool};
use txq_device::{AfXdp, Watch};

use crate::config;

mod absent;
mod late;
mod open;

use open::Driven;

/// The expected use of a device, which determines its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// The number of sending threads.
    pub(crate) threads: u64,
    /// The most buffers of all clients of its sockets.
    pub(crate) clients: u64,
    /// The limit of outstanding packets of all threads together; `None` for no limit.
    pub(crate) limit: Option<u64>,
    /// The longest frame, in bytes.
    pub(crate) longest: usize,
    /// Whether all senders keep to a rate, which leaves time to measure each packet.
    pub(crate) rated: bool,
    /// Whether the qdiscs, senders and clients may become more while the device is open.
    pub(crate) grows: bool,
    /// Whether the device waits for an interface that does not exist or is down.
    pub(crate) waits: bool,
    /// Whether the device receives for a bridge, too.
    pub(crate) receive: Reception,
}

impl Use {
    /// Returns whether an open device, `dev`, that was opened for this use serves another one, too. Its pool may grow for it.
    pub(crate) fn covers(&self, other: &Self, dev: &NetDev, config: &config::Device) -> bool {
        self.limit == other.limit
            && dev.pool().room() >= pool(config, "", *other).room
            && self.receive == other.receive
            && (config.pool.buffers.is_some()
                || needed_buffers(config, *other) <= dev.pool().max_buffers().into())
    }
}

/// What a device receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reception {
    /// Nothing: it only sends.
    #[default]
    Off,
    /// Packets, those of several segments cut.
    Cut,
    /// Packets, those of several segments whole.
    Whole,
}

/// A device that is open, and what it receives with.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) dev: NetDev,
    pub(crate) reception: Received,
}

/// What an open device receives with, and the watch of its interface, if it has one.
#[derive(Default)]
pub(crate) struct Received {
    /// One for each txq; none if the device only sends.
    pub(crate) receivers: Vec<Box<dyn Receive>>,
    pub(crate) watch: Option<Watch>,
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("watch", &self.watch).finish_non_exhaustive()
    }
}

/// The MTU of devices without an interface, in bytes (`ETH_DATA_LEN`).
const MTU: u32 = 1500;
/// The default durations of an injected stall and of a late completion.
const STALL: Duration = Duration::from_millis(1);
const DELAY: Duration = Duration::from_micros(100);
/// The qdiscs' default limit, in packets (`tx_queue_len`).
const TX_QUEUE_LEN: u64 = 1000;
/// The assumed size of a device's ring, and of the list of packets that wait for a queue's owner.
const RING: u64 = 1024;
const DEFER_LIST: u64 = 1000;
/// Idle buffers in a thread's stock.
const STOCK: u64 = 128;
/// The bounds of a pool's default size, in buffers.
const POOL: (u64, u64) = (1024, 65536);
/// The bounds of the pool of a device that receives, which grows with its qdiscs: the same, or fewer of buffers for whole packets.
const WHOLE_POOL: (u64, u64) = (1024, 8192);
/// The most buffers of a pool that grows with its clients, and of one whose memory is pinned.
const MAX_POOL: u64 = 1 << 20;
const MAX_PINNED_POOL: u64 = 1 << 17;
/// The packets that a ring of AF_XDP holds, if packets that wait for a qdisc are elsewhere.
const XDP_RING: u32 = 2048;
/// The length of the longest packet with segments, behind an Ethernet header with a VLAN tag.
pub(crate) const WHOLE: usize = 65_553;
/// The room of AF_XDP's buffers for frames beyond the usual MTU: a page without the kernel's space in front of a frame.
const XDP_ROOM: usize = 4096 - 256;
/// The longest IP packet that a tunnel has room for from the start: it cannot be opened anew without losing its interface.
const JUMBO: u32 = 9216;
/// The length of an Ethernet header with two VLAN tags.
pub(crate) const HEADERS: usize = 14 + 2 * 4;
/// The threads and buffers that all devices without senders share. A command uses a buffer only while it runs.
const MAX_WORKERS: usize = 4;
const DUMMY_BUFFERS: u32 = 256;
/// The default sampling at max: every 64th call, because reading the clock for each would be a large part of the cost.
const SAMPLE: Sampling = Sampling::Every(64);

/// What `--dev` can name.
const DEVICES_HINT: &str =
    "null, pcap:FILE, IFACE, af_packet:IFACE, af_xdp:IFACE, tap:NAME, tun:NAME or udp:ADDRESS:PORT";

/// Returns the configuration of the device that `--dev` names. A word without a known kind in front is an interface.
pub(crate) fn named(text: &str, txqs: u16, kernel_qdisc: bool) -> anyhow::Result<config::Device> {
    let mut device =
        config::Device { txqs: Some(crate::common::within::Txqs::of(txqs.into())), ..Default::default() };
    let (kind, rest) = match text.split_once(':') {
        Some((kind, rest)) => (kind, rest),
        None if text == "null" => ("null", "null0"),
        None => ("af_packet", text),
    };
    ensure!(!rest.is_empty(), "--dev \"{text}\" names no device: use {DEVICES_HINT}");
    let mut name = rest.to_owned();
    match kind {
        "null" if !text.contains(':') => {}
        "pcap" => {
            name = "pcap0".into();
            device.pcap = Some(config::Pcap { file: rest.into() });
        }
        "af_xdp" => {
            device.af_xdp = Some(config::AfXdp { interface: name.clone(), first_queue: 0, ring: None })
        }
        "tap" => device.tap = Some(config::Tun { interface: name.clone(), ..Default::default() }),
        "tun" => device.tun = Some(config::Tun { interface: name.clone(), ..Default::default() }),
        "udp" => {
            let remote = rest.parse().map_err(|_| {
                anyhow!(
                    "--dev {text}: use udp:ADDRESS:PORT, such as udp:192.0.2.1:4789 or udp:[2001:db8::1]:4789"
                )
            })?;
            name = "udp0".into();
            device.udp = Some(config::Udp { remote, local: None });
        }
        "af_packet" => device.af_packet = Some(config::AfPacket { interface: name.clone(), kernel_qdisc }),
        // An interface may have a colon in its name, as an alias has.
        _ => {
            name = text.to_owned();
            device.af_packet = Some(config::AfPacket { interface: name.clone(), kernel_qdisc });
        }
    }
    device.name = Some(name);
    Ok(device)
}

/// The threads and the pool that all devices without senders share: hundreds of devices need few of both.
pub(crate) struct Dummies {
    workers: WorkerPool,
    pool: Pool,
}

impl Dummies {
    /// Starts the threads and allocates the pool.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let workers = WorkerPool::new(cpus.min(MAX_WORKERS)).map_err(|error| {
            Refused(format!("devices need a thread: {error}: end other processes, or raise `ulimit -u`"))
        })?;
        let config = PoolConfig { name: "dummies".into(), buffers: DUMMY_BUFFERS, ..PoolConfig::default() };
        let pool = Pool::new(&config).map_err(|error| refusal(error.into()))?;
        Ok(Self { workers, pool })
    }
}

/// Makes a device driven by the shared threads, without senders but for the clients of a socket, which may have `clients` buffers.
pub(crate) fn added(config: &config::Device, shared: &Dummies, clients: u64) -> anyhow::Result<NetDev> {
    let has_clients = clients > 0;
    let used = Use {
        threads: 0,
        clients,
        limit: (!has_clients).then_some(0),
        longest: if has_clients { longest_frame(config) } else { 0 },
        rated: true,
        grows: has_clients,
        waits: false,
        receive: Reception::Off,
    };
    let (builder, has_pool, _) = builder(config, used)?;
    let builder = if has_pool || has_clients { builder } else { builder.pool(shared.pool.clone()) };
    let dev = builder.build().map_err(refusal)?;
    shared.workers.drive(&dev);
    Ok(dev)
}

/// Makes the device and starts its workers.
pub(crate) fn start(config: &config::Device, used: Use) -> anyhow::Result<NetDev> {
    open(config, used).map(|opened| opened.dev)
}

/// Makes the device, starts its workers, and returns what it receives with, too.
pub(crate) fn open(config: &config::Device, used: Use) -> anyhow::Result<Opened> {
    let (builder, _, reception) = builder(config, used)?;
    let dev = builder.start().map_err(refusal)?;
    if used.limit.is_none() {
        // Without memory for more buffers, the pool stays as it is.
        let _ = dev.fit_pool();
    }
    Ok(Opened { dev, reception })
}

/// Opens the interface of a device anew, which has been removed and is back, and replaces the device's driver.
pub(crate) fn reopen(dev: &NetDev, config: &config::Device, used: Use) -> anyhow::Result<Received> {
    let name = config.name.clone().unwrap_or_default();
    let txqs = config.txqs.map_or(1, |txqs| txqs.get() as u16);
    let Driven { driver, reception, .. } = open::driver(config, &name, txqs, used, Some(dev.pool()))?;
    let (noted, opened) = late::Noted::new(driver);
    match dev.replace_driver(noted) {
        // The old driver's error: its interface was gone, which is why it is replaced.
        Err(_) if opened.load(Relaxed) == u32::from(txqs) => {}
        done => done.map_err(|error| Refused(error.to_string()))?,
    }
    Ok(reception)
}

/// Returns a builder with everything but the threads that drive the device's workers, whether the device has a pool that it
/// must be used with, and what it receives with.
fn builder(config: &config::Device, used: Use) -> anyhow::Result<(Builder, bool, Received)> {
    let name = config.name.clone().unwrap_or_default();
    let txqs = config.txqs.map_or(1, |txqs| txqs.get() as u16);
    let Driven { driver, pool: fixed, reception } = open::driver(config, &name, txqs, used, None)?;
    let mut builder = NetDev::builder(driver).txqs(txqs);
    let has_pool = fixed.is_some();
    if let Some(pool) = fixed {
        builder = builder.pool(pool);
    }
    if let Some(qdisc) = &config.qdisc {
        builder = builder.qdisc(qdisc);
    }
    if let Some(qdisc) = &config.default_qdisc {
        builder = builder.default_qdisc(qdisc);
    }
    for (txq, qdisc) in &config.txq_qdiscs {
        builder = builder.child(txq.0, qdisc);
    }
    if let Some(discipline) = config.discipline {
        builder = builder.discipline(discipline);
    }
    if let Some(workers) = config.workers {
        builder = builder.workers(workers.size());
    }
    if let Some(affinity) = &config.affinity {
        builder = builder.affinity(&affinity.iter().map(|worker| worker.size()).collect::<Vec<_>>());
    }
    builder = builder.completions(config.completions.0).bql(config.bql.0);
    if let Some(packets) = config.tx_queue_len {
        builder = builder.tx_queue_len(packets.get() as u32);
    }
    if let Some(spin) = config.spin_us {
        builder = builder.spin(Duration::from_micros(spin.get()));
    }
    if let Some(packets) = config.max_burst {
        builder = builder.max_burst(packets.get() as u32);
    }
    if let Some(ms) = config.txq_reselection_ms {
        builder = builder.txq_reselection(Duration::from_millis(ms.get()));
    }
    builder = config.xps.steer(builder, txqs).with_context(|| format!("device \"{name}\""))?;
    let sampling = config.sampling.unwrap_or(if used.rated { Sampling::All } else { SAMPLE });
    builder = builder.sampling(sampling).pool_config(pool(config, &name, used));
    Ok((builder.contention(config.contention).xmit_times(config.xmit_times), has_pool, reception))
}

/// Converts a failure to make a device: into wrong input, or into the system's refusal.
fn refusal(error: BuildError) -> anyhow::Error {
    let input = match &error {
        BuildError::Open { source, .. } => source.kind() == std::io::ErrorKind::InvalidInput,
        BuildError::Thread(_) | BuildError::Pool(PoolError::Memory { .. }) => false,
        _ => true,
    };
    if input { error.into() } else { Refused(error.to_string()).into() }
}

/// Returns the length of the longest frame that a device carries now, in bytes: the MTU of its interface with the headers.
pub(crate) fn longest_frame(config: &config::Device) -> usize {
    let tunnel = config.tap.as_ref().or(config.tun.as_ref());
    let asked = tunnel.and_then(|tunnel| tunnel.mtu).map(|mtu| mtu.get() as u32).or(config.mtu);
    let interface = match (&config.af_packet, &config.af_xdp, tunnel) {
        (Some(device), ..) => Some(&device.interface),
        (_, Some(device), _) => Some(&device.interface),
        (.., tunnel) => tunnel.filter(|of| of.namespace.is_none()).map(|of| &of.interface),
    };
    let own = interface.and_then(|interface| Watch::interface(interface).ok()?.mtu());
    let least = if tunnel.is_some() { JUMBO } else { MTU };
    own.max(asked).unwrap_or(MTU).max(least) as usize + HEADERS
}

/// Returns the room of a device's buffers for the frames that it carries now, unless the file says another one.
pub(crate) fn default_room(config: &config::Device) -> usize {
    PoolConfig::default().room.max(longest_frame(config))
}

/// Returns the buffers that a device needs. They are the sum of what the queues hold, so that the queues decide which packets are
/// dropped; or the senders' limits together, if they are less.
fn wanted_buffers(config: &config::Device, used: Use) -> u64 {
    let txqs = config.txqs.map_or(1, |txqs| txqs.get());
    let default = config.tx_queue_len.map_or(TX_QUEUE_LEN, |len| len.get());
    let queued = config::queued(config).max(txqs.saturating_mul(default));
    let queues = queued.saturating_add(txqs.saturating_mul(RING + DEFER_LIST));
    let needed = queues.min(used.limit.unwrap_or(u64::MAX));
    // Each thread's stock, and the batch that the thread is filling.
    needed.saturating_add((used.threads + 1) * 2 * STOCK)
}

/// Returns the first size of a device's pool, which grows to what the device needs.
fn default_buffers(config: &config::Device, used: Use) -> u64 {
    let bounds = if used.receive == Reception::Whole { WHOLE_POOL } else { POOL };
    wanted_buffers(config, used).clamp(bounds.0, bounds.1)
}

/// Returns the buffers that the default pool of a device has once all clients of its sockets are connected.
fn needed_buffers(config: &config::Device, used: Use) -> u64 {
    default_buffers(config, used).saturating_add(used.clients).min(most_buffers(config, used.receive))
}

/// Grows the pool of an open device to the default size for a use that it was not opened for.
pub(crate) fn grow_pool(dev: &NetDev, config: &config::Device, used: Use) {
    let wanted = default_buffers(config, used).min(dev.pool().max_buffers().into()) as u32;
    if config.pool.buffers.is_none() && dev.pool().buffers() < wanted {
        // Without memory for more buffers, the pool stays as it is.
        let _ = dev.pool().resize(wanted);
    }
}

/// Returns the configuration of a device's pool.
fn pool(config: &config::Device, name: &str, used: Use) -> PoolConfig {
    let receives = used.receive != Reception::Off;
    let longest = if used.receive == Reception::Whole { WHOLE } else { used.longest };
    let pinned = is_pinned(config, used.receive);
    let standard = if pinned && receives { AfXdp::pool_config(0) } else { PoolConfig::default() };
    // A pinned pool does not grow: it has the clients' buffers from the start.
    let now = if pinned { needed_buffers(config, used) } else { default_buffers(config, used) };
    let most = match used.receive {
        _ if pinned || config.pool.buffers.is_some() => 0,
        Reception::Whole => WHOLE_POOL.1,
        Reception::Off if !used.grows => wanted_buffers(config, used),
        Reception::Cut | Reception::Off => POOL.1.max(wanted_buffers(config, used)),
    };
    let max = if most == 0 {
        0
    } else {
        most.max(now).saturating_add(used.clients).min(most_buffers(config, used.receive))
    };
    let room = match config.af_xdp.is_some() && receives {
        // Frames longer than the kernel's part of a buffer are not received.
        true if longest > AfXdp::pool_config(0).room => XDP_ROOM,
        _ => standard.room.max(longest),
    };
    PoolConfig {
        name: name.to_owned(),
        buffers: config.pool.buffers.map_or(now, |buffers| buffers.get()) as u32,
        max_buffers: max as u32,
        room: config.pool.room.map_or(room, |room| room.size()),
        backing: config.pool.backing,
        free: config.pool.free,
        defer_max: config.pool.defer_max.map_or(standard.defer_max, |packets| packets.get() as u32),
        // One node, if the machine's nodes cannot be read.
        nodes: Topology::nodes("/sys").unwrap_or_default(),
        ..standard
    }
}

/// Returns whether the kernel pins the pool of a device, because the device sends from it. The pool of a bridge's device is pinned only
/// if the file says its size: else the packets that wait are in a pool that grows, and only the rings' buffers are pinned.
fn is_pinned(config: &config::Device, receive: Reception) -> bool {
    config.af_xdp.is_some() && (receive == Reception::Off || config.pool.buffers.is_some())
}

/// Returns the packets that each ring of AF_XDP holds.
fn xdp_ring(xdp: &config::AfXdp) -> u32 {
    xdp.ring.map_or(XDP_RING, |ring| (ring.get() as u32).next_power_of_two())
}

/// Returns the configuration of the memory that the kernel pins for a device whose pool is another one: a buffer for each frame that the
/// fill ring may wait for, and those that are sent.
fn rings_memory(config: &config::Device, name: &str, ring: u32, used: Use) -> PoolConfig {
    let txqs = config.txqs.map_or(1, |txqs| txqs.get() as u32);
    let standard = AfXdp::pool_config(txqs.saturating_mul(ring + AfXdp::SENDING_BUFFERS));
    let own = pool(config, name, used);
    PoolConfig {
        name: format!("{name} rings"),
        room: if own.room == XDP_ROOM { XDP_ROOM } else { standard.room },
        backing: own.backing,
        nodes: own.nodes,
        ..standard
    }
}

/// Returns the most buffers that the pool of a device may have.
pub(crate) fn most_buffers(config: &config::Device, receive: Reception) -> u64 {
    let most = if is_pinned(config, receive) { MAX_PINNED_POOL } else { MAX_POOL };
    config.pool.buffers.map_or(most, |buffers| buffers.get())
}

#[cfg(test)]
mod tests;
