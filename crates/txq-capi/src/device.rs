//! Devices: [`NetDev`] for C.

mod report;

use std::ffi::c_char;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use libc::size_t;
use txq::NetDev;
use txq_device::udp::Datagram;

use crate::config::{Started, start, txq_dev_config};
use crate::driver::{Custom, is_inside};
use crate::error::{Error, Result, TXQ_E_AUDIT, TXQ_E_BUSY, TXQ_E_FORKED, TXQ_E_IO, border, warned};
use crate::handle::{Handle, Value};
use crate::show::{List, Request, TXQ_SHOW_CLASSES, TXQ_SHOW_FILTERS, TXQ_SHOW_QDISCS};
use crate::strings::{Sized32, array, check_size, optional_text, text, write_text};

/// Show the counters of a device, its txqs and its senders. For `txq_dev_show` only.
pub const TXQ_SHOW_REPORT: u32 = 3;

/// A device with its worker threads.
pub struct txq_dev {
    _handle: Handle<Dev>,
}

/// The counters of a device. `accepted + created = sent + dropped + queued` at any time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct txq_dev_stats {
    /// sizeof(struct txq_dev_stats).
    pub size: u32,
    /// Always 0.
    pub reserved: u32,
    /// Packets handed in.
    pub accepted: u64,
    /// Packets that qdiscs created: copies and segments.
    pub created: u64,
    /// Packets that the device took and did not drop.
    pub sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets on their way to the device.
    pub queued: u64,
    /// Packets sent that the device still keeps.
    pub in_flight: u64,
    /// How often the device refused packets.
    pub requeues: u64,
    /// How often the callbacks of a custom device broke a rule: a `start_xmit` that returned more than it got, or did not take a
    /// frame that was completed.
    pub misuses: u64,
}

// SAFETY: `repr(C)`, of numbers, and `size` is the first field.
unsafe impl Sized32 for txq_dev_stats {
    const NAME: &'static str = "struct txq_dev_stats";
}

/// The device. Only the end of the device takes the lock for writing.
pub(crate) struct Dev {
    net: RwLock<NetDev>,
    custom: Option<Arc<Custom>>,
    datagram: Option<Datagram>,
}

impl Value for Dev {
    const TAG: u32 = 0x7478_7103;
    const NAME: &'static str = "txq_dev";
    const OF_PROCESS: bool = true;
}

impl Dev {
    pub(crate) fn net(&self) -> RwLockReadGuard<'_, NetDev> {
        self.net.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn net_mut(&self) -> RwLockWriteGuard<'_, NetDev> {
        self.net.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn datagram(&self) -> Option<Datagram> {
        self.datagram
    }

    /// Ends all sending, and frees the frames that a custom device keeps.
    fn shutdown(&self) -> io::Result<()> {
        let ended = self.net_mut().shutdown();
        if let Some(custom) = &self.custom {
            custom.forget();
        }
        ended
    }
}

fn with<R>(dev: *mut txq_dev, f: impl FnOnce(&Dev) -> Result<R>) -> Result<R> {
    // A `txq_dev` is nothing but its handle.
    Handle::share(dev.cast::<Handle<Dev>>(), f)
}

/// As [`with`], for functions that would wait for a callback that calls them.
pub(crate) fn with_outside<R>(dev: *mut txq_dev, f: impl FnOnce(&Dev) -> Result<R>) -> Result<R> {
    refuse_inside()?;
    with(dev, f)
}

/// Refuses a call in a callback of a device, for which it would wait.
pub(crate) fn refuse_inside() -> Result<()> {
    match is_inside() {
        true => {
            Err(Error::new(TXQ_E_BUSY, "a callback of a device called this function: use another thread"))
        }
        false => Ok(()),
    }
}

fn failed(error: io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::ResourceBusy => TXQ_E_BUSY,
        io::ErrorKind::NotConnected => TXQ_E_FORKED,
        _ => TXQ_E_IO,
    };
    Error::new(code, error.to_string())
}

/// Starts a device and its worker threads. Frees `config` in any case. Returns NULL for an error.
///
/// Threads: the one that uses the configuration. All threads may use the device at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_start(config: *mut txq_dev_config) -> *mut txq_dev {
    border(|| {
        let Started { net, custom, datagram } = start(config)?;
        Ok(Handle::create(Dev { net: RwLock::new(net), custom, datagram }).cast())
    })
}

/// Shuts a device down and frees it; NULL is allowed. Queued packets are dropped: call `txq_dev_drain` before. Senders of the
/// device stay valid and drop what they are given; free them, too. Returns 0, or an error of the device; it is freed anyway,
/// except for TXQ_E_FORKED, TXQ_E_BUSY and TXQ_E_INVALID.
///
/// Threads: any, while no other thread uses the device. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_free(dev: *mut txq_dev) -> i32 {
    border(|| {
        refuse_inside()?;
        match Handle::take(dev.cast::<Handle<Dev>>())? {
            Some(dev) => dev.shutdown().map(|()| 0).map_err(failed),
            None => Ok(0),
        }
    })
}

/// Ends all sending: queued packets are dropped as QUEUE_PURGE, and so are all packets handed in afterwards. Waits for other
/// calls with the device. Returns 0, or the first error of the device, which is shut down anyway.
///
/// Threads: any. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_shutdown(dev: *mut txq_dev) -> i32 {
    border(|| with_outside(dev, |dev| dev.shutdown().map(|()| 0).map_err(failed)))
}

/// Waits until no packet is queued and the device keeps none, for at most `timeout_ns` nanoseconds. Returns 1 if so, else 0.
///
/// Threads: any. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_drain(dev: *mut txq_dev, timeout_ns: u64) -> i32 {
    border(|| with_outside(dev, |dev| Ok(dev.net().drain(Duration::from_nanos(timeout_ns)).into())))
}

/// Takes the device up (`up` is not 0) or down. While it is down, packets are dropped as QDISC_DROP. Returns 0.
///
/// Threads: any. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_set_up(dev: *mut txq_dev, up: i32) -> i32 {
    border(|| {
        with_outside(dev, |dev| {
            match up {
                0 => dev.net().deactivate(),
                _ => dev.net().activate(),
            }
            Ok(0)
        })
    })
}

/// Completes frames that a custom device with a ring has sent: their memory is the library's again. `tokens` are those of the
/// frames. Returns how many of them named a frame that the txq of the device kept. The txq notices the completions when a packet is sent,
/// and after 1 ms at most.
///
/// Threads: any, also in callbacks, and several at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_complete(dev: *mut txq_dev, txq: u32, tokens: *const u64, n: size_t) -> i64 {
    border(|| {
        // SAFETY: the caller passes an array of `n` tokens.
        let tokens = unsafe { array(tokens, n, "the array of tokens") }?;
        with(dev, |dev| match &dev.custom {
            Some(custom) => custom.complete(txq, tokens),
            None => Err(Error::invalid("the device has no callbacks: it completes its packets itself")),
        })
    })
}

/// Executes one command in tc's words on a running device: "qdisc replace root fq_codel", "class add parent 1: classid 1:10 htb
/// rate 1mbit", "filter add parent 1: handle 7 fw classid 1:10". The verbs are add, change, replace and del; a leading "tc"
/// makes no difference, and a "dev NAME" must name this device. Returns 0, or 1 if tc would warn; `txq_last_error` then returns the warning.
///
/// Threads: any. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_tc(dev: *mut txq_dev, command: *const c_char) -> i32 {
    border(|| {
        // SAFETY: the caller passes a text with a NUL.
        let command = unsafe { text(command, "the command") }?;
        with_outside(dev, |dev| Ok(warned(&dev.net().tc(command)?)))
    })
}

/// Executes the commands of `commands` on a running device, one a line, as `txq_dev_tc` does. Empty lines and lines that begin
/// with # are skipped. Returns 0, or 1 if tc would warn; `txq_last_error` then returns the warnings, one a line. The first error
/// ends the batch and names its line; the commands before it have been executed.
///
/// Threads: any. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_tc_batch(dev: *mut txq_dev, commands: *const c_char) -> i32 {
    border(|| {
        // SAFETY: the caller passes a text with a NUL.
        let commands = unsafe { text(commands, "the commands") }?;
        with_outside(dev, |dev| Ok(warned(&dev.net().tc_batch(commands)?)))
    })
}

/// Writes the counters to `stats`, whose `size` must be set. Returns 0.
///
/// Threads: any. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_get_stats(dev: *mut txq_dev, stats: *mut txq_dev_stats) -> i32 {
    border(|| {
        // SAFETY: the caller sets the struct's size.
        unsafe { check_size(stats, "the place for the counters") }?;
        with_outside(dev, |dev| {
            let now = dev.net().stats();
            let written = txq_dev_stats {
                size: txq_dev_stats::SIZE,
                reserved: 0,
                accepted: now.accepted,
                created: now.created,
                sent: now.sent,
                bytes_sent: now.bytes_sent,
                dropped: now.dropped.total(),
                queued: now.queued,
                in_flight: now.in_flight,
                requeues: now.requeues,
                misuses: dev.custom.as_ref().map_or(0, |custom| custom.misuses()),
            };
            // SAFETY: checked above.
            unsafe { stats.write(written) };
            Ok(0)
        })
    })
}

/// Checks that the counters add up: no packet is missing or counted twice. Returns 0, or TXQ_E_AUDIT.
///
/// Threads: any. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_audit(dev: *mut txq_dev) -> i32 {
    border(|| {
        with_outside(dev, |dev| match dev.net().audit() {
            Ok(_) => Ok(0),
            Err(error) => Err(Error::new(TXQ_E_AUDIT, error.to_string())),
        })
    })
}

/// As `txq_sched_show`, for a device. TXQ_SHOW_REPORT writes the counters of the device, of its txqs and of its senders, and the
/// drops by reason.
///
/// Threads: any. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_dev_show(
    dev: *mut txq_dev,
    what: u32,
    parent: *const c_char,
    flags: u32,
    buffer: *mut c_char,
    n: size_t,
) -> i64 {
    border(|| {
        // SAFETY: the caller passes NULL or a text with a NUL.
        let parent = unsafe { optional_text(parent, "the parent") }?;
        let request = Request::new(what, parent, flags)?;
        let shown = with_outside(dev, |dev| {
            let net = dev.net();
            let list = match what {
                TXQ_SHOW_QDISCS => List::Qdiscs(net.qdiscs(request.style)),
                TXQ_SHOW_CLASSES => List::Classes(net.classes(request.style)),
                TXQ_SHOW_FILTERS => List::Filters(net.filters(request.parent, request.style)),
                TXQ_SHOW_REPORT if request.is_json() => return Ok(report::json(&net).to_string()),
                TXQ_SHOW_REPORT => return Ok(report::text(&net)),
                _ => return Err(request.unknown()),
            };
            Ok(request.text(&list))
        })?;
        // SAFETY: the caller passes a buffer of `n` bytes.
        unsafe { write_text(&shown, buffer, n) }
    })
}

/// Returns the time on the clock of departure times, in nanoseconds (CLOCK_MONOTONIC).
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn txq_now() -> u64 {
    txq::Instant::now().as_nanos()
}
