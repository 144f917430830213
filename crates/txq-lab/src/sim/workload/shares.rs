//! What each class of the senders has sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use txq::tc::Handle;

use super::flow_of;
use crate::sim::device::OnWire;

/// Bytes of each class that have left the wire. A counter is the host's, so it costs no virtual time.
pub(crate) struct Shares {
    senders: u32,
    classes: Arc<[(Handle, AtomicU64)]>,
}

/// Returns in which of so many equal parts of all senders a sender is.
pub(super) fn part_of(sender: u32, senders: u32, parts: usize) -> usize {
    sender as usize * parts / senders as usize
}

impl Shares {
    /// Returns counters at 0 for so many senders of these classes.
    pub(super) fn new(senders: u32, classes: &[Handle]) -> Self {
        Self { senders, classes: classes.iter().map(|&class| (class, AtomicU64::new(0))).collect() }
    }

    /// Returns the function that the card calls for each frame.
    pub(crate) fn peer(&self) -> OnWire {
        let (senders, classes) = (self.senders, self.classes.clone());
        Arc::new(move |frame, _| {
            let Some(sender) = flow_of(frame).filter(|&sender| sender < senders) else { return };
            classes[part_of(sender, senders, classes.len())].1.fetch_add(frame.len() as u64, Relaxed);
        })
    }

    /// Returns the classes and their bytes.
    pub(crate) fn get(&self) -> Vec<(Handle, u64)> {
        self.classes.iter().map(|(class, bytes)| (*class, bytes.load(Relaxed))).collect()
    }
}
