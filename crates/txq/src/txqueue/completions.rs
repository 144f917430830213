//! Who reaps a txq's completions.

/// Who takes back from the device the packets that it is done with, frees them, and wakes the txq.
///
/// In the kernel a completion is an interrupt, and the CPU that the interrupt's affinity names reaps; steering both a
/// CPU's packets (XPS) and its txq's interrupt to that CPU keeps both sides of a txq in one cache. Here a thread has
/// to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completions {
    /// Whoever sends looks after each batch, unless the driver forbids it
    /// ([`Complete::inline`](crate::driver::Complete::inline)), and the worker reaps what senders leave. The least work
    /// as long as senders send. A sender that is alone, and whose device completes at once, reaps after 32 packets
    /// ([`Builder::defer_completions`](crate::netdev::Builder::defer_completions)).
    #[default]
    Inline,
    /// Only the worker that looks after the txq ([`Builder::affinity`](crate::netdev::Builder::affinity)). With that
    /// worker on the CPU whose senders the XPS map sends to the txq, completions are steered to the sender's CPU.
    /// With it on another CPU, senders are spared the work.
    Worker,
    /// A thread for each txq that does nothing else ([`NetDev::completer`](crate::NetDev::completer)).
    PerQueue,
}
