//! The time of `CLOCK_MONOTONIC` by the processor's time stamp counter.
//!
//! Where Linux itself keeps the time by this counter, a thread asks the kernel only about once in [`MARK_SPAN`]. It then reads the
//! counter and `CLOCK_MONOTONIC` together: a mark. Until the next mark it adds the ticks since this one, at the rate between
//! the last two. So it follows the kernel's time, whatever NTP does to its rate. A thread that has slept, or whose last two
//! rates differ, asks the kernel each time, until two rates agree again.
//!
//! The vDSO's `clock_gettime` orders its read of the counter behind all earlier loads, by a fence. A packet whose lines come
//! from another CPU waits for them there. This read has no fence: a thread that has just seen another thread's store may
//! read a time from before that store, earlier by as long as its loads take. Users of the clock allow for that in any
//! case: the time of an owner's batch may have been read before another thread's packet came.
//!
//! On one thread the time goes back only where the counter itself does within a span. A jump of the counter shows in the
//! time until the next mark.

use std::cell::Cell;
use std::sync::OnceLock;

/// Nanoseconds between two marks.
const MARK_SPAN: u64 = 1_000_000;
/// Binary places of a rate.
const RATE_BITS: u32 = 32;
/// Rates that differ by less than this part are the same. NTP changes the kernel's rate by less, and the reads of a mark
/// are closer together than this part of [`MARK_SPAN`].
const SAME: u64 = 1000;
/// Ticks between the reads before and after the kernel's, at most. In a mark that took longer the thread was interrupted.
const APART: u64 = 1000;

thread_local! {
    static TIME: Time = const { Time::new() };
}

/// Returns the time. `monotonic` reads the kernel's.
#[inline]
pub(super) fn now(monotonic: fn() -> u64) -> u64 {
    TIME.with(|time| {
        time.now(ticks, |time| if keeps_time() { time.ask(ticks, monotonic) } else { monotonic() })
    })
}

/// Reads the counter.
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction. If a program forbids it (`PR_SET_TSC`), the vDSO fails as well.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns whether Linux keeps the time by the counter. Then all CPUs have the same, at a constant rate.
fn keeps_time() -> bool {
    const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    static KEEPS: OnceLock<bool> = OnceLock::new();
    *KEEPS.get_or_init(|| std::fs::read_to_string(CLOCKSOURCE).is_ok_and(|name| name.trim() == "tsc"))
}

/// What a thread knows of the time.
struct Time {
    /// Ticks at the last mark; 0 if there was none.
    mark: Cell<u64>,
    /// The kernel's time at the last mark.
    kernel: Cell<u64>,
    /// Nanoseconds a tick between the last two marks; 0 if unknown.
    measured: Cell<u64>,
    /// The time that was returned at the last mark: the kernel's, or later where it would have gone back.
    base: Cell<u64>,
    /// Nanoseconds a tick since then.
    rate: Cell<u64>,
    /// Ticks after the mark for which these two hold; 0 if the kernel must be asked.
    valid: Cell<u64>,
}

impl Time {
    const fn new() -> Self {
        let [mark, kernel, measured, base, rate, valid] = [const { Cell::new(0) }; 6];
        Self { mark, kernel, measured, base, rate, valid }
    }

    /// Returns the time by the counter, or what `ask` returns where that is not known.
    #[inline(always)]
    fn now(&self, ticks: impl Fn() -> u64, ask: impl FnOnce(&Self) -> u64) -> u64 {
        let valid = self.valid.get();
        // Where the kernel is always asked, the counter is never read: there it may be slow, or forbidden.
        if valid > 0 {
            let past = ticks().wrapping_sub(self.mark.get());
            if past < valid {
                return self.after(past);
            }
        }
        ask(self)
    }

    /// Returns the time so many ticks after the mark.
    #[inline(always)]
    fn after(&self, past: u64) -> u64 {
        self.base.get() + nanos(past, self.rate.get())
    }

    /// Asks the kernel, and makes a mark if the last one is old enough.
    #[cold]
    #[inline(never)]
    fn ask(&self, ticks: impl Fn() -> u64, monotonic: impl Fn() -> u64) -> u64 {
        let first = ticks();
        let kernel = monotonic();
        let apart = ticks().wrapping_sub(first);
        // No later time was returned so far.
        let base = kernel.max(self.after(self.valid.get()));
        let took = kernel.saturating_sub(self.kernel.get());
        let learns = self.mark.get() != 0 && self.valid.get() == 0;
        if apart > APART || (learns && took < MARK_SPAN) {
            return base;
        }
        let measured = match first.wrapping_sub(self.mark.get()) {
            past if self.mark.get() == 0 || past == 0 => 0,
            past => u64::try_from((u128::from(took) << RATE_BITS) / u128::from(past)).unwrap_or(0),
        };
        let agree = measured != 0 && measured.abs_diff(self.measured.get()) < measured / SAME;
        self.mark.set(first);
        self.kernel.set(kernel);
        self.measured.set(measured);
        self.base.set(base);
        let ahead = base - kernel;
        if agree && ahead < MARK_SPAN / SAME {
            // So that the kernel's time has caught up at the next mark.
            self.rate.set(measured - nanos(measured, (ahead << RATE_BITS) / MARK_SPAN));
            self.valid.set(((u128::from(MARK_SPAN) << RATE_BITS) / u128::from(measured)) as u64);
        } else {
            self.valid.set(0);
        }
        base
    }
}

/// Returns `ticks` times `rate`.
#[inline(always)]
fn nanos(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> RATE_BITS) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine: ticks of 0.4 ns, and the kernel's time.
    struct Machine {
        ticks: Cell<u64>,
        kernel: Cell<u64>,
        /// Times that the kernel was asked.
        asked: Cell<u64>,
        /// Nanoseconds that the kernel takes to answer.
        answers: u64,
    }

    impl Machine {
        fn new() -> Self {
            let (ticks, kernel) = (Cell::new(1 << 40), Cell::new(7_000_000_000));
            Self { ticks, kernel, asked: Cell::new(0), answers: 24 }
        }

        fn pass(&self, nanos: u64) {
            self.drift(nanos, 0);
        }

        /// Lets time pass during which the kernel's clock is faster by `parts` of a million.
        fn drift(&self, nanos: u64, parts: u64) {
            self.ticks.set(self.ticks.get().wrapping_add(nanos * 5 / 2));
            self.kernel.set(self.kernel.get() + nanos + nanos * parts / 1_000_000);
        }

        fn read(&self, time: &Time) -> u64 {
            let ticks = || self.ticks.get();
            let monotonic = || {
                self.asked.set(self.asked.get() + 1);
                let time = self.kernel.get();
                self.pass(self.answers);
                time
            };
            time.now(ticks, |time| time.ask(ticks, monotonic))
        }

        /// Reads once in `step` nanoseconds for `steps` steps. Returns the largest error, and checks that no time goes back.
        fn run(&self, time: &Time, step: u64, steps: u64, parts: u64) -> u64 {
            let mut last = 0;
            let mut worst = 0;
            for _ in 0..steps {
                self.drift(step, parts);
                let now = self.read(time);
                assert!(now >= last, "{now} after {last}");
                last = now;
                worst = worst.max(now.abs_diff(self.kernel.get()));
            }
            worst
        }
    }

    #[test]
    fn after_two_spans_the_kernel_is_asked_once_in_a_span() {
        let (machine, time) = (Machine::new(), Time::new());
        let error = machine.run(&time, 1000, 1900, 0);
        assert_eq!((machine.asked.take(), error), (1900, 24), "the kernel's own");
        machine.run(&time, 1000, 200, 0);
        machine.asked.take();
        let error = machine.run(&time, 1000, 100_000, 0);
        assert!(error < 100, "{error}");
        let asked = machine.asked.get();
        assert!((90..110).contains(&asked), "{asked}");
    }

    #[test]
    fn corrections_by_ntp_are_followed() {
        let (machine, time) = (Machine::new(), Time::new());
        for parts in [0, 500, 0, 250, 100] {
            let error = machine.run(&time, 700, 20_000, parts);
            assert!(error < 1000, "{parts}: {error}");
        }
        assert!(machine.asked.get() < 5000, "{}", machine.asked.get());
    }

    #[test]
    fn a_counter_that_jumps_or_stops_does_not_turn_time_back() {
        for jump in [1, 1000, 1 << 21, 1 << 41, u64::MAX - (1 << 30)] {
            let (machine, time) = (Machine::new(), Time::new());
            machine.run(&time, 1000, 5000, 0);
            let before = machine.read(&time);
            machine.ticks.set(machine.ticks.get().wrapping_add(jump));
            let after = machine.read(&time);
            assert!((before..=before + MARK_SPAN).contains(&after), "{jump}: {before}, {after}");
            machine.run(&time, 1000, 5000, 0);
            let error = machine.run(&time, 1000, 5000, 0);
            assert!(error < 1000, "{jump}: {error}");
        }
        let (machine, time) = (Machine::new(), Time::new());
        machine.run(&time, 1000, 5000, 0);
        machine.kernel.set(machine.kernel.get() + 50_000_000_000);
        let before = machine.read(&time);
        machine.run(&time, 1000, 3000, 0);
        assert!(
            machine.read(&time) >= before + 50_000_000_000,
            "a suspended counter is noticed within a span"
        );
        let error = machine.run(&time, 1000, 5000, 0);
        assert!(error < 1000, "{error}");
    }

    #[test]
    fn a_thread_that_slept_asks() {
        let (machine, time) = (Machine::new(), Time::new());
        machine.run(&time, 1000, 5000, 0);
        for nanos in [MARK_SPAN, 3_000_000_000, 400_000_000_000_000] {
            machine.pass(nanos);
            assert_eq!(machine.read(&time), machine.kernel.get() - 24);
        }
    }

    #[test]
    fn where_each_answer_is_interrupted_the_kernel_is_always_asked() {
        let (machine, time) = (Machine { answers: APART, ..Machine::new() }, Time::new());
        machine.run(&time, 1000, 5000, 0);
        assert_eq!(machine.asked.get(), 5000);
    }

    #[test]
    fn the_time_is_the_kernels() {
        const NEAR: u64 = 50_000;
        let mut last = 0;
        let end = super::super::linux::monotonic() + 20 * MARK_SPAN;
        loop {
            let before = super::super::linux::monotonic();
            let now = super::super::now();
            let after = super::super::linux::monotonic();
            assert!(now >= last, "{now} after {last}");
            assert!((before.saturating_sub(NEAR)..=after + NEAR).contains(&now), "{before} {now} {after}");
            last = now;
            if after > end {
                break;
            }
        }
    }
}
