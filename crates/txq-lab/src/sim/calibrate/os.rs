//! Costs of the operating system's work: switching threads on a CPU, and waking a thread on another CPU.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use txq_core::arch::{Arch, Event, Native};

use super::sample::{Samples, middle_of, middle_one};
use super::{CalibrateError, pin};

/// Round trips per chunk.
const WAKE_TRIPS: u32 = 20;
/// How long a thread sleeps before it is woken, so that its CPU is idle by then.
const SLEEP_BEFORE_WAKE: Duration = Duration::from_micros(50);
/// Marks the end, instead of a time.
const END_MARK: u64 = u64::MAX;

/// Measures `os.switch`: two threads on a CPU pass a byte back and forth through pipes. The cost of the pipes themselves,
/// measured with one thread, is subtracted, as in lmbench's `lat_ctx`.
pub(super) fn switch(cpu: u32, time: Duration, samples: &mut Samples) -> Result<(), CalibrateError> {
    let pipe = || io::pipe().map_err(no_pipe);
    let (mut far_reader, mut near_writer) = pipe()?;
    let (mut near_reader, mut far_writer) = pipe()?;
    let (mut own_reader, mut own_writer) = pipe()?;
    let took = thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, move || {
            pin::pin_to(cpu)?;
            // Ends when the near thread closes its end of the pipe.
            while hand(&mut far_writer, &mut far_reader, true).is_ok() {}
            Ok(())
        });
        let other = other.map_err(CalibrateError::thread)?;
        let took = pin::on(cpu, move || {
            let mut failed = None;
            let trip = middle_of(time / 2, 2 * WAKE_TRIPS, || {
                for _ in 0..WAKE_TRIPS {
                    failed = failed.take().or(hand(&mut near_writer, &mut near_reader, false).err());
                }
            });
            let alone = middle_of(time / 2, WAKE_TRIPS, || {
                for _ in 0..WAKE_TRIPS {
                    failed = failed.take().or(hand(&mut own_writer, &mut own_reader, false).err());
                }
            });
            match failed {
                Some(error) => Err(no_pipe(error)),
                None => Ok(trip.zip(alone).map(|(trip, alone)| trip - alone)),
            }
        });
        pin::join(other)?;
        took
    })?;
    samples.add("os.switch", took.map(|took| took.max(0.0)));
    Ok(())
}

/// Writes a byte and then reads one, or the reverse if `read_first`.
fn hand(writer: &mut PipeWriter, reader: &mut PipeReader, read_first: bool) -> io::Result<()> {
    let mut byte = [0];
    if read_first {
        reader.read_exact(&mut byte)?;
        return writer.write_all(&byte);
    }
    writer.write_all(&byte)?;
    reader.read_exact(&mut byte)
}

fn no_pipe(source: io::Error) -> CalibrateError {
    CalibrateError::Refused {
        what: "a pipe".into(),
        source,
        remedy: "allow more open files, as by ulimit -n",
    }
}

/// Measures `os.wake` and `os.wakeup`: a thread sleeps on CPU `b` on an event, as txq's threads do, and a thread on `a`
/// wakes it.
pub(super) fn wake(a: u32, b: u32, time: Duration, samples: &mut Samples) -> Result<(), CalibrateError> {
    let event = <Native as Arch>::Event::new();
    // Time when the sleeper ran again; 0 while it sleeps, 1 after the waker has taken the time.
    let woken = AtomicU64::new(1);
    let stop = AtomicU64::new(0);
    let (event, woken, stop) = (&event, &woken, &stop);
    let took = thread::scope(|scope| {
        let sleeper = thread::Builder::new().spawn_scoped(scope, move || {
            let pinned = pin::pin_to(b);
            while pinned.is_ok() && stop.load(Ordering::Acquire) != END_MARK {
                woken.store(0, Ordering::Release);
                event.wait(None);
                woken.store(Native::now(), Ordering::Release);
                // The waker reads the time before the next sleep begins.
                while woken.load(Ordering::Acquire) > 1 && stop.load(Ordering::Acquire) != END_MARK {
                    thread::yield_now();
                }
            }
            woken.store(END_MARK, Ordering::Release);
            pinned
        });
        let sleeper = sleeper.map_err(CalibrateError::thread)?;
        let took = pin::on(a, || Ok(wake_for(time, event, woken)));
        stop.store(END_MARK, Ordering::Release);
        event.notify();
        pin::join(sleeper)?;
        took
    })?;
    samples.add("os.wake", middle_one(took.0));
    samples.add("os.wakeup", middle_one(took.1));
    Ok(())
}

/// Wakes the sleeper repeatedly; returns how long each notification took, and the time from then until the sleeper ran.
fn wake_for(time: Duration, event: &impl Event, woken: &AtomicU64) -> (Vec<f64>, Vec<f64>) {
    let start = Instant::now();
    let (mut wakes, mut wakeups) = (Vec::new(), Vec::new());
    while wakes.is_empty() || start.elapsed() < time {
        let asleep = Instant::now();
        loop {
            match woken.load(Ordering::Acquire) {
                END_MARK => return (wakes, wakeups),
                0 if asleep.elapsed() >= SLEEP_BEFORE_WAKE => break,
                _ => thread::yield_now(),
            }
        }
        let before = Native::now();
        event.notify();
        let after = Native::now();
        let ran = loop {
            match woken.load(Ordering::Acquire) {
                0 => thread::yield_now(),
                END_MARK => return (wakes, wakeups),
                ran => break ran,
            }
        };
        woken.store(1, Ordering::Release);
        wakes.push((after - before) as f64);
        wakeups.push(ran.saturating_sub(after) as f64);
    }
    (wakes, wakeups)
}
