//! A program's own qdisc in a tree, and kinds of qdiscs that a program adds (`register_qdisc`).

use std::sync::Arc;

use txq_core::arch::{Nanos, Native};
use txq_core::packet as core;
use txq_core::stats::QdiscStats;

use crate::Instant;
use crate::generic::filter as generic_filter;
use crate::generic::qdisc as generic;
use crate::packet::{Packet, PacketList};
use crate::qdisc::{Budget, Classes, Cx, Env, Qdisc, Total, Verdict};
use crate::tc::{ClassInfo, Options, ParseError, Style, Words};

pub use crate::generic::qdisc::RegisterError;

/// Builds a qdisc from the words after its kind, for a device with these properties.
pub type BuildFn = fn(&mut Words<'_>, &Env) -> Result<Box<dyn Qdisc>, ParseError>;

/// Adds a kind of qdisc. From now on its name builds one with `build` wherever tc's words name a qdisc: as a device's root or
/// default, below a class, as mq's child, in a [`Scheduler`](crate::Scheduler). `name` is what the qdisc's
/// [`kind`](Qdisc::kind) returns.
///
/// ```
/// use txq_sched::Scheduler;
/// use txq_sched::qdisc::{Fifo, Qdisc, register};
/// use txq_sched::tc::{Syntax, Wording};
/// # use txq_sched::qdisc::{Budget, Cx, Verdict};
/// # use txq_sched::stats::QdiscStats;
/// # use txq_sched::packet::{Packet, PacketList};
/// # #[derive(Default)]
/// # struct Mine(Fifo);
/// # impl Qdisc for Mine {
/// #     fn kind(&self) -> &'static str { "mine" }
/// #     fn enqueue(&mut self, packet: Packet, _: &mut Cx<'_>) -> Verdict { self.0.push(packet) }
/// #     fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList, _: &mut Cx<'_>) { self.0.pop(&mut budget, out) }
/// #     fn reset(&mut self, cx: &mut Cx<'_>) { self.0.purge(cx) }
/// #     fn qlen(&self) -> usize { self.0.len() }
/// #     fn stats(&self) -> QdiscStats { self.0.stats() }
/// # }
/// # impl txq_sched::qdisc::Shortcuts for Mine {}
///
/// static SYNTAX: Syntax =
///     Syntax { kind: "mine", words: &[], usage: "Usage: ... mine", wording: Wording::Plain };
///
/// register("mine", |words, _env| {
///     words.options(&SYNTAX).end()?;
///     Ok(Box::new(Mine::default()))
/// })?;
/// let mut tree = Scheduler::<u32>::new("handle 1: prio")?;
/// tree.tc(0, "qdisc add parent 1:2 mine")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The name is taken, or is no name for a kind.
pub fn register(name: &'static str, build: BuildFn) -> Result<(), RegisterError> {
    generic::register(name, Arc::new(move |words, env| Ok(Box::new(Custom(build(words, env)?)))))
}

/// A program's qdisc as the trees hold it.
#[doc(hidden)]
pub struct Custom(pub Box<dyn Qdisc>);

/// The classes of a qdisc that said that it has classes.
const HAS_CLASSES: &str = "a qdisc has classes always or never";

impl Custom {
    fn with_classes(&mut self) -> &mut dyn Classes {
        self.0.classes().expect(HAS_CLASSES)
    }
}

impl generic::Qdisc<Native> for Custom {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn classes(&mut self) -> Option<&mut dyn generic::Classes<Native>> {
        self.0.classes().is_some().then_some(self as &mut dyn generic::Classes<Native>)
    }

    fn filters(&mut self, class: u16) -> Option<&mut generic_filter::Filters<Native>> {
        self.0.filters(class).map(|filters| &mut filters.0)
    }

    fn enqueue(&mut self, packet: core::Packet, cx: &mut generic::Cx<'_, Native>) -> Verdict {
        self.0.enqueue(Packet(packet), Cx::from_mut(cx))
    }

    fn enqueue_batch(&mut self, batch: &mut core::PacketList, cx: &mut generic::Cx<'_, Native>) {
        self.0.enqueue_batch(PacketList::from_mut(batch), Cx::from_mut(cx));
    }

    fn dequeue_batch(
        &mut self,
        budget: Budget,
        out: &mut core::PacketList,
        cx: &mut generic::Cx<'_, Native>,
    ) {
        self.0.dequeue_batch(budget, PacketList::from_mut(out), Cx::from_mut(cx));
    }

    fn requeue(&mut self, batch: &mut core::PacketList) {
        self.0.requeue(PacketList::from_mut(batch));
    }

    fn reset(&mut self, cx: &mut generic::Cx<'_, Native>) {
        self.0.reset(Cx::from_mut(cx));
    }

    fn change(
        &mut self,
        words: &mut Words<'_>,
        env: &Env,
        cx: &mut generic::Cx<'_, Native>,
    ) -> Result<(), ParseError> {
        self.0.change(words, env, Cx::from_mut(cx))
    }

    fn qlen(&self) -> usize {
        self.0.qlen()
    }

    fn limit(&self) -> Option<usize> {
        self.0.limit()
    }

    fn room_for(&self, arrival: generic::Arrival<'_, Native>) -> Result<(), generic::Full> {
        let (arrival, queued) = (arrival.and_back(), self.qlen());
        let (packets, bytes) = (arrival.packets(), arrival.bytes());
        if self.limit().is_some_and(|limit| queued.saturating_add(packets) > limit)
            || !self.0.has_room(Packet::from_ref(arrival.packet), packets, bytes)
        {
            return Err(generic::Full { queued });
        }
        Ok(())
    }

    fn max_packets(&self) -> Option<usize> {
        self.0.max_packets()
    }

    fn can_bypass(&self) -> bool {
        self.0.can_bypass()
    }

    fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.0.bypassed(packets, bytes);
    }

    fn front(&self) -> Option<&core::Packet> {
        self.0.front().map(|packet| &packet.0)
    }

    fn stats(&self) -> QdiscStats {
        self.0.stats()
    }

    fn options(&self, style: Style) -> Options {
        self.0.options(style)
    }

    fn xstats(&self, style: Style) -> Option<Options> {
        self.0.xstats(style)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.0.next_event().map(Instant::as_nanos)
    }
}

impl generic::Classes<Native> for Custom {
    fn minors(&mut self) -> Vec<u16> {
        self.with_classes().minors()
    }

    fn minors_after(&mut self, after: Option<u16>, most: usize) -> Vec<u16> {
        self.with_classes().minors_after(after, most)
    }

    fn find(&mut self, minor: u16) -> Option<u16> {
        self.with_classes().find(minor)
    }

    fn leaf(&mut self, minor: u16) -> Option<(&mut generic::Child<Native>, &mut Total)> {
        self.with_classes().leaf(minor).map(|(child, total)| (&mut child.0, total))
    }

    fn default_leaf(&mut self, minor: u16) -> Box<dyn generic::Qdisc<Native>> {
        self.with_classes().default_leaf(minor).0.into_qdisc()
    }

    fn add(
        &mut self,
        parent: u16,
        minor: u16,
        words: &mut Words<'_>,
        env: &Env,
        cx: &mut generic::Cx<'_, Native>,
    ) -> Result<(), ParseError> {
        self.with_classes().add(parent, minor, words, env, Cx::from_mut(cx))
    }

    fn change_class(
        &mut self,
        minor: u16,
        words: &mut Words<'_>,
        cx: &mut generic::Cx<'_, Native>,
    ) -> Result<(), ParseError> {
        self.with_classes().change_class(minor, words, Cx::from_mut(cx))
    }

    fn delete(&mut self, minor: u16, cx: &mut generic::Cx<'_, Native>) -> Result<(), ParseError> {
        self.with_classes().delete(minor, Cx::from_mut(cx))
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        self.with_classes().class(minor, style)
    }
}
