//! The traffic of a `[[sender]]`: its flows in turn, at its rate.

use crate::config;
use crate::frames::{self, HEADERS};
use crate::pump::{Frame, Source};
use crate::rate::Rate;
use crate::report::Asked;

/// One thread's part of a `[[sender]]`.
pub(crate) struct Load {
    flows: Vec<[u8; HEADERS]>,
    len: usize,
    priority: u32,
    next_flow: usize,
    /// Frames of a batch, which are due together.
    batch: u64,
    /// Nanoseconds from one batch of this thread to the next, and before the first; `None` at max.
    period: Option<(f64, f64)>,
    sent: u64,
}

impl Load {
    /// The part of thread `index` of the sender's; `number` tells it from all threads of the run.
    pub(crate) fn new(sender: &config::Sender, index: u64, number: u16) -> Self {
        let (threads, batch) = (sender.threads.get(), sender.batch.get());
        let len = sender.packet.size();
        let period = pps(sender.rate, len).map(|pps| {
            let batches = batch as f64 * 1e9 / pps;
            (batches * threads as f64, batches * index as f64)
        });
        Self {
            flows: (0..sender.flows.get()).map(|flow| frames::header(number, flow as u32, len)).collect(),
            len,
            priority: sender.priority.get() as u32,
            next_flow: 0,
            batch,
            period,
            sent: 0,
        }
    }
}

/// Packets per second of a rate; `None` for max.
fn pps(rate: Rate, len: usize) -> Option<f64> {
    match rate {
        Rate::Max | Rate::Recorded => None,
        Rate::Packets(pps) => Some(pps),
        Rate::Bits(bits) => Some(bits / (len as f64 * 8.0)),
    }
}

/// What a `[[sender]]` asks for.
pub(crate) fn asked(sender: &config::Sender) -> Asked {
    let len = sender.packet.size();
    let pps = pps(sender.rate, len);
    Asked { text: sender.rate.to_string(), pps, bps: pps.map(|pps| pps * len as f64 * 8.0) }
}

impl Source for Load {
    #[inline]
    fn next(&mut self) -> Option<Frame<'_>> {
        let due = match self.period {
            Some((period, first)) => (first + (self.sent / self.batch) as f64 * period) as u64,
            None => 0,
        };
        self.sent += 1;
        let flow = self.next_flow;
        self.next_flow = if flow + 1 == self.flows.len() { 0 } else { flow + 1 };
        Some(Frame { due, head: &self.flows[flow], len: self.len, priority: self.priority })
    }
}
