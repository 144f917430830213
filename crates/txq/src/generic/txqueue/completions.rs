//! Which threads reap a txq's completions.

/// Which threads reap: take completed packets back from the device, free them, and wake the txq.
///
/// In the kernel a completion is an interrupt, and the CPU in the interrupt's affinity reaps. Steering both a CPU's packets
/// (XPS) and its txq's interrupt to that CPU keeps both sides of a txq in one cache. Here a thread must poll.
///
/// Under each of these, two threads reap that cannot go on otherwise, unless the driver forbids it
/// ([`Complete::inline`](crate::generic::driver::Complete::inline)): an owner that finds its txq stopped, and a sender that would wait for a
/// buffer or for credit ([`Builder::defer_completions`](crate::generic::netdev::Builder::defer_completions)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Completions {
    /// Each sender reaps after each batch, unless the driver forbids it
    /// ([`Complete::inline`](crate::generic::driver::Complete::inline)), and the worker reaps what senders leave. The least work
    /// while senders send. They reap a device that keeps packets after each fourth packet, so a completion may be noticed three
    /// packets later. A lone sender whose device completes at once reaps after 32 packets
    /// ([`Builder::defer_completions`](crate::generic::netdev::Builder::defer_completions)).
    #[default]
    Inline,
    /// Only the txq's worker reaps ([`Builder::affinity`](crate::generic::netdev::Builder::affinity)). If that worker runs on the CPU
    /// whose senders the XPS map sends to the txq, completions are steered to the sender's CPU. If it runs on another CPU,
    /// senders are spared the work.
    Worker,
    /// Completers reap and do nothing else, as the interrupts of a NIC's queues do: one for each txq
    /// ([`NetDev::completer`](crate::NetDev::completer)). A started device has no more completers than there are CPUs: completer
    /// `n` of `c` reaps the txqs `n`, `n + c` and so on.
    PerQueue,
}
