//! Costs of a line that two CPUs share: its transfer time between them, and how long it stays while both want it.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::host::Class;
use super::sample::{Samples, middle_of, middle_one};
use super::{CalibrateError, pin};

/// A value alone on its line, and on the adjacent one that a prefetcher fetches with it.
#[repr(align(128))]
pub(super) struct Alone<T>(pub(super) T);

/// The CPU whose turn it is, or the end.
const PING: u32 = 0;
const PONG: u32 = 1;
const END: u32 = 2;
/// Round trips per chunk.
const LINE_TRIPS: u32 = 200;
/// An upper bound of a line's transfer time on every machine, in nanoseconds.
const LONGEST_WAY: f64 = 5000.0;
/// How long to retry until a time is plausible.
const RETRY_TIME: Duration = Duration::from_millis(300);
/// Additions per chunk.
const ADDS: u32 = 2000;

/// Measures a line's transfer time between two CPUs of a class.
pub(super) fn ping_pong(
    class: Class,
    a: u32,
    b: u32,
    time: Duration,
    samples: &mut Samples,
) -> Result<(), CalibrateError> {
    samples.add(class.field(), way(a, b, time)?);
    Ok(())
}

/// Measures a line's transfer time between two CPUs; returns half the round trip of two CPUs that exchange a value in turn.
/// If other programs use the CPUs, one waits for the other to be scheduled instead; then it measures again, and finally
/// returns `None`.
pub(super) fn way(a: u32, b: u32, time: Duration) -> Result<Option<f64>, CalibrateError> {
    let start = Instant::now();
    loop {
        let way = exchange(a, b, time)?.filter(|&way| way < LONGEST_WAY);
        if way.is_some() || start.elapsed() > RETRY_TIME.max(time) {
            return Ok(way);
        }
    }
}

fn exchange(a: u32, b: u32, time: Duration) -> Result<Option<f64>, CalibrateError> {
    let turn = Alone(AtomicU32::new(PING));
    beside(
        (a, b),
        || {
            middle_of(time, 2 * LINE_TRIPS, || {
                for _ in 0..LINE_TRIPS {
                    if !take(&turn.0, PING, PONG) {
                        break;
                    }
                }
            })
        },
        || while take(&turn.0, PONG, PING) {},
        || turn.0.store(END, Ordering::Relaxed),
    )
}

/// Waits for `from` and replaces it with `to`; returns false if it finds the end instead.
fn take(turn: &AtomicU32, from: u32, to: u32) -> bool {
    loop {
        match turn.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(END) => return false,
            // No PAUSE: on some CPUs it takes longer than the line's transfer, and would be measured with it.
            Err(_) => {}
        }
    }
}

/// Measures `stay`: two CPUs add to the same number as fast as they can, and one counts how often it adds before the line
/// goes to the other. An addition that does not follow its thread's last one found the line newly arrived.
pub(super) fn contended(a: u32, b: u32, time: Duration, samples: &mut Samples) -> Result<(), CalibrateError> {
    let number = Alone(AtomicU64::new(0));
    let end = Alone(AtomicU32::new(PING));
    let stay = beside(
        (a, b),
        || {
            let start = Instant::now();
            let (mut stays, mut last) = (Vec::new(), 0);
            while start.elapsed() < time {
                let mut arrivals = 0_u32;
                for _ in 0..ADDS {
                    let found = number.0.fetch_add(1, Ordering::AcqRel);
                    arrivals += u32::from(found != last);
                    last = found + 1;
                }
                if arrivals > 0 {
                    stays.push(f64::from(ADDS) / f64::from(arrivals));
                }
            }
            middle_one(stays)
        },
        || {
            while end.0.load(Ordering::Relaxed) != END {
                for _ in 0..64 {
                    number.0.fetch_add(1, Ordering::AcqRel);
                }
            }
        },
        || end.0.store(END, Ordering::Relaxed),
    )?;
    samples.add("stay", stay);
    Ok(())
}

/// Runs two functions on a CPU each; returns the result of the first. `end` stops the second when the first has returned or
/// one of them could not start.
pub(super) fn beside<T: Send>(
    (a, b): (u32, u32),
    first: impl FnOnce() -> Option<T> + Send,
    second: impl FnOnce() + Send,
    end: impl Fn() + Sync,
) -> Result<Option<T>, CalibrateError> {
    let ready = AtomicU32::new(0);
    let end = &end;
    let ready = &ready;
    thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, move || {
            let pinned = pin::pin_to(b);
            if pinned.is_err() {
                end();
            }
            ready.store(1, Ordering::Release);
            pinned.map(|()| second())
        });
        let other = other.map_err(CalibrateError::thread)?;
        let took = pin::on(a, || {
            while ready.load(Ordering::Acquire) == 0 {
                spin_loop();
            }
            Ok(first())
        });
        end();
        pin::join(other)?;
        took
    })
}
