//! A class: its curves, and its place among the others.

use std::collections::{BTreeMap, BTreeSet};

use txq_core::arch::Arch;
use txq_core::stats::QdiscStats;

use crate::generic::filter::Filters;
use crate::generic::qdisc::child::Child;
use crate::generic::qdisc::hfsc::curve::Curve;
use crate::generic::qdisc::hfsc::params::Curves;
use crate::generic::qdisc::wheel::Ticket;

/// No class.
pub(super) const NIL: u32 = u32::MAX;
/// The id of the root, above all classes of the user.
pub(super) const ROOT_ID: u32 = 0;

pub(super) struct Class<A: Arch> {
    pub(super) minor: u16,
    /// The class above, or [`NIL`] for the root.
    pub(super) parent: u32,
    pub(super) children: u32,
    /// 0 for a leaf; one more than the highest below it.
    pub(super) level: u32,
    /// How many classes right below it have each level.
    pub(super) below: BTreeMap<u32, u32>,
    pub(super) leaf: Child<A>,
    pub(super) filters: Filters<A>,
    pub(super) stats: QdiscStats,
    pub(super) curves: Curves,

    /// Whether the leaf takes part in the dequeue.
    pub(super) active: bool,
    /// Place on the wheel while the leaf holds its packets back.
    pub(super) nap: Option<Ticket>,

    /// Bytes sent, and those of them that were sent for a deadline.
    pub(super) total: u64,
    pub(super) cumul: u64,

    /// When the next packet becomes eligible, and its deadline.
    pub(super) eligible_at: i64,
    pub(super) deadline_at: i64,
    pub(super) deadline: Curve,
    pub(super) eligible: Curve,

    /// The virtual time, by which the classes of a parent share.
    pub(super) vt: i64,
    pub(super) virtual_curve: Curve,
    /// The addition to the virtual time of a class that was passed over because it did not fit.
    pub(super) vt_adj: i64,
    /// The offset of the virtual times of a parent's earlier periods.
    pub(super) vt_off: i64,
    /// The least virtual time of the children that was served in this period, and the most that one left with.
    pub(super) child_vt_min: i64,
    pub(super) child_vt_max: i64,
    /// How often the class became active, and the parent's number then.
    pub(super) period: u32,
    pub(super) parent_period: u32,
    /// Active children; 1 for an active leaf.
    pub(super) actives: u32,
    /// The active children in the order of their virtual times.
    pub(super) by_vt: BTreeSet<(i64, u32)>,

    /// When the class may send under the upper limits of itself and of its children.
    pub(super) fit: i64,
    /// The same by its own limit alone, and what was added to it after a pause.
    pub(super) own_fit: i64,
    pub(super) own_fit_adj: i64,
    pub(super) limit: Curve,
    /// The earliest time at which a child fits.
    pub(super) child_fit: i64,
    /// The active children in the order of these times.
    pub(super) by_fit: BTreeSet<(i64, u32)>,
}

impl<A: Arch> Class<A> {
    pub(super) fn new(minor: u16, parent: u32, curves: Curves, leaf: Child<A>) -> Self {
        Self {
            minor,
            parent,
            children: 0,
            level: 0,
            below: BTreeMap::new(),
            leaf,
            filters: Filters::new(),
            stats: QdiscStats::default(),
            curves,
            active: false,
            nap: None,
            total: 0,
            cumul: 0,
            eligible_at: 0,
            deadline_at: 0,
            deadline: Curve::default(),
            eligible: Curve::default(),
            vt: 0,
            virtual_curve: Curve::default(),
            vt_adj: 0,
            vt_off: 0,
            child_vt_min: 0,
            child_vt_max: 0,
            period: 0,
            parent_period: 0,
            actives: 0,
            by_vt: BTreeSet::new(),
            fit: 0,
            own_fit: 0,
            own_fit_adj: 0,
            limit: Curve::default(),
            child_fit: 0,
            by_fit: BTreeSet::new(),
        }
    }

    /// Starts the curves at the class's present work.
    pub(super) fn start_curves(&mut self, now: i64) {
        let Curves { rt, ls, ul } = self.curves;
        if let Some(rt) = &rt {
            self.deadline = Curve::new(rt, now, self.cumul);
            self.eligible = self.deadline.eligible(rt);
        }
        if let Some(ls) = &ls {
            self.virtual_curve = Curve::new(ls, self.vt, self.total);
            self.vt_off = 0;
        }
        if let Some(ul) = &ul {
            self.limit = Curve::new(ul, now, self.total);
        }
        (self.own_fit, self.own_fit_adj, self.vt_adj) = (0, 0, 0);
    }
}
