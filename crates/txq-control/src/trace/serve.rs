//! The server's side of a trace.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use txq::trace::Trace;

use super::TraceOptions;
use super::wire::{Begun, Ended, Line, TraceEvent, TracedDevice};
use crate::answer::{Answer, INPUT, absent};
use crate::devices::Devices;

/// How long the thread sleeps if there are no events.
const EVENTS_PAUSE: Duration = Duration::from_millis(10);
/// The most events of a device that are read before those of the next.
const EVENTS_PER_DEVICE: usize = 256;

/// Where the lines of a trace go.
pub(crate) trait Stream {
    /// Sends bytes; returns false if the client is gone, has not read for too long, or the server stops.
    fn send(&mut self, bytes: &[u8]) -> bool;

    /// Waits at most `time`, zero included; returns false at once when the client has ended the trace or the server stops.
    fn wait(&mut self, time: Duration) -> bool;
}

struct Traced {
    name: String,
    trace: Trace,
}

/// Traces a device, or all devices, until the options or the client end it. Returns the last line: how many events were sent
/// and lost.
pub(crate) fn trace(devices: &Devices, options: &TraceOptions, stream: &mut impl Stream) -> Answer {
    let filter = match options.filter() {
        Ok(filter) => filter,
        Err(error) => return Answer::bad(INPUT, &error, None),
    };
    let handles = devices.handles(options.dev.as_deref());
    if let Some(answer) = absent(devices, options.dev.as_deref(), handles.is_empty()) {
        return answer;
    }
    let begun = Begun { tracing: handles.iter().map(|dev| TracedDevice::of(dev.info())).collect() };
    let traced = |dev: &txq::netdev::NetDevRef| Traced {
        name: dev.info().name.clone(),
        trace: dev.trace(filter.clone()),
    };
    let mut traces: Vec<_> = handles.iter().map(traced).collect();
    // The program may shut its devices down meanwhile.
    drop(handles);
    let mut lines = Lines::default();
    lines.push(&begun);
    let end = options.ms.map(|ms| Instant::now() + Duration::from_millis(ms));
    let mut left = options.count.unwrap_or(u64::MAX);
    let (epoch, mut sent) = (epoch(), 0);
    // When the trace was ended: the events until then are sent, and no later ones.
    let mut last = None;
    while lines.flush(stream) && left > 0 {
        if last.is_none() && (end.is_some_and(|end| end <= Instant::now()) || !stream.wait(Duration::ZERO)) {
            last = Some(epoch.saturating_add(txq::Instant::now().as_nanos()));
        }
        let over = last.is_some() || traces.iter().all(|traced| traced.trace.is_over());
        let mut events = read(&mut traces, epoch, options.data, left);
        if events.is_empty() {
            if over {
                break;
            }
            // If the client ends the trace meanwhile, the next round sees it.
            stream.wait(
                end.map_or(EVENTS_PAUSE, |end| {
                    EVENTS_PAUSE.min(end.saturating_duration_since(Instant::now()))
                }),
            );
            continue;
        }
        let found = events.len();
        events.retain(|event| last.is_none_or(|last| event.time_ns <= last));
        let is_end = events.len() < found;
        sent += events.len() as u64;
        left -= events.len() as u64;
        events.into_iter().for_each(|event| lines.push(&Line { event }));
        if is_end {
            lines.flush(stream);
            break;
        }
    }
    Answer::of(Ended { events: sent, lost: traces.iter().map(|traced| traced.trace.lost()).sum() })
}

/// Returns the next events of all devices in the order of their times, at most `most`.
fn read(traces: &mut [Traced], epoch: u64, data: bool, most: u64) -> Vec<TraceEvent> {
    let mut events = Vec::new();
    for Traced { name, trace } in traces {
        let room =
            EVENTS_PER_DEVICE.min(usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(events.len()));
        let next = std::iter::from_fn(|| trace.try_next()).take(room);
        events.extend(next.map(|event| TraceEvent::of(&event, name, epoch, data)));
    }
    events.sort_by_key(|event| event.time_ns);
    events
}

/// Returns the time since 1970, in nanoseconds, at which the clock of the devices was 0.
fn epoch() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).saturating_sub(txq::Instant::now().as_nanos())
}

/// Lines to send.
#[derive(Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    pub(crate) fn push(&mut self, line: &impl serde::Serialize) {
        // To memory, of a type without maps: it does not fail.
        if serde_json::to_writer(&mut self.0, line).is_ok() {
            self.0.push(b'\n');
        }
    }

    /// Sends the lines; returns false if the client does not take them.
    pub(crate) fn flush(&mut self, stream: &mut impl Stream) -> bool {
        let sent = self.0.is_empty() || stream.send(&self.0);
        self.0.clear();
        sent
    }
}
