//! Waiting for room: asleep, or with a descriptor for an event loop.

use std::os::fd::AsRawFd;
use std::task::{Poll, Waker};
use std::time::Duration;

use txq::{Instant, Room};
use txq_device::EventFd;

use super::{txq_sender, with};
use crate::driver::is_inside;
use crate::error::{Error, Result, TXQ_E_BUSY, TXQ_E_DOWN, TXQ_E_GONE, TXQ_E_IO, border};

/// The descriptor that becomes readable when there is room.
pub(super) struct RoomFd {
    fd: EventFd,
    waker: Waker,
}

fn code(room: Room) -> Result<i32> {
    match room {
        Room::Free => Ok(1),
        Room::Full => Ok(0),
        Room::Down => Err(Error::new(TXQ_E_DOWN, "the device is down: packets are dropped")),
        _ => Err(Error::new(TXQ_E_GONE, "the device is gone: packets are dropped")),
    }
}

/// Sleeps until the queue that the sender's packets go to has room, for at most `timeout_ns` nanoseconds and at most 1 s. Call
/// it before `txq_xmit`, to wait instead of losing packets. Returns 1 if there is room, 0 if the time has passed, TXQ_E_DOWN or
/// TXQ_E_GONE.
///
/// Threads: the one that uses the sender. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sender_wait_room(sender: *mut txq_sender, timeout_ns: u64) -> i32 {
    border(|| {
        refuse_inside()?;
        with(sender, |sending| {
            let deadline = Instant::now() + Duration::from_nanos(timeout_ns);
            code(sending.sender.wait_room(Some(deadline)))
        })
    })
}

/// Returns the descriptor that becomes readable when there is room, for poll and epoll. It belongs to the sender and must not be
/// closed.
///
/// Threads: the one that uses the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sender_room_fd(sender: *mut txq_sender) -> i32 {
    border(|| {
        with(sender, |sending| {
            let room = match &sending.room {
                Some(room) => room,
                None => {
                    let failed = |error| Error::new(TXQ_E_IO, format!("no eventfd: {error}"));
                    let fd = EventFd::new().map_err(failed)?;
                    let waker = fd.waker();
                    sending.room.insert(RoomFd { fd, waker })
                }
            };
            Ok(room.fd.as_raw_fd())
        })
    })
}

/// As `txq_sender_wait_room` without sleeping. If there is no room, it returns 0 and makes the descriptor of
/// `txq_sender_room_fd` readable once there is. Call it when the descriptor is readable, and after 1 s in any case.
///
/// Threads: the one that uses the sender. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sender_poll_room(sender: *mut txq_sender) -> i32 {
    border(|| {
        refuse_inside()?;
        with(sender, |sending| {
            let Some(room) = &sending.room else {
                return Err(Error::invalid("the sender has no descriptor: call txq_sender_room_fd before"));
            };
            room.fd.drain();
            match sending.sender.poll_room(&room.waker) {
                Poll::Ready(room) => code(room),
                Poll::Pending => Ok(0),
            }
        })
    })
}

/// Sleeps until the sender's limit allows an allocation, for at most `timeout_ns` nanoseconds. Returns 1 if it does, else 0.
///
/// Threads: the one that uses the sender. Not in a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txq_sender_wait_credit(sender: *mut txq_sender, timeout_ns: u64) -> i32 {
    border(|| {
        refuse_inside()?;
        with(sender, |sending| {
            let deadline = Instant::now() + Duration::from_nanos(timeout_ns);
            Ok(sending.sender.wait_credit(Some(deadline)).into())
        })
    })
}

fn refuse_inside() -> Result<()> {
    match is_inside() {
        true => Err(Error::new(TXQ_E_BUSY, "a callback of a device called this function, which waits")),
        false => Ok(()),
    }
}
