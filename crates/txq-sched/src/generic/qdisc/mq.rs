//! mq: a qdisc for each txq, so that senders of different txqs share nothing.
//!
//! mq holds no packets and is never entered: a sender goes to its txq's own qdisc. Its counters are the sums of its
//! children's. The child of the first txq is at class 1 (`:1`), and so on. The children are of the device's default kind
//! (`default_qdisc`, pfifo_fast unless the program chooses another) until they are replaced. There are no options.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: mq
//! tc qdisc replace dev eth0 parent 1:1 fq_codel
//! ```
//!
//! The kernel's counterpart is `sch_mq`. As there, a device with one txq takes no mq.

use txq_core::arch::Arch;
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::cake_mq;
use crate::generic::qdisc::mqprio::Mqprio;
use crate::generic::qdisc::mqprio::TrafficClasses;
use crate::generic::qdisc::{Built, Env};
use crate::tc::{Handle, Options, ParseError, QdiscInfo, Style, Syntax, Wording, Words};

static SYNTAX: Syntax =
    Syntax { kind: "mq", words: &[], usage: "Usage: ... mq", wording: Wording::Unparsable };

/// The minor number of the first traffic class (`TC_H_MIN_PRIORITY`).
const TRAFFIC_CLASSES: u16 = 0xffe0;

/// A root that holds no packets and has a qdisc for each txq.
pub enum Parent {
    /// mq.
    Mq,
    /// cake_mq, whose children show the configuration of all.
    CakeMq,
    /// mqprio, with its configuration.
    Mqprio(Box<Mqprio>),
}

impl Parent {
    /// Returns the traffic classes that it gives the device.
    pub fn classes(&self) -> TrafficClasses {
        match self {
            Self::Mq | Self::CakeMq => TrafficClasses::default(),
            Self::Mqprio(mqprio) => mqprio.classes.clone(),
        }
    }

    /// Returns the kind's name.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Mq => "mq",
            Self::CakeMq => cake_mq::KIND,
            Self::Mqprio(_) => "mqprio",
        }
    }

    /// Returns whether the user may replace and change its children.
    pub fn lends_children(&self) -> bool {
        !matches!(self, Self::CakeMq)
    }

    /// Returns the minor number of the class that stands for a traffic class, and that is above the classes of its txqs.
    pub fn minor_of(class: usize) -> u16 {
        TRAFFIC_CLASSES + class as u16
    }

    /// Returns the parent of a txq's class on a device with `classes`: the root, or under mqprio the class of its traffic
    /// class; [`Handle::UNSPEC`] for a txq without a traffic class.
    pub fn above(&self, root: Handle, txq: u16, classes: &TrafficClasses) -> Handle {
        match self {
            Self::Mq | Self::CakeMq => Handle::ROOT,
            Self::Mqprio(_) => {
                let minor = classes.of_txq(txq).map(Self::minor_of);
                minor.map_or(Handle::UNSPEC, |minor| Handle::new(root.major(), minor))
            }
        }
    }

    /// Returns what `tc qdisc show` lists, on a device with `classes`. `children` are all qdiscs below it, listed or not:
    /// their counters are summed.
    pub fn info<'c>(
        &self,
        handle: Handle,
        style: Style,
        classes: &TrafficClasses,
        children: impl Iterator<Item = &'c QdiscInfo>,
    ) -> QdiscInfo {
        let mut children = children.peekable();
        let options = match self {
            Self::Mq => Options::new(style),
            Self::CakeMq => children.peek().map_or(Options::new(style), |child| child.options.clone()),
            Self::Mqprio(mqprio) => mqprio.options(style, classes),
        };
        QdiscInfo {
            options,
            stats: children.fold(QdiscStats::default(), |sum, child| child.stats + sum),
            ..QdiscInfo::new(self.kind(), handle, Handle::ROOT, style)
        }
    }
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    words.options(&SYNTAX).end()?;
    if env.txqs < 2 {
        let error = ParseError::new("RTNETLINK answers: Operation not supported");
        return Err(error.with_remedy("mq needs a device with at least 2 txqs"));
    }
    Ok(Built::PerTxq(Parent::Mq))
}
