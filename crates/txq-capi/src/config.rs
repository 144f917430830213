//! The configuration of a device, from texts: its name, and keys with values.

use std::ffi::{c_char, c_void};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use libc::size_t;
use txq::driver::{Driver, Link};
use txq::netdev::{BuildError, Builder};
use txq::pool::{LentMemory, Pool, PoolConfig, PoolError};
use txq::{Discipline, NetDev};
use txq_device::udp::Datagram;
use txq_device::{AfPacket, AfXdp, AfXdpConfig, Null, Pcap, Tun, Udp};

use crate::driver::{Custom, CustomDriver, txq_driver};
use crate::error::{Error, Result, TXQ_E_IO, TXQ_E_MEMORY, TXQ_E_TC, border};
use crate::handle::{Handle, Value};
use crate::strings::{Sized32, check_size, null, optional_text, text};

/// The configuration of a device that is not started yet.
pub struct txq_dev_config {
    _handle: Handle<DevConfig>,
}

/// Memory of the program for a device's packets: a card's, another library's, or memory shared with another process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct txq_memory {
    /// sizeof(struct txq_memory).
    pub size: u32,
    /// Always 0.
    pub reserved: u32,
    /// The first byte. All bytes must be initialised.
    pub base: *mut c_void,
    /// The number of bytes.
    pub len: size_t,
    /// The distance between the starts of two packets' buffers, in bytes; 0 to let the library choose. The key buffers says how
    /// many there are.
    pub stride: size_t,
    /// Called with `context` when the library no longer uses the memory: the device, its senders and all packets are gone, or
    /// the device did not start. May be NULL. Never called if packets are never completed.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// The argument of `release`.
    pub context: *mut c_void,
}

// SAFETY: `repr(C)`, of numbers, raw pointers and a nullable function, and `size` is the first field.
unsafe impl Sized32 for txq_memory {
    const NAME: &'static str = "struct txq_memory";
}

/// Calls the program's `release` when it is dropped.
struct Lent(txq_memory);

// SAFETY: the documentation of `txq_memory` lets any thread use the memory and call `release`.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the program's callback, with its context; called once.
            unsafe { release(self.0.context) };
        }
    }
}

/// What the program has set so far.
pub(crate) struct DevConfig {
    device: Option<String>,
    custom: Option<Arc<Custom>>,
    memory: Option<Lent>,
    pool: PoolConfig,
    null: Null,
    txqs: Option<u16>,
    set: Vec<Box<dyn FnOnce(Builder) -> Builder + Send>>,
}

impl Value for DevConfig {
    const TAG: u32 = 0x7478_7102;
    const NAME: &'static str = "txq_dev_config";
    const OF_PROCESS: bool = false;
}

/// A started device, and what its handle needs beside.
pub(crate) struct Started {
    pub(crate) net: NetDev,
    pub(crate) custom: Option<Arc<Custom>>,
    /// The headers of the datagrams, for a `udp:` device.
    pub(crate) datagram: Option<Datagram>,
}

const DEVICES: &str =
    "null, pcap:FILE, af_packet:IFACE, af_xdp:IFACE, tap:NAME, tun:NAME or udp:ADDRESS:PORT";

const KEYS: &str = "txqs, qdisc, default_qdisc, discipline, xps, workers, tx_queue_len, max_burst, spin_us, watchdog_ms, \
                    reselection_ms, buffers, max_buffers, room, headroom, tailroom, defer_max, ring, rate_bps, delay_us or link";

impl DevConfig {
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let micros = |value| Ok::<_, Error>(Duration::from_micros(number(key, value)?));
        let millis = |value| Ok::<_, Error>(Duration::from_millis(number(key, value)?));
        let text = value.to_owned();
        match key {
            "txqs" => self.txqs = Some(number(key, value)?),
            "qdisc" => self.with(move |builder| builder.qdisc(&text)),
            "default_qdisc" => self.with(move |builder| builder.default_qdisc(&text)),
            "discipline" => {
                let discipline: Discipline =
                    value.parse().map_err(|error| Error::invalid(format!("{key} \"{value}\": {error}")))?;
                self.with(move |builder| builder.discipline(discipline));
            }
            "workers" => {
                let workers = number(key, value)?;
                self.with(move |builder| builder.workers(workers));
            }
            "tx_queue_len" => {
                let packets = number(key, value)?;
                self.with(move |builder| builder.tx_queue_len(packets));
            }
            "max_burst" => {
                let packets = number(key, value)?;
                self.with(move |builder| builder.max_burst(packets));
            }
            "spin_us" => {
                let spin = micros(value)?;
                self.with(move |builder| builder.spin(spin));
            }
            "watchdog_ms" => {
                let timeo = Some(millis(value)?).filter(|timeo| !timeo.is_zero());
                self.with(move |builder| builder.watchdog_timeo(timeo));
            }
            "xps" => match value {
                "auto" => {}
                "none" => self.with(|builder| builder.xps(None)),
                _ => return Err(Error::invalid(format!("xps \"{value}\": use auto or none"))),
            },
            "reselection_ms" => {
                let interval = millis(value)?;
                self.with(move |builder| builder.txq_reselection(interval));
            }
            "buffers" => self.pool.buffers = number(key, value)?,
            "max_buffers" => self.pool.max_buffers = number(key, value)?,
            "room" => self.pool.room = number(key, value)?,
            "headroom" => self.pool.headroom = number(key, value)?,
            "tailroom" => self.pool.tailroom = number(key, value)?,
            "defer_max" => self.pool.defer_max = number(key, value)?,
            "ring" => self.null.ring = number(key, value)?,
            "rate_bps" => self.null.rate = Some(number(key, value)?),
            "delay_us" => self.null.delay = Duration::from_micros(number::<u32>(key, value)?.into()),
            "link" => {
                self.null.link = match value {
                    "ethernet" => Link::Ethernet,
                    "ip" => Link::Ip,
                    _ => return Err(Error::invalid(format!("link \"{value}\": use ethernet or ip"))),
                }
            }
            _ => return Err(Error::invalid(format!("the key \"{key}\" is unknown: use {KEYS}"))),
        }
        Ok(())
    }

    fn with(&mut self, f: impl FnOnce(Builder) -> Builder + Send + 'static) {
        self.set.push(Box::new(f));
    }

    fn start(mut self) -> Result<Started> {
        let is_xdp = self.device.as_deref().is_some_and(|name| name.starts_with("af_xdp:"));
        if is_xdp {
            // AF_XDP fixes the size of buffers.
            let fixed = AfXdp::pool_config(self.pool.buffers);
            self.pool = PoolConfig {
                room: fixed.room,
                headroom: fixed.headroom,
                backing: fixed.backing,
                ..self.pool
            };
        }
        let pool = match self.memory.take() {
            None => Pool::new(&self.pool),
            Some(lent) => {
                let (len, stride) = (lent.0.len, lent.0.stride);
                let base = NonNull::new(lent.0.base.cast()).ok_or_else(|| null("the memory"))?;
                // SAFETY: the program has promised it by `txq_dev_config_memory`.
                let memory = unsafe { LentMemory::new(base, len, lent) };
                Pool::on(&self.pool, if stride == 0 { memory } else { memory.stride(stride) })
            }
        };
        let pool = pool.map_err(pool_error)?;
        let (driver, datagram): (Box<dyn Driver>, _) = match (&self.custom, self.device.as_deref()) {
            (Some(custom), None) => (Box::new(CustomDriver(custom.clone())), None),
            (None, Some(name)) => self.open(name, &pool)?,
            (Some(_), Some(_)) => {
                return Err(Error::invalid(
                    "the device has a name and a driver of its own: give it one of them",
                ));
            }
            (None, None) => return Err(Error::invalid("the device has neither a name nor a driver")),
        };
        let mut builder = NetDev::builder(driver).pool(pool);
        if let Some(txqs) = self.txqs {
            builder = builder.txqs(txqs);
        }
        let builder = self.set.into_iter().fold(builder, |builder, set| set(builder));
        let net = builder.start().map_err(build_error)?;
        Ok(Started { net, custom: self.custom, datagram })
    }

    fn open(&self, name: &str, pool: &Pool) -> Result<(Box<dyn Driver>, Option<Datagram>)> {
        let txqs = self.txqs.unwrap_or(1);
        let failed = |error: io::Error| Error::new(TXQ_E_IO, format!("device \"{name}\": {error}"));
        let unknown = || Error::invalid(format!("\"{name}\" is no device: use {DEVICES}"));
        let driver: Box<dyn Driver> = match name.split_once(':').unwrap_or(("", name)) {
            ("", "null") => Box::new(Null { txqs, ..self.null.clone() }),
            ("pcap", file) => Box::new(Pcap::create(file, txqs).map_err(failed)?.link(self.null.link)),
            ("" | "af_packet", interface) => {
                Box::new(AfPacket::open(interface, txqs).map_err(failed)?.gso(true))
            }
            ("af_xdp", interface) => Box::new(AfXdpConfig::new(interface, txqs).open(pool).map_err(failed)?),
            ("tap", interface) => Box::new(Tun::create_tap(interface).queues(txqs).open().map_err(failed)?),
            ("tun", interface) => Box::new(Tun::create(interface).queues(txqs).open().map_err(failed)?),
            ("udp", address) => {
                let remote: SocketAddr = address.parse().map_err(|_| unknown())?;
                let local = match remote {
                    SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                    SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
                };
                let device = Udp::connect(local, remote).map_err(failed)?.txqs(txqs);
                return Ok((Box::new(device), Some(Datagram::new(remote))));
            }
            _ => return Err(unknown()),
        };
        Ok((driver, None))
    }
}

/// A whole number of a key's value.
trait Whole: TryFrom<u128> {
    const MOST: u64;
}

macro_rules! whole {
    ($($number:ident)+) => { $(impl Whole for $number { const MOST: u64 = $number::MAX as u64; })+ };
}

whole!(u16 u32 u64 usize);

/// Reads a whole number that the type can hold.
fn number<T: Whole>(key: &str, value: &str) -> Result<T> {
    let wrong = |what: &str| Error::invalid(format!("{key} \"{value}\" {what}: use 0 to {}", T::MOST));
    let digits = value.strip_prefix('+').unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong("is not a whole number"));
    }
    // Only a number beyond the type fails now.
    let number = value.parse().ok().and_then(|number: u128| T::try_from(number).ok());
    number.ok_or_else(|| wrong("is too large"))
}

fn pool_error(error: PoolError) -> Error {
    match error {
        PoolError::Memory { .. } => Error::new(TXQ_E_MEMORY, error.to_string()),
        error => Error::invalid(error.to_string()),
    }
}

fn build_error(error: BuildError) -> Error {
    let code = match &error {
        BuildError::Qdisc { .. } | BuildError::Child { .. } => TXQ_E_TC,
        BuildError::Open { .. } | BuildError::Thread(_) => TXQ_E_IO,
        BuildError::Pool(PoolError::Memory { .. }) => TXQ_E_MEMORY,
        _ => return Error::invalid(error.to_string()),
    };
    Error::new(code, error.to_string())
}

/// Begins a device: null, pcap:FILE, af_packet:IFACE, af_xdp:IFACE, tap:NAME, tun:NAME or udp:ADDRESS:PORT. NULL begins one that
/// `txq_dev_config_driver` describes. Packets of a udp: device are payloads; the library writes their IP and UDP headers.
/// Returns NULL for an error; a name is checked when the device starts.
///
/// Threads: any. One thread at a time uses a configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_config_new(device: *const c_char) -> *mut txq_dev_config {
    border(|| {
        // SAFETY: the caller passes NULL or a text with a NUL.
        let device = unsafe { optional_text(device, "the device") }?.map(str::to_owned);
        let (pool, null) = (PoolConfig::default(), Null::default());
        let config =
            DevConfig { device, custom: None, memory: None, pool, null, txqs: None, set: Vec::new() };
        Ok(Handle::create(config).cast())
    })
}

/// Frees a configuration that was not started; NULL is allowed. Returns 0.
///
/// Threads: the one that uses the configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_config_free(config: *mut txq_dev_config) -> i32 {
    border(|| {
        drop(Handle::take(config.cast::<Handle<DevConfig>>())?);
        Ok(0)
    })
}

/// Sets a key of the configuration. Values are checked at once, texts of qdiscs when the device starts. Returns 0.
///
/// - txqs: number of txqs; 1 by default, for a custom device all
/// - qdisc: the root qdisc in tc's words: "handle 1: htb default 10"
/// - default_qdisc: the kind of qdisc that mq gives each txq
/// - discipline: how senders reach a qdisc: combine (default), llist, lockless, busylock or spinlock
/// - xps: auto (default), a txq for each CPU by the machine's caches; or none, by the flow's hash
/// - workers: worker threads; 1 by default
/// - tx_queue_len: the default limit of qdiscs, in packets
/// - max_burst: packets that wait for a queue's owner, at most
/// - spin_us: how long before a packet's time a worker polls the clock, in microseconds
/// - watchdog_ms: how long a txq may be stopped until that is counted, in milliseconds; 0 for ever
/// - reselection_ms: how long a busy flow stays on its txq at most, in milliseconds; 0 for ever
/// - buffers: packets that exist at a time; 4096 by default
/// - max_buffers: buffers that the pool may grow to
/// - room: the longest packet, in bytes; 1920 by default
/// - headroom: bytes in front of a new packet; 128 by default, which a udp: device needs
/// - tailroom: bytes behind a packet that is as long as room, for `txq_packet_put`; 0 by default
/// - defer_max: buffers that wait for their sender, at most
/// - ring: null: packets on each txq's ring
/// - rate_bps: null: the rate of each txq's link, in bits a second
/// - delay_us: null: from the wire to the completion, in microseconds
/// - link: null and pcap: ethernet (default) or ip
///
/// Threads: the one that uses the configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_config_set(
    config: *mut txq_dev_config,
    key: *const c_char,
    value: *const c_char,
) -> i32 {
    border(|| {
        // SAFETY: the caller passes texts with a NUL.
        let (key, value) = unsafe { (text(key, "the key")?, text(value, "the value")?) };
        Handle::with(config.cast::<Handle<DevConfig>>(), |config| config.set(key, value))?;
        Ok(0)
    })
}

/// Sets a device of the program's own, whose functions are callbacks. Returns 0. After an error, `release` is not called.
///
/// Threads: the one that uses the configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_config_driver(
    config: *mut txq_dev_config,
    driver: *const txq_driver,
) -> i32 {
    border(|| {
        Handle::with(config.cast::<Handle<DevConfig>>(), |config| {
            if config.custom.is_some() {
                return Err(Error::invalid("the configuration has a driver already"));
            }
            // SAFETY: the caller passes a `txq_driver`.
            config.custom = Some(unsafe { Custom::new(driver) }?);
            Ok(0)
        })
    })
}

/// Puts the device's packets into memory of the program. Until `memory.release` is called, only the device's senders and the
/// device access it. Returns 0. After an error, `release` is not called.
///
/// Threads: the one that uses the configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_config_memory(
    config: *mut txq_dev_config,
    memory: *const txq_memory,
) -> i32 {
    border(|| {
        // SAFETY: the caller passes a `txq_memory`.
        unsafe { check_size(memory, "the memory") }?;
        // SAFETY: its size is right.
        let memory = unsafe { memory.read() };
        if memory.base.is_null() {
            return Err(null("the base of the memory"));
        }
        Handle::with(config.cast::<Handle<DevConfig>>(), |config| {
            if config.memory.is_some() {
                return Err(Error::invalid("the configuration has memory already"));
            }
            config.memory = Some(Lent(memory));
            Ok(0)
        })
    })
}

/// Takes a configuration and starts its device.
pub(crate) fn start(config: *mut txq_dev_config) -> Result<Started> {
    let config = Handle::take(config.cast::<Handle<DevConfig>>())?;
    config.ok_or_else(|| null("the txq_dev_config"))?.start()
}
