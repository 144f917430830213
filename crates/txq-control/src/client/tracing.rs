//! A trace of a running program.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use super::Client;
use crate::Error;
use crate::answer::Answer;
use crate::message::Request;
use crate::trace::{Begun, Ended, Line, TraceEvent, TraceOptions, TracedDevice};

/// A trace of a running program, made by [`Client::trace`]. Its end ends the trace in the program.
#[derive(Debug)]
pub struct Tracing {
    client: Client,
    devices: Vec<TracedDevice>,
}

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Traced {
    /// A step of a packet.
    Event(Box<TraceEvent>),
    /// The trace is over.
    End {
        /// The events that were sent.
        events: u64,
        /// The events that were lost, because the client or the server was too slow.
        lost: u64,
    },
}

impl Client {
    /// Begins a trace: the program sends each step of its devices' packets, until the options, [`Tracing::stop`] or the end of
    /// the returned value end the trace. A client that does not read loses events, and the connection after some seconds;
    /// the program's packets do not wait for it.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use txq_control::{Client, TraceOptions, Traced};
    ///
    /// let mut options = TraceOptions::default();
    /// options.events = vec!["kfree_skb".to_owned()];
    /// let mut drops = Client::connect("shaper")?.trace(&options)?;
    /// loop {
    ///     match drops.next_within(Duration::from_secs(1))? {
    ///         Some(Traced::Event(event)) => println!("{} {:?} {:?}", event.dev, event.reason, event.src),
    ///         Some(Traced::End { lost, .. }) => break println!("{lost} lost"),
    ///         _ => drops.stop(),
    ///     }
    /// }
    /// # Ok::<(), txq_control::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Silent`] if no answer arrives in time, [`Error::Lost`] if the connection ends, [`Error::Refused`] if an option
    /// is wrong, there is no such device, or too many recordings run.
    pub fn trace(mut self, options: &TraceOptions) -> Result<Tracing, Error> {
        let request = Request::Trace(options.clone());
        let line = request.line().map_err(|error| Error::lost(&self.path, error))?;
        let first = self.exchange_line(&line, Duration::ZERO)?;
        if let Ok(Begun { tracing }) = serde_json::from_slice(&first) {
            return Ok(Tracing { client: self, devices: tracing });
        }
        let answer: Answer = self.parse(&first)?;
        Err(self.refused(&answer))
    }
}

impl Tracing {
    /// Returns the devices that are traced.
    pub fn devices(&self) -> &[TracedDevice] {
        &self.devices
    }

    /// Returns the next line, for which it waits at most `time`; `None` if none arrives.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection ends before the trace.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<Traced>, Error> {
        let client = &mut self.client;
        let line = match client.receive(Some(Instant::now() + time)) {
            Ok(line) => line,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(Error::lost(&client.path, error)),
        };
        if let Ok(Line { event }) = serde_json::from_slice(&line) {
            return Ok(Some(Traced::Event(Box::new(event))));
        }
        let answer: Answer = client.parse(&line)?;
        let Ended { events, lost } = client.result(answer)?;
        Ok(Some(Traced::End { events, lost }))
    }

    /// Ends the trace. The lines that are on their way follow, and the last one says how many events were lost.
    pub fn stop(&self) {
        // It fails if the connection is gone, and then the trace is, too.
        let _ = self.client.stream.shutdown(Shutdown::Write);
    }
}
