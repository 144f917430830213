//! Devices of the program's own: a driver whose functions are callbacks.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::size_t;
use txq::Instant;
use txq::driver::{
    Clock, Complete, DeviceInfo, Driver, DriverQueue, Link, NoCompletions, Status, Transmit, TxCx,
};
use txq::packet::{Packet, PacketList};

use crate::error::{Error, Result};
use crate::sched::{TXQ_LINK_ETHERNET, TXQ_LINK_IP};
use crate::slab::Slab;
use crate::strings::{Sized32, check_size, null, text};

/// Frames of one call of `start_xmit`, at most.
const FRAMES_PER_CALL: usize = 64;
/// When a device that keeps nothing is asked again after it has refused frames, in nanoseconds.
const REFUSED_RETRY: u64 = 50_000;
/// The first and the longest time between two polls for completions, in nanoseconds.
const FIRST_POLL: u64 = 20_000;
const LONGEST_POLL: u64 = 1_000_000;

/// A frame that a custom device sends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct txq_frame {
    /// sizeof(struct txq_frame).
    pub size: u32,
    /// The number of bytes at `data`.
    pub len: u32,
    /// The frame's bytes. They stay until the frame is complete; without a ring, until `start_xmit` returns.
    pub data: *const u8,
    /// The number for `txq_dev_complete`; 0 without a ring.
    pub token: u64,
    /// The earliest departure time on the clock of `txq_now`; 0 for at once.
    pub departure: u64,
    /// The priority that the sender gave the packet, or a filter.
    pub priority: u32,
    /// The mark that the sender gave the packet.
    pub mark: u32,
    /// The flow's hash; 0 if it is not known.
    pub hash: u32,
    /// Always 0.
    pub reserved: u32,
}

/// A device by callbacks. Each callback may run on any thread of the program that sends, and on the device's worker threads;
/// one at a time for a txq. A callback must return, and must not wait. It may call `txq_dev_complete`, and `txq_xmit` and
/// `txq_send` for other devices; all other functions of devices fail in it with TXQ_E_BUSY or TXQ_E_PANIC.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct txq_driver {
    /// sizeof(struct txq_driver).
    pub size: u32,
    /// The number of txqs, up to 65535; 0 counts as 1.
    pub txqs: u32,
    /// The longest packet without its link-layer header, in bytes; 0 counts as 1500.
    pub mtu: u32,
    /// What packets begin with: TXQ_LINK_ETHERNET or TXQ_LINK_IP.
    pub link: u32,
    /// How many frames each txq of the device keeps at a time, until `txq_dev_complete`; 0 if a frame that `start_xmit` takes
    /// is complete when it returns.
    pub ring: u32,
    /// Always 0.
    pub reserved: u32,
    /// The device's name, in reports and in tc's output; NULL counts as "custom".
    pub name: *const c_char,
    /// The first argument of the callbacks.
    pub context: *mut c_void,
    /// Takes frames, from the front; returns how many. The others are offered again: after `*retry_ns` nanoseconds, if the
    /// callback sets that, or after a completion, or soon. `n` is 64 at most. Must not be NULL.
    pub start_xmit: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            txq: u32,
            frames: *const txq_frame,
            n: size_t,
            retry_ns: *mut u64,
        ) -> size_t,
    >,
    /// Ends the transmission of a txq; returns 0, or an errno. May be NULL.
    pub finish: Option<unsafe extern "C" fn(context: *mut c_void, txq: u32) -> i32>,
    /// Called once, when no callback follows: the device and its senders are freed, or the device did not start. May be
    /// NULL.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

// SAFETY: `repr(C)`, of numbers, raw pointers and nullable functions, and `size` is the first field.
unsafe impl Sized32 for txq_driver {
    const NAME: &'static str = "struct txq_driver";
}

thread_local! {
    /// How many callbacks this thread is in.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether the thread is in a callback of a device.
pub(crate) fn is_inside() -> bool {
    INSIDE.get() > 0
}

fn inside<R>(f: impl FnOnce() -> R) -> R {
    INSIDE.set(INSIDE.get() + 1);
    let result = f();
    INSIDE.set(INSIDE.get() - 1);
    result
}

/// A device by callbacks, shared by its txqs and by the device's handle.
pub(crate) struct Custom {
    driver: txq_driver,
    name: String,
    queues: Vec<Mutex<Kept>>,
    /// Calls of `start_xmit` that returned more than they got, and frames that were completed but not taken.
    misuses: AtomicU64,
}

// SAFETY: the program's callbacks and context are for any thread, as the documentation of `txq_driver` says; the texts of the
// struct are not read after `new`.
unsafe impl Send for Custom {}
// SAFETY: as above.
unsafe impl Sync for Custom {}

/// The frames that a txq of the device keeps, and those completed since the last poll.
struct Kept {
    frames: Slab<Packet>,
    done: PacketList,
    /// The time between the next two polls.
    wait: u64,
}

impl Custom {
    /// Checks the program's description of a device.
    ///
    /// # Safety
    /// `driver` is null or points to a `txq_driver`, whose name is null or a text with a NUL.
    pub(crate) unsafe fn new(driver: *const txq_driver) -> Result<Arc<Self>> {
        // SAFETY: the caller's promise.
        unsafe { check_size(driver, "the driver") }?;
        // SAFETY: its size is right.
        let mut driver = unsafe { driver.read() };
        let name = match driver.name.is_null() {
            true => "custom".to_owned(),
            // SAFETY: the caller's promise.
            false => unsafe { text(driver.name, "the driver's name") }?.to_owned(),
        };
        if driver.start_xmit.is_none() {
            return Err(null("start_xmit of the driver"));
        }
        if driver.txqs > u16::MAX.into() || driver.link > TXQ_LINK_IP || driver.ring > 1 << 20 {
            return Err(Error::invalid(
                "the driver: use up to 65535 txqs, a ring of up to 1048576 frames, and a TXQ_LINK_...",
            ));
        }
        driver.txqs = driver.txqs.max(1);
        if driver.mtu == 0 {
            driver.mtu = 1500;
        }
        let room = driver.ring as usize;
        let kept = |_| {
            Mutex::new(Kept { frames: Slab::with_capacity(room), done: PacketList::new(), wait: FIRST_POLL })
        };
        let queues = (0..driver.txqs).map(kept).collect();
        Ok(Arc::new(Self { driver, name, queues, misuses: AtomicU64::new(0) }))
    }

    /// A panic elsewhere leaves whole packets, so the queue stays usable.
    fn queue(&self, txq: u16) -> MutexGuard<'_, Kept> {
        self.queues[usize::from(txq)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes frames; returns how many of the tokens named one.
    pub(crate) fn complete(&self, txq: u32, tokens: &[u64]) -> Result<i64> {
        if txq >= self.driver.txqs {
            return Err(Error::invalid(format!(
                "there is no txq {txq}: the device has {}",
                self.driver.txqs
            )));
        }
        let mut queue = self.queue(txq as u16);
        let mut count = 0;
        for &token in tokens {
            if let Some(packet) = queue.frames.take(token) {
                queue.done.push_back(packet);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Frees the frames that the device keeps: it is gone, and completes nothing any more.
    pub(crate) fn forget(&self) {
        (0..self.queues.len()).for_each(|txq| self.queue(txq as u16).frames.clear());
    }

    /// Returns how often the callbacks have broken a rule.
    pub(crate) fn misuses(&self) -> u64 {
        self.misuses.load(Relaxed)
    }

    /// Calls `start_xmit` with frames; returns how many were taken, and when to offer the others again.
    fn call(&self, txq: u16, frames: &[txq_frame]) -> (usize, u64) {
        let Some(start_xmit) = self.driver.start_xmit else { return (0, 0) };
        let mut retry = 0;
        let (context, n) = (self.driver.context, frames.len());
        // SAFETY: the program's callback, with its context; the frames and the time live during the call.
        let taken = inside(|| unsafe { start_xmit(context, txq.into(), frames.as_ptr(), n, &mut retry) });
        if taken > n {
            self.misuses.fetch_add(1, Relaxed);
        }
        (taken.min(n), retry)
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        if let Some(release) = self.driver.release {
            // SAFETY: the program's callback, with its context; the last one.
            inside(|| unsafe { release(self.driver.context) });
        }
    }
}

fn frame(packet: &Packet, token: u64) -> txq_frame {
    let data = packet.data();
    txq_frame {
        size: size_of::<txq_frame>() as u32,
        len: data.len() as u32,
        data: data.as_ptr(),
        token,
        departure: packet.departure().as_nanos(),
        priority: packet.priority(),
        mark: packet.mark(),
        hash: packet.hash(),
        reserved: 0,
    }
}

const NO_FRAME: txq_frame = txq_frame {
    size: 0,
    len: 0,
    data: std::ptr::null(),
    token: 0,
    departure: 0,
    priority: 0,
    mark: 0,
    hash: 0,
    reserved: 0,
};

/// The driver that a device is built on.
pub(crate) struct CustomDriver(pub(crate) Arc<Custom>);

impl Driver for CustomDriver {
    fn info(&self) -> DeviceInfo {
        let driver = &self.0.driver;
        let link = if driver.link == TXQ_LINK_ETHERNET { Link::Ethernet } else { Link::Ip };
        DeviceInfo::new(self.0.name.clone()).txqs(driver.txqs as u16).mtu(driver.mtu).link(link)
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let custom = &self.0;
        Ok(match custom.driver.ring {
            0 => DriverQueue::new(AtOnce { custom: custom.clone(), txq }, NoCompletions),
            ring => {
                DriverQueue::new(Later { custom: custom.clone(), txq }, Done { custom: custom.clone(), txq })
                    .ring(ring)
            }
        })
    }
}

fn finish(custom: &Custom, txq: u16) -> io::Result<()> {
    let Some(finish) = custom.driver.finish else { return Ok(()) };
    // SAFETY: the program's callback, with its context.
    match inside(|| unsafe { finish(custom.driver.context, txq.into()) }) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The transmitting half of a device without a ring.
struct AtOnce {
    custom: Arc<Custom>,
    txq: u16,
}

impl Transmit for AtOnce {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        while !batch.is_empty() {
            let (mut frames, mut n) = ([NO_FRAME; FRAMES_PER_CALL], 0);
            for (place, packet) in frames.iter_mut().zip(batch.iter()) {
                *place = frame(packet, 0);
                n += 1;
            }
            let (taken, retry) = self.custom.call(self.txq, &frames[..n]);
            let mut sent = PacketList::new();
            batch.move_front(taken, &mut sent);
            cx.sent_all(&mut sent);
            if taken < n {
                return Status::Busy {
                    retry: Some(Duration::from_nanos(if retry == 0 { REFUSED_RETRY } else { retry })),
                };
            }
        }
        Status::Ok
    }

    fn finish(&mut self) -> io::Result<()> {
        finish(&self.custom, self.txq)
    }
}

/// The transmitting half of a device with a ring.
struct Later {
    custom: Arc<Custom>,
    txq: u16,
}

impl Transmit for Later {
    fn start_xmit(&mut self, batch: &mut PacketList, _cx: &mut TxCx<'_>) -> Status {
        while !batch.is_empty() {
            let (mut frames, mut n) = ([NO_FRAME; FRAMES_PER_CALL], 0);
            let mut queue = self.custom.queue(self.txq);
            while n < FRAMES_PER_CALL
                && let Some(packet) = batch.pop_front()
            {
                let mut offered = frame(&packet, 0);
                offered.token = queue.frames.insert(packet);
                frames[n] = offered;
                n += 1;
            }
            queue.wait = FIRST_POLL;
            // The callback may complete frames.
            drop(queue);
            let (taken, retry) = self.custom.call(self.txq, &frames[..n]);
            if taken < n {
                let mut queue = self.custom.queue(self.txq);
                for frame in frames[taken..n].iter().rev() {
                    match queue.frames.take(frame.token) {
                        Some(packet) => batch.push_front(packet),
                        None => _ = self.custom.misuses.fetch_add(1, Relaxed),
                    }
                }
                let keeps = queue.frames.len() > 0 || !queue.done.is_empty();
                let retry = match retry {
                    0 if keeps => None,
                    0 => Some(REFUSED_RETRY),
                    retry => Some(retry),
                };
                let retry = retry.map(Duration::from_nanos);
                return if batch.is_empty() { Status::Ok } else { Status::Busy { retry } };
            }
        }
        Status::Ok
    }

    fn finish(&mut self) -> io::Result<()> {
        finish(&self.custom, self.txq)
    }
}

/// The completing half of a device with a ring.
struct Done {
    custom: Arc<Custom>,
    txq: u16,
}

impl Complete for Done {
    fn poll(&mut self, budget: usize, done: &mut PacketList, clock: &mut Clock) -> Option<Instant> {
        let mut queue = self.custom.queue(self.txq);
        let came = queue.done.len().min(budget);
        queue.done.move_front(came, done);
        if queue.frames.len() == 0 && queue.done.is_empty() {
            return None;
        }
        queue.wait = if came > 0 { FIRST_POLL } else { (queue.wait * 2).min(LONGEST_POLL) };
        Some(clock.now() + Duration::from_nanos(queue.wait))
    }
}
