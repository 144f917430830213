//! A tree of qdiscs over the program's own buffers: [`Scheduler`] for C.

mod types;

use std::collections::VecDeque;
use std::ffi::c_char;

use ::txq_sched::qdisc::{Budget, Env};
use ::txq_sched::scheduler::{Config, SchedulerError};
use ::txq_sched::{Departed, Dropped, Item, Scheduler};
use libc::size_t;
use txq_control::SchedulerPort;

use crate::error::{Error, Result, TXQ_E_MEMORY, border, warned};
use crate::handle::{Handle, Value};
use crate::reason::reason_of;
use crate::show::{List, Request, TXQ_SHOW_CLASSES, TXQ_SHOW_FILTERS, TXQ_SHOW_QDISCS};
use crate::strings::{
    Sized32, array, check_array, check_size, null, optional_text, size_error, text, write_text,
};

pub use types::{
    TXQ_LINK_ETHERNET, TXQ_LINK_IP, txq_departed, txq_dropped, txq_item, txq_qdisc_stats, txq_sched_config,
};

/// A tree of qdiscs over the program's own buffers, without threads, sockets or a clock.
pub struct txq_sched {
    _handle: Handle<Sched>,
}

/// The scheduler, and the values of dropped packets until the program takes them.
pub(crate) struct Sched {
    inner: Scheduler<usize>,
    /// The end of the scheduler's owner, if a server serves the scheduler.
    pub(crate) port: Option<SchedulerPort>,
    dropped: VecDeque<Dropped<usize>>,
    /// The most values that `dropped` has before further packets are refused.
    most: usize,
}

impl Value for Sched {
    const TAG: u32 = 0x7478_7101;
    const NAME: &'static str = "txq_sched";
    const OF_PROCESS: bool = false;
}

impl Sched {
    #[inline]
    fn collect_dropped(&mut self) {
        self.dropped.extend(self.inner.dropped());
    }

    /// Executes the commands that wait for the owner; returns how many. `None` if no server serves the scheduler.
    pub(crate) fn poll_control(&mut self, now: u64) -> Option<i64> {
        let mut count = 0;
        while self.port.as_mut()?.poll(now, &mut self.inner) {
            self.dropped.extend(self.inner.dropped());
            count += 1;
        }
        Some(count)
    }
}

pub(crate) fn with<R>(sched: *mut txq_sched, f: impl FnOnce(&mut Sched) -> Result<R>) -> Result<R> {
    // A `txq_sched` is nothing but its handle.
    Handle::with(sched.cast::<Handle<Sched>>(), f)
}

/// Builds the qdisc that `text` describes in tc's words, such as "handle 1: htb default 10" or "fq_codel limit 1000".
/// `config` may be NULL for the defaults. Returns NULL for an error. mq, mqprio and noqueue are refused, because they hold no
/// packets. The copies of netem's duplicate are dropped as NOMEM, because each value exists once.
///
/// Threads: any. One thread at a time uses a scheduler; it may be another one at each call. A scheduler has no threads and
/// works in a child after fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_new(
    text: *const c_char,
    config: *const txq_sched_config,
) -> *mut txq_sched {
    border(|| {
        // SAFETY: the caller passes a text with a NUL.
        let text = unsafe { self::text(text, "the qdisc") }?;
        let mut own = Config::default();
        if !config.is_null() {
            // SAFETY: not null; the caller passes a `txq_sched_config`.
            unsafe { check_size(config, "the configuration") }?;
            // SAFETY: its size is right.
            let config = unsafe { config.read() };
            own.packets = non_zero(config.packets, own.packets);
            own.header = non_zero(config.header, own.header as u32) as usize;
            own.env = Env {
                mtu: non_zero(config.mtu, own.env.mtu),
                tx_queue_len: non_zero(config.tx_queue_len, own.env.tx_queue_len),
                ..own.env
            };
        }
        let inner = Scheduler::with_config(text, &own).map_err(|error| match error {
            SchedulerError::Parse(error) => error.into(),
            SchedulerError::Batch(error) => error.error.into(),
            other => Error::new(TXQ_E_MEMORY, other.to_string()),
        })?;
        let (dropped, most) = (VecDeque::with_capacity(1024), own.packets as usize);
        Ok(Handle::create(Sched { inner, port: None, dropped, most }).cast())
    })
}

fn non_zero(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

/// Frees a scheduler; NULL is allowed. Values that are still queued are forgotten: call `txq_sched_purge` and
/// `txq_sched_dropped` before, to free them. Returns 0.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_free(sched: *mut txq_sched) -> i32 {
    border(|| {
        drop(Handle::take(sched.cast::<Handle<Sched>>())?);
        Ok(0)
    })
}

/// Executes one command in tc's words at the time `now`: "class add parent 1: classid 1:10 htb rate 1mbit". Its object is
/// qdisc, class or filter; a leading "tc" and a "dev NAME" make no difference. Returns 0, or 1 if tc would warn;
/// `txq_last_error` then returns the warning. After an error nothing has changed. Packets that the command drops are in
/// `txq_sched_dropped`.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_tc(sched: *mut txq_sched, now: u64, command: *const c_char) -> i32 {
    border(|| {
        // SAFETY: the caller passes a text with a NUL.
        let command = unsafe { text(command, "the command") }?;
        with(sched, |sched| {
            let done = sched.inner.tc(now, command);
            sched.collect_dropped();
            Ok(warned(&done?))
        })
    })
}

/// Executes the commands of `commands` at the time `now`, one a line, as `txq_sched_tc` does. Empty lines and lines that begin
/// with # are skipped. Returns 0, or 1 if tc would warn; `txq_last_error` then returns the warnings, one a line. The first error
/// ends the batch and names its line; the commands before it have been executed. Packets that the commands drop are in
/// `txq_sched_dropped`.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_tc_batch(sched: *mut txq_sched, now: u64, commands: *const c_char) -> i32 {
    border(|| {
        // SAFETY: the caller passes a text with a NUL.
        let commands = unsafe { text(commands, "the commands") }?;
        with(sched, |sched| {
            let done = sched.inner.tc_batch(now, commands);
            sched.collect_dropped();
            Ok(warned(&done?))
        })
    })
}

/// Queues `n` items at the time `now`, in nanoseconds on a clock of the program's choice that starts above 0 and never goes
/// back. Each item's `size` must be set. Returns how many items the scheduler has taken. It takes fewer than `n` only while
/// `txq_sched_config.packets` or more dropped packets wait for `txq_sched_dropped`; the items not taken stay the program's.
/// The qdisc may drop an item that was taken, or another packet in its place: call `txq_sched_dropped` afterwards. An error
/// has taken none. Headers are copied before the call returns.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_enqueue(
    sched: *mut txq_sched,
    now: u64,
    items: *const txq_item,
    n: size_t,
) -> i64 {
    border(|| {
        // SAFETY: the caller passes an array of `n` items.
        let items = unsafe { array(items, n, "the array of items") }?;
        for (index, item) in items.iter().enumerate() {
            check_item(index, item)?;
        }
        with(sched, |sched| {
            let mut taken = 0;
            for item in items {
                if sched.dropped.len() >= sched.most {
                    break;
                }
                let header: &[u8] = match item.header_len {
                    0 => &[],
                    // SAFETY: checked not to be null; the caller passes a header of this length.
                    len => unsafe { std::slice::from_raw_parts(item.header, len as usize) },
                };
                let to_queue = Item::new(item.len, item.value)
                    .priority(item.priority)
                    .mark(item.mark)
                    .hash(item.hash)
                    .departure(item.departure)
                    .segments(item.segments as u16);
                let to_queue = match item.link {
                    TXQ_LINK_IP => to_queue.ip_header(header),
                    _ => to_queue.header(header),
                };
                let _ = sched.inner.enqueue(now, to_queue);
                sched.collect_dropped();
                taken += 1;
            }
            Ok(taken)
        })
    })
}

#[inline]
fn check_item(index: usize, item: &txq_item) -> Result<()> {
    let wrong = match item {
        item if item.size != txq_item::SIZE => return Err(size_error::<txq_item>(item.size)),
        item if item.header.is_null() && item.header_len > 0 => {
            return Err(null("the header of an item"));
        }
        item if item.link > TXQ_LINK_IP => "link is unknown: use TXQ_LINK_...",
        item if item.segments > u16::MAX.into() => "segments are more than 65535",
        item if item.header_len > item.len => "header is longer than its packet",
        _ => return Ok(()),
    };
    Err(Error::invalid(format!("item {index}: its {wrong}")))
}

/// Dequeues up to `n` packets that may leave at the time `now`, and up to `bytes` bytes (0 for no limit; the last packet may
/// exceed them). Writes them to `out`, whose first element's `size` must be set, and returns their number. Packets may be
/// dropped meanwhile: call `txq_sched_dropped` afterwards.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_dequeue(
    sched: *mut txq_sched,
    now: u64,
    out: *mut txq_departed,
    n: size_t,
    bytes: u64,
) -> i64 {
    border(|| {
        check_array(out, n, "the array of departed packets")?;
        with(sched, |sched| {
            if n == 0 {
                return Ok(0);
            }
            // SAFETY: the caller sets the first element's size.
            unsafe { check_size(out, "the array of departed packets") }?;
            let mut written = 0;
            let budget = Budget::new(n, if bytes == 0 { u64::MAX } else { bytes });
            sched.inner.dequeue_with(now, budget, |departed| {
                // A qdisc of the budget's contract returns no more than `n`.
                assert!(written < n, "a qdisc dequeued more than {n} packets");
                let Departed { value, len, departure, tos, .. } = departed;
                let tos = tos.map_or(-1, i32::from);
                let departed = txq_departed {
                    size: txq_departed::SIZE,
                    len,
                    value,
                    departure: departure.as_nanos(),
                    tos,
                    reserved: 0,
                };
                // SAFETY: less than `n`, so within the caller's array.
                unsafe { out.add(written).write(departed) };
                written += 1;
            });
            sched.collect_dropped();
            Ok(written as i64)
        })
    })
}

/// Returns up to `n` packets that earlier calls dropped, each with its reason, in the order in which they were dropped. They
/// are the program's again. Writes them to `out`, whose first element's `size` must be set, and returns their number. Call it
/// until it returns less than `n`.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_dropped(sched: *mut txq_sched, out: *mut txq_dropped, n: size_t) -> i64 {
    border(|| {
        check_array(out, n, "the array of dropped packets")?;
        with(sched, |sched| {
            if n == 0 || sched.dropped.is_empty() {
                return Ok(0);
            }
            // SAFETY: the caller sets the first element's size.
            unsafe { check_size(out, "the array of dropped packets") }?;
            let count = n.min(sched.dropped.len());
            for (index, Dropped { value, reason, .. }) in sched.dropped.drain(..count).enumerate() {
                let dropped = txq_dropped { size: txq_dropped::SIZE, reason: reason as u32, value };
                // SAFETY: less than `n`, so within the caller's array.
                unsafe { out.add(index).write(dropped) };
            }
            Ok(count as i64)
        })
    })
}

/// Drops all queued packets as QUEUE_PURGE: `txq_sched_dropped` returns them. Returns 0.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_purge(sched: *mut txq_sched, now: u64) -> i32 {
    border(|| {
        with(sched, |sched| {
            sched.inner.purge(now);
            sched.collect_dropped();
            Ok(0)
        })
    })
}

/// Writes the time of the next dequeue to `at`: 0 for at once, or the qdisc's next event if the last call was a dequeue that
/// returned nothing. Returns 1, or 0 if there is no such time: nothing is queued, or the qdisc names no time.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_next(sched: *mut txq_sched, at: *mut u64) -> i32 {
    border(|| {
        if at.is_null() {
            return Err(null("the place for the time"));
        }
        check_array(at, 1, "the place for the time")?;
        with(sched, |sched| {
            let Some(next) = sched.inner.next_event() else { return Ok(0) };
            // SAFETY: checked above.
            unsafe { at.write(next.as_nanos()) };
            Ok(1)
        })
    })
}

/// Returns the number of packets queued.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_len(sched: *mut txq_sched) -> i64 {
    border(|| with(sched, |sched| Ok(sched.inner.len() as i64)))
}

/// Writes the counters of the root to `stats`, whose `size` must be set. Returns 0.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_stats(sched: *mut txq_sched, stats: *mut txq_qdisc_stats) -> i32 {
    border(|| {
        // SAFETY: the caller sets the struct's size.
        unsafe { check_size(stats, "the place for the counters") }?;
        with(sched, |sched| {
            // SAFETY: checked above.
            unsafe { stats.write(sched.inner.stats().into()) };
            Ok(0)
        })
    })
}

/// Returns the number of packets dropped for `reason` (`TXQ_DROP_...`) so far.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_drops(sched: *mut txq_sched, reason: u32) -> i64 {
    border(|| {
        let reason = reason_of(reason)
            .ok_or_else(|| Error::invalid(format!("there is no drop reason {reason}: use TXQ_DROP_...")))?;
        with(sched, |sched| Ok(sched.inner.drops().get(reason) as i64))
    })
}

/// Writes qdiscs, classes or filters (`what`: TXQ_SHOW_QDISCS, TXQ_SHOW_CLASSES or TXQ_SHOW_FILTERS) to `buffer`, as tc prints
/// them with the `flags` TXQ_SHOW_JSON, TXQ_SHOW_STATS and TXQ_SHOW_DETAILS. `parent` names the qdisc or class whose filters
/// are shown, such as "1:"; NULL for the root's, and for qdiscs and classes. At most `n` bytes are written, with the NUL.
/// Returns the length of the whole text without the NUL, as snprintf does: the text is cut if that is `n` or more. `buffer` may
/// be NULL if `n` is 0.
///
/// Threads: the one that uses the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sched_show(
    sched: *mut txq_sched,
    what: u32,
    parent: *const c_char,
    flags: u32,
    buffer: *mut c_char,
    n: size_t,
) -> i64 {
    border(|| {
        // SAFETY: the caller passes a text with a NUL.
        let parent = unsafe { optional_text(parent, "the parent") }?;
        let request = Request::new(what, parent, flags)?;
        let list = with(sched, |sched| {
            Ok(match what {
                TXQ_SHOW_QDISCS => List::Qdiscs(sched.inner.qdiscs(request.style)),
                TXQ_SHOW_CLASSES => List::Classes(sched.inner.classes(request.style)),
                TXQ_SHOW_FILTERS => List::Filters(sched.inner.filters(request.parent, request.style)),
                _ => return Err(request.unknown()),
            })
        })?;
        // SAFETY: the caller passes a buffer of `n` bytes.
        unsafe { write_text(&request.text(&list), buffer, n) }
    })
}
