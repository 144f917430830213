//! Filters: which class a packet belongs to (`tc filter`), and the actions of their rules.
//!
//! Each kind has a page with its words. tc's commands add, change and show rules; a program's own function is a filter, too
//! ([`closure`]).

use std::fmt;

use crate::generic::filter as generic;
use crate::packet::Packet;
use crate::qdisc::Cx;
use crate::tc::{Handle, ParseError};

#[cfg(feature = "json")]
pub use crate::generic::filter::filters_json;
pub use crate::generic::filter::{ActionInfo, Choice, FilterInfo, filters_text};
pub use crate::generic::filter::{basic, closure, flow, flower, fw, matchall, u32};

/// The filters of a qdisc or a class, in the order of their prefs.
#[derive(Default)]
#[repr(transparent)]
pub struct Filters(#[doc(hidden)] pub generic::Filters);

txq_core::transparent!(pub Filters, generic::Filters);

impl Filters {
    /// Returns an empty set of filters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are no filters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what the first matching filter chooses, or `None` if no filter matches.
    pub fn classify(&self, packet: &Packet, cx: &mut Cx<'_>) -> Option<Choice> {
        self.0.classify(&packet.0, cx.0.clock)
    }

    /// Adds a function of the program, for all protocols. A `pref` of 0 means a free one.
    ///
    /// # Errors
    /// Another filter has the pref.
    pub fn add_closure(
        &mut self,
        pref: u16,
        choose: impl Fn(&Packet) -> Option<Handle> + Send + Sync + 'static,
    ) -> Result<(), ParseError> {
        self.0.add_closure(pref, Box::new(move |packet| choose(Packet::from_ref(packet))))
    }
}

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
