//! What the kernel and txq have in common, so that one loop runs a script through either.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::script::{Action, Burst, Object, Script};

/// A packet that left.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) cookie: u64,
    /// Whether it says that there is congestion (ECN).
    pub(crate) ce: bool,
    /// When, in nanoseconds.
    pub(crate) at: u64,
}

/// What an action did.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    /// When it began, in nanoseconds.
    pub(crate) at: u64,
    pub(crate) left: Vec<Left>,
    /// What tc said, or which packets were refused.
    pub(crate) said: String,
}

/// What a script did.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) script: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) error: Option<String>,
}

/// A device under a qdisc.
pub(crate) trait Path {
    /// The time at which the step of this number begins.
    fn begin(&mut self, step: usize) -> u64;
    /// Runs tc and returns what it says.
    fn tc(&mut self, object: Object, verb: &str, words: &str) -> Result<String>;
    /// What there is, with counters.
    fn show(&mut self, object: Object, words: &str) -> Result<String>;
    /// Sends packets, numbered from `first` on, and returns how many are refused.
    fn send(&mut self, burst: &Burst, first: u32) -> Result<usize>;
    /// The device is done with so many packets.
    fn take(&mut self, n: usize, left: &mut Vec<Left>) -> Result<()>;
    /// Time passes, in milliseconds.
    fn wait(&mut self, ms: u64) -> Result<()>;
    /// Time passes, and the device is done with every packet at once.
    fn drain(&mut self, ms: u64, left: &mut Vec<Left>) -> Result<()>;
    /// Sets the device's `tx_queue_len`.
    fn set_tx_queue_len(&mut self, packets: u32) -> Result<()>;
}

/// Runs a script.
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
