//! A monitor of a running program.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use super::Client;
use crate::Error;
use crate::answer::Answer;
use crate::message::Request;
use crate::monitor::{Begun, Change, Line};
use crate::trace::Ended;

/// A monitor of a running program, made by [`Client::monitor`]. Its end ends the monitor in the program.
#[derive(Debug)]
pub struct Monitoring(Client);

/// A line of a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Monitored {
    /// A change of a qdisc, a class or a filter.
    Change(Change),
    /// The monitor is over.
    End {
        /// The changes that were sent.
        events: u64,
        /// The changes that were lost, because the client was too slow.
        lost: u64,
    },
}

impl Client {
    /// Begins a monitor: the program sends the changes that commands make to its qdiscs, classes and filters (`tc monitor`).
    /// A client that does not read loses changes, and the connection after some seconds; no command waits for it.
    ///
    /// # Errors
    /// [`Error::Silent`] if no answer arrives in time, [`Error::Lost`] if the connection ends, [`Error::Refused`] if too many
    /// recordings run.
    pub fn monitor(mut self) -> Result<Monitoring, Error> {
        let line = Request::Monitor {}.line().map_err(|error| Error::lost(&self.path, error))?;
        let first = self.exchange_line(&line, Duration::ZERO)?;
        if serde_json::from_slice::<Begun>(&first).is_ok_and(|begun| begun.monitoring) {
            return Ok(Monitoring(self));
        }
        let answer: Answer = self.parse(&first)?;
        Err(self.refused(&answer))
    }
}

impl Monitoring {
    /// Returns the next line, for which it waits at most `time`; `None` if none arrives.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection ends before the monitor.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<Monitored>, Error> {
        let client = &mut self.0;
        let line = match client.receive(Some(Instant::now() + time)) {
            Ok(line) => line,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(Error::lost(&client.path, error)),
        };
        if let Ok(Line { change }) = serde_json::from_slice(&line) {
            return Ok(Some(Monitored::Change(change)));
        }
        let answer: Answer = client.parse(&line)?;
        let Ended { events, lost } = client.result(answer)?;
        Ok(Some(Monitored::End { events, lost }))
    }

    /// Ends the monitor. The changes that are on their way follow.
    pub fn stop(&self) {
        // It fails if the connection is gone, and then the monitor is, too.
        let _ = self.0.stream.shutdown(Shutdown::Write);
    }
}
