//! The interface that the kernel and txq share, so that one loop runs a script through either.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::script::{Action, Burst, Object, Script};

/// A packet that left.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) cookie: u64,
    /// Whether it is marked as having met congestion (ECN CE).
    pub(crate) ce: bool,
    /// Its departure time, in nanoseconds.
    pub(crate) at: u64,
}

/// The result of an action.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Time when it began, in nanoseconds.
    pub(crate) at: u64,
    pub(crate) left: Vec<Left>,
    /// The output of tc, or the number of refused packets.
    pub(crate) said: String,
}

/// The results of a script.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) script: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) error: Option<String>,
}

/// A device under a qdisc.
pub(crate) trait Path {
    /// Begins step number `step`; returns its time.
    fn begin(&mut self, step: usize) -> u64;
    /// Runs tc; returns its output.
    fn tc(&mut self, object: Object, verb: &str, words: &str) -> Result<String>;
    /// Returns the objects, with counters.
    fn show(&mut self, object: Object, words: &str) -> Result<String>;
    /// Sends packets, numbered from `first` on; returns how many are refused.
    fn send(&mut self, burst: &Burst, first: u32) -> Result<usize>;
    /// Completes `n` packets, and appends them to `left`.
    fn take(&mut self, n: usize, left: &mut Vec<Left>) -> Result<()>;
    /// Lets `ms` milliseconds pass.
    fn wait(&mut self, ms: u64) -> Result<()>;
    /// Lets `ms` milliseconds pass while the device completes every packet at once.
    fn drain(&mut self, ms: u64, left: &mut Vec<Left>) -> Result<()>;
    /// Sets the device's `tx_queue_len`.
    fn set_tx_queue_len(&mut self, packets: u32) -> Result<()>;
}

/// Runs a script; returns its results.
pub(crate) fn run(script: &Script, path: &mut impl Path) -> Result<Record> {
    let mut steps = Vec::new();
    let mut count = 0;
    for (index, line) in script.lines.iter().enumerate() {
        let mut step = Step { at: path.begin(index), left: Vec::new(), said: String::new() };
        match &line.action {
            Action::Tc { object, verb, words } => step.said = path.tc(*object, verb, words)?,
            Action::Show { object, words } => step.said = path.show(*object, words)?,
            Action::Send(burst) => {
                let refused = path.send(burst, count)?;
                count += burst.n as u32;
                step.said = format!("{refused} refused\n");
            }
            Action::Take(n) => path.take(*n, &mut step.left)?,
            Action::Wait(ms) => path.wait(*ms)?,
            Action::Drain(ms) => path.drain(*ms, &mut step.left)?,
            Action::TxQueueLen(packets) => path.set_tx_queue_len(*packets)?,
        }
        steps.push(step);
    }
    Ok(Record { script: script.name.clone(), steps, error: None })
}
