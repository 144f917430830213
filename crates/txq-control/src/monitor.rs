//! `tc monitor`: the changes of a program's qdiscs, classes and filters, as lines of JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::answer::Answer;
pub use crate::changes::Change;
use crate::devices::Devices;
use crate::trace::{Ended, Lines, Stream};

/// How long the thread sleeps if there are no changes.
const CHANGES_PAUSE: Duration = Duration::from_millis(20);

/// The first line of a monitor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) monitoring: bool,
}

/// A further line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) change: Change,
}

/// Sends the changes of all devices until the client ends the monitor; returns the last line.
pub(crate) fn monitor(devices: &Devices, stream: &mut impl Stream) -> Answer {
    let watcher = devices.changes().watch();
    let (mut lines, mut events) = (Lines::default(), 0);
    lines.push(&Begun { monitoring: true });
    while lines.flush(stream) {
        // The changes before the end of the client's side are sent.
        let goes_on = stream.wait(CHANGES_PAUSE);
        for change in watcher.take() {
            events += 1;
            lines.push(&Line { change });
        }
        if !goes_on {
            lines.flush(stream);
            break;
        }
    }
    Answer::of(Ended { events, lost: watcher.lost() })
}
