//! tc on a device: commands, and what they show.

use txq_core::packet;

use super::{BandStats, NetDev};
use crate::filter::FilterInfo;
use crate::packet::Packet;
use crate::tc::{self, BatchError, ClassInfo, Handle, ParseError, QdiscInfo, Style};

impl NetDev {
    /// Executes a command in tc's words, under traffic: `"class add parent 1: classid 1:10 htb rate 10mbit"`. Its object is
    /// `qdisc`, `class` or `filter`, its verb `add`, `change`, `replace` or `del`; a leading `tc` makes no difference, and a
    /// `dev` must name this device. Returns tc's warnings: `Warning: ...`.
    ///
    /// | command | effect |
    /// |---|---|
    /// | `qdisc add root handle 1: mq`, `qdisc add parent 1:2 pfifo limit 10` | attaches a qdisc at a place that has only a default one |
    /// | `qdisc replace ..` | attaches it in place of another, whose packets are dropped (`QUEUE_PURGE`); with the same handle, or with the same kind and no handle, only the parameters of the attached qdisc change |
    /// | `qdisc change ..` | changes the parameters |
    /// | `qdisc del root`, `qdisc del parent 1:2` | a default qdisc takes its place |
    /// | `class add parent 1: classid 1:10 htb rate 1mbit`, `change`, `replace`, `del` | adds, changes or deletes a class |
    /// | `filter add parent 1: protocol ip pref 1 flower dst_port 53 ip_proto udp classid 1:1`, `change`, `replace` | adds or changes a rule; without a parent it belongs to the root qdisc, without a pref it gets a free one |
    /// | `filter del parent 1: pref 1 handle 0x2 flower`, `pref 1`, `parent 1:` | deletes one rule, all of a pref, all of a parent |
    ///
    /// # Errors
    /// tc's errors, with a remedy. Nothing has changed then.
    pub fn tc(&self, command: &str) -> Result<Vec<String>, ParseError> {
        self.0.tc(command)
    }

    /// Executes the commands of `text`, one a line, as [`tc`](NetDev::tc) does. Empty lines and comments (`#`) are skipped.
    /// Returns the warnings of all.
    ///
    /// # Errors
    /// The first error, and its line. The commands before it have been executed.
    pub fn tc_batch(&self, text: &str) -> Result<Vec<String>, BatchError> {
        tc::batch(text, |command| self.tc(command))
    }

    /// Drops the packets that a qdisc has queued, or all children of mq (`QUEUE_PURGE`); counters stay (`qdisc_reset`).
    /// `"root"`, `"parent 1:2"`.
    ///
    /// # Errors
    /// As those of [`tc`](NetDev::tc).
    pub fn reset_qdisc(&self, text: &str) -> Result<(), ParseError> {
        self.0.reset_qdisc(text)
    }

    /// Returns the qdiscs as `tc qdisc show` lists them.
    pub fn qdiscs(&self, style: Style) -> Vec<QdiscInfo> {
        self.0.qdiscs(style)
    }

    /// Returns the classes as `tc class show` lists them: the classes of each qdisc in the order of their numbers, followed
    /// by those of each leaf.
    pub fn classes(&self, style: Style) -> Vec<ClassInfo> {
        self.0.classes_info(style)
    }

    /// Returns the filters of a qdisc or class as `tc filter show parent X:Y` lists them, or without `parent` those of the
    /// root qdisc as `tc filter show` does. Empty if there can be none.
    pub fn filters(&self, parent: Option<Handle>, style: Style) -> Vec<FilterInfo> {
        self.0.filters_info(parent, style)
    }

    /// Returns one filter, by its parent, pref, protocol, kind and handle (`tc filter get`):
    /// `"parent 1: protocol ip pref 1 handle 800::800 u32"`.
    ///
    /// # Errors
    /// tc's errors, with a remedy, if there is no such filter.
    pub fn filter(&self, text: &str, style: Style) -> Result<FilterInfo, ParseError> {
        self.0.get_filter(text, style)
    }

    /// Adds a filter that is a function of the program. It is called for each packet that no filter with a lower pref has
    /// classified. It returns the class, or `None` to leave the packet to the next filter. A `pref` of 0 selects a free one.
    ///
    /// # Errors
    /// As those of [`tc`](NetDev::tc).
    pub fn add_classifier(
        &self,
        parent: Handle,
        pref: u16,
        classifier: impl Fn(&Packet) -> Option<Handle> + Send + Sync + 'static,
    ) -> Result<(), ParseError> {
        self.0
            .add_classifier(parent, pref, move |packet: &packet::Packet| classifier(Packet::from_ref(packet)))
    }

    /// Returns the bands of all qdiscs that have bands, and the classes that have a qdisc as their leaf, in the order of the
    /// qdiscs. Leaves out the classes of mq and mqprio: they are the qdiscs of the txqs.
    ///
    /// Waits for each queue's owner, so a driver of the device must not call it.
    pub fn bands(&self) -> Vec<BandStats> {
        self.0.bands()
    }
}
