//! The device of an interface that does not exist yet: it sends and receives nothing, until the interface is there and
//! [`reopen`](super::reopen) replaces it. Packets wait in the qdiscs meanwhile, as those of an interface that is down.

use std::io;
use std::thread;
use std::time::Duration;

use txq::Sender;
use txq::driver::{DeviceInfo, Driver, DriverQueue, Link, NoCompletions, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::receive::{Receive, RxStats};

/// The time until packets are offered again.
const ABSENT_RETRY: Duration = Duration::from_millis(10);
/// The longest sleep of a receiver.
const LONGEST_RECEIVER_SLEEP: Duration = Duration::from_millis(100);

/// The driver.
pub(super) struct Absent(pub(super) DeviceInfo);

impl Driver for Absent {
    fn info(&self) -> DeviceInfo {
        self.0.clone()
    }

    fn open(&mut self, _txq: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(Refusing, NoCompletions))
    }
}

struct Refusing;

impl Transmit for Refusing {
    fn start_xmit(&mut self, _batch: &mut PacketList, _cx: &mut TxCx<'_>) -> Status {
        Status::Busy { retry: Some(ABSENT_RETRY) }
    }
}

/// The receiver.
pub(super) struct Silent;

impl Receive for Silent {
    fn link(&self) -> Link {
        Link::Ethernet
    }

    fn receive(&mut self, _: usize, _: &mut Sender, _: &mut PacketList) -> io::Result<usize> {
        Ok(0)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        thread::sleep(timeout.unwrap_or(LONGEST_RECEIVER_SLEEP).min(LONGEST_RECEIVER_SLEEP));
        Ok(false)
    }

    fn stats(&self) -> RxStats {
        RxStats::default()
    }
}
