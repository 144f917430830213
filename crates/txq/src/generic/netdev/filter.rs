//! Adding, changing, deleting and listing filters under traffic (`tc filter`). The calling thread owns the qdisc's queue
//! meanwhile.

use std::sync::Arc;

use txq_core::arch::Arch;
use txq_core::packet::Packet;
use txq_sched::generic::filter::{FilterInfo, Filters, Mode, Request};
use txq_sched::generic::tree::PORTION;
use txq_sched::tc::{Handle, ParseError, Style};

use super::NetDev;

impl<A: Arch> NetDev<A> {
    /// Deletes one filter (`"parent 1: pref 1 handle 0x2 flower"`), all of a pref (`"parent 1: pref 1"`) or all of a
    /// parent (`"parent 1:"`).
    pub(super) fn delete_filter(&self, text: &str) -> Result<(), ParseError> {
        let request = self.request(text)?;
        if let Some(parent) = self.hook_of(request.header.parent) {
            return self.with_hook(parent, |filters, _| filters.delete(&request))?;
        }
        self.filters(request.header.parent, |filters, _| filters.delete(&request))?
    }

    /// Adds a filter that is a function of the program.
    pub fn add_classifier(
        &self,
        parent: Handle,
        pref: u16,
        classifier: impl Fn(&Packet<A>) -> Option<Handle> + Send + Sync + 'static,
    ) -> Result<(), ParseError> {
        let classifier = Arc::new(classifier);
        self.filters(Some(parent), |filters, _| {
            let classifier = classifier.clone();
            filters.add_closure(pref, Box::new(move |packet| classifier(packet)))
        })?
    }

    /// Returns the filters of a qdisc or class as `tc filter show parent X:Y` lists them, or without `parent` those of the
    /// root qdisc as `tc filter show` does. Empty if there can be none.
    #[inline(never)]
    pub fn filters_info(&self, parent: Option<Handle>, style: Style) -> Vec<FilterInfo> {
        if let Some(parent) = self.hook_of(parent) {
            return self.hook_filters(parent, style);
        }
        self.control(|tree, cx| {
            self.shared.trees_in_portions(tree, cx, |trees| {
                in_portions(|behind| {
                    let read = |filters: &Filters<A>, of| {
                        filters.portion(behind, PORTION, parent.is_none().then_some(of), style)
                    };
                    trees
                        .read_filters(parent, read, |sum, part| FilterInfo::add_parts(sum, part))
                        .unwrap_or_default()
                })
            })
        })
    }

    /// Returns one filter, by its parent, pref, protocol, kind and handle (`tc filter get`):
    /// `"parent 1: protocol ip pref 1 handle 800::800 u32"`.
    ///
    /// # Errors
    /// tc's errors, with a remedy, if there is no such filter.
    #[inline(never)]
    pub fn get_filter(&self, text: &str, style: Style) -> Result<FilterInfo, ParseError> {
        let request = self.request(text)?;
        if let Some(parent) = self.hook_of(request.header.parent) {
            return self.with_hook(parent, |filters, parent| filters.get(&request, parent, style))?;
        }
        let get = |filters: &Filters<A>, parent| filters.get(&request, parent, style);
        let add = |sum: &mut Result<FilterInfo, _>, part: &dyn Fn() -> Result<FilterInfo, ParseError>| {
            if let (Ok(sum), Ok(part)) = (sum, part()) {
                sum.add_part(&part);
            }
        };
        self.control(|tree, cx| {
            self.shared.trees(tree, cx, |trees| trees.read_filters(request.header.parent, get, add))
        })?
    }

    fn request<'t>(&self, text: &'t str) -> Result<Request<'t>, ParseError> {
        let request = Request::parse(text)?;
        self.check_dev(request.header.dev)?;
        Ok(request)
    }

    pub(super) fn set_filter(&self, text: &str, mode: Mode) -> Result<(), ParseError> {
        let mut request = self.request(text)?.numbered(&self.shared.hooks.indexes);
        if let Some(parent) = self.hook_of(request.header.parent) {
            return self.with_hook(parent, |filters, parent| {
                self.bind(&mut request)?;
                filters.set(&request, parent, mode)
            })?;
        }
        self.filters(request.header.parent, |filters, parent| filters.set(&request, parent, mode))?
    }

    /// Calls `f` with the filters of `parent`, and with `parent`; the default is the root qdisc.
    fn filters<R>(
        &self,
        parent: Option<Handle>,
        mut f: impl FnMut(&mut Filters<A>, Handle) -> R,
    ) -> Result<R, ParseError> {
        self.control(|tree, cx| self.shared.trees(tree, cx, |trees| trees.with_filters(parent, &mut f)))
    }
}

/// Returns a list that `read` returns in portions of [`PORTION`] lines: those behind the number of lines that it is called with.
pub(super) fn in_portions(mut read: impl FnMut(usize) -> Vec<FilterInfo>) -> Vec<FilterInfo> {
    let mut list = Vec::new();
    loop {
        let behind = list.len();
        list.extend(read(behind));
        if list.len() < behind + PORTION {
            return list;
        }
    }
}
