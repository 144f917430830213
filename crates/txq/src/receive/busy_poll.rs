//! Polling before sleeping.

use std::io;
use std::time::Duration;

use txq_core::arch::{Arch, Nanos, Native};

use super::{Receive, RxStats};
use crate::driver::Link;
use crate::packet::PacketList;
use crate::sender::Sender;

/// A receiver that polls for a bounded time before it sleeps (`SO_BUSY_POLL`): packets that follow each other closely are not kept
/// waiting for a wakeup, at the price of CPU time.
///
/// ```no_run
/// # use std::time::Duration;
/// # use txq::receive::{BusyPoll, Receive};
/// # fn forward(receiver: impl Receive) -> std::io::Result<()> {
/// let mut receiver = BusyPoll::new(receiver, Duration::from_micros(50));
/// // Sleeps after 50 us without a packet.
/// let _may_have_packets = receiver.wait(Some(Duration::from_millis(100)))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BusyPoll<R> {
    receiver: R,
    time: Nanos,
}

impl<R> BusyPoll<R> {
    /// Makes [`wait`](Receive::wait) poll for `time` before it sleeps, and asks the system to poll the device's queue meanwhile
    /// ([`prefer_busy_poll`](Receive::prefer_busy_poll)). Zero does neither.
    pub fn new(mut receiver: R, time: Duration) -> Self
    where
        R: Receive,
    {
        if !time.is_zero() {
            receiver.prefer_busy_poll(time);
        }
        Self { receiver, time: nanos(time) }
    }

    /// Returns the receiver.
    pub fn into_inner(self) -> R {
        self.receiver
    }
}

fn nanos(time: Duration) -> Nanos {
    time.as_nanos().try_into().unwrap_or(Nanos::MAX)
}

impl<R: Receive> Receive for BusyPoll<R> {
    fn link(&self) -> Link {
        self.receiver.link()
    }

    fn receive(&mut self, budget: usize, sender: &mut Sender, batch: &mut PacketList) -> io::Result<usize> {
        self.receiver.receive(budget, sender, batch)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let (most, began) =
            (timeout.map_or(self.time, |timeout| self.time.min(nanos(timeout))), Native::now());
        let mut passed = 0;
        while passed < most {
            if self.receiver.wait(Some(Duration::ZERO))? {
                return Ok(true);
            }
            passed = Native::now().saturating_sub(began);
        }
        self.receiver.wait(timeout.map(|timeout| timeout.saturating_sub(Duration::from_nanos(passed))))
    }

    fn stats(&self) -> RxStats {
        self.receiver.stats()
    }

    fn prefer_busy_poll(&mut self, time: Duration) {
        self.receiver.prefer_busy_poll(time);
    }

    fn release(&mut self) {
        self.receiver.release();
    }

    fn record_times(&mut self) -> io::Result<()> {
        self.receiver.record_times()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Has packets at its `after`th poll; a wait of some length is a sleep.
    struct Scripted {
        after: u32,
        polls: u32,
        slept: Cell<Option<Option<Duration>>>,
        told: Option<Duration>,
    }

    impl Receive for Scripted {
        fn link(&self) -> Link {
            Link::Ethernet
        }

        fn receive(&mut self, _: usize, _: &mut Sender, _: &mut PacketList) -> io::Result<usize> {
            Ok(0)
        }

        fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
            if timeout != Some(Duration::ZERO) {
                self.slept.set(Some(timeout));
                return Ok(false);
            }
            self.polls += 1;
            Ok(self.polls == self.after)
        }

        fn stats(&self) -> RxStats {
            RxStats::default()
        }

        fn prefer_busy_poll(&mut self, time: Duration) {
            self.told = Some(time);
        }
    }

    fn polls_for(time: Duration, after: u32) -> BusyPoll<Scripted> {
        BusyPoll::new(Scripted { after, polls: 0, slept: Cell::new(None), told: None }, time)
    }

    const HOUR: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_micros(200);

    #[test]
    fn packets_that_come_while_it_polls_cost_no_sleep() {
        let mut receiver = polls_for(HOUR, 5);
        assert!(receiver.wait(None).unwrap());
        let scripted = receiver.into_inner();
        assert_eq!((scripted.polls, scripted.slept.get(), scripted.told), (5, None, Some(HOUR)));
    }

    #[test]
    fn it_sleeps_for_the_rest_of_the_timeout() {
        let mut receiver = polls_for(SHORT, u32::MAX);
        assert!(!receiver.wait(Some(HOUR)).unwrap());
        let scripted = receiver.into_inner();
        let slept = scripted.slept.get().flatten().expect("a sleep with an end");
        assert!(slept <= HOUR - SHORT && scripted.polls > 0, "{slept:?} after {} polls", scripted.polls);
    }

    #[test]
    fn a_timeout_ends_the_polling() {
        let mut receiver = polls_for(HOUR, u32::MAX);
        assert!(!receiver.wait(Some(SHORT)).unwrap());
        // The rest of the timeout is nothing: one more poll instead of a sleep.
        assert_eq!(receiver.into_inner().slept.get(), None);
    }

    #[test]
    fn without_a_time_it_only_sleeps() {
        let mut receiver = polls_for(Duration::ZERO, 1);
        assert!(!receiver.wait(Some(HOUR)).unwrap());
        let scripted = receiver.into_inner();
        assert_eq!((scripted.polls, scripted.slept.get(), scripted.told), (0, Some(Some(HOUR)), None));
    }
}
