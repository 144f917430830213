//! Adding, changing, deleting and listing filters under traffic (`tc filter`). The calling thread owns the qdisc's queue
//! meanwhile.

use txq_core::arch::Arch;
use txq_core::packet::Packet;
use txq_sched::filter::{FilterInfo, Filters, Mode, Request};
use txq_sched::tc::{Handle, ParseError, Style};

use super::tree::Tree;
use super::{NetDev, Shared};
use crate::ctx::Ctx;

impl<A: Arch> NetDev<A> {
    /// Adds a filter (`tc filter add`): `"parent 1: protocol ip pref 1 flower dst_port 53 ip_proto udp classid 1:1"`.
    /// Without a parent, the filter belongs to the root qdisc; without a pref, it gets a free one.
    ///
    /// # Errors
    /// tc's errors, with a remedy. Nothing has changed then.
    pub fn add_filter(&self, text: &str) -> Result<(), ParseError> {
        self.set_filter(text, Mode::Add)
    }

    /// Changes the filter that has the given pref and handle (`tc filter change`).
    ///
    /// # Errors
    /// As those of [`add_filter`](NetDev::add_filter).
    pub fn change_filter(&self, text: &str) -> Result<(), ParseError> {
        self.set_filter(text, Mode::Change)
    }

    /// Changes a filter, or adds it if there is none (`tc filter replace`).
    ///
    /// # Errors
    /// As those of [`add_filter`](NetDev::add_filter).
    pub fn replace_filter(&self, text: &str) -> Result<(), ParseError> {
        self.set_filter(text, Mode::Replace)
    }

    /// Deletes one filter (`"parent 1: pref 1 handle 0x2 flower"`), all of a pref (`"parent 1: pref 1"`) or all of a
    /// parent (`"parent 1:"`), as `tc filter del` does.
    ///
    /// # Errors
    /// As those of [`add_filter`](NetDev::add_filter).
    pub fn delete_filter(&self, text: &str) -> Result<(), ParseError> {
        let request = self.request(text)?;
        self.filters(request.header.parent, |filters, _| filters.delete(&request))?
    }

    /// Adds a filter that is a function of the program. It is called for each packet that no filter with a lower pref has
    /// classified. It returns the class, or `None` to leave the packet to the next filter. A `pref` of 0 selects a free one.
    ///
    /// # Errors
    /// As those of [`add_filter`](NetDev::add_filter).
    pub fn add_classifier(
        &self,
        parent: Handle,
        pref: u16,
        classifier: impl Fn(&Packet<A>) -> Option<Handle> + Send + Sync + 'static,
    ) -> Result<(), ParseError> {
        let mut classifier = Some(Box::new(classifier) as _);
        self.filters(Some(parent), |filters, _| match classifier.take() {
            Some(classifier) => filters.add_closure(pref, classifier),
            None => Ok(()),
        })?
    }

    /// Returns the filters of a qdisc or class as `tc filter show parent X:Y` lists them, or without `parent` those of the
    /// root qdisc as `tc filter show` does. Empty if there can be none.
    pub fn filters_info(&self, parent: Option<Handle>, style: Style) -> Vec<FilterInfo> {
        let show = |filters: &mut Filters<A>, of| filters.info(parent.is_none().then_some(of), style);
        self.filters(parent, show).unwrap_or_default()
    }

    fn request<'t>(&self, text: &'t str) -> Result<Request<'t>, ParseError> {
        let request = Request::parse(text)?;
        match request.header.dev {
            Some(dev) if dev != self.shared.info.name => {
                let error = ParseError::new(format!("Cannot find device \"{dev}\""));
                Err(error.with_remedy(format!("this one is \"{}\"", self.shared.info.name)))
            }
            _ => Ok(request),
        }
    }

    fn set_filter(&self, text: &str, mode: Mode) -> Result<(), ParseError> {
        let request = self.request(text)?;
        self.filters(request.header.parent, |filters, parent| filters.set(&request, parent, mode))?
    }

    /// Calls `f` with the filters of `parent`, and with `parent`; the default is the root qdisc.
    fn filters<R>(
        &self,
        parent: Option<Handle>,
        mut f: impl FnMut(&mut Filters<A>, Handle) -> R,
    ) -> Result<R, ParseError> {
        self.control(|tree, cx| {
            let parent = parent.filter(|&parent| parent != Handle::ROOT).unwrap_or(tree.root);
            self.shared.with_filters(tree, parent, cx, |filters| f(filters, parent))
        })
    }
}

impl<A: Arch> Shared<A> {
    fn with_filters<R>(
        &self,
        tree: &Tree,
        parent: Handle,
        cx: &mut Ctx<'_, A>,
        mut f: impl FnMut(&mut Filters<A>) -> R,
    ) -> Result<R, ParseError> {
        let (major, minor) = (Handle::new(parent.major(), 0), parent.minor());
        if tree.children.is_some() && major == tree.root && major != Handle::UNSPEC {
            return Err(no_blocks(major));
        }
        let done = self.with_qdisc(tree, major, cx, |qdisc, _| {
            if let Some(filters) = qdisc.filters(minor) {
                return Ok(f(filters));
            }
            let takes_filters = qdisc.filters(0).is_some();
            let known = qdisc.classes().map(|classes| minor == 0 || classes.find(minor).is_some());
            Err(match known {
                None if !takes_filters => {
                    let error = ParseError::new("Error: Qdisc not classful.");
                    error.with_remedy(format!("{} {major} has no classes to choose from", qdisc.kind()))
                }
                Some(true) if !takes_filters => no_blocks(major),
                Some(true) => ParseError::new("RTNETLINK answers: Invalid argument")
                    .with_remedy(format!("add it to {major}: its classes have no filters of their own")),
                _ => ParseError::new("Error: Specified class doesn't exist.")
                    .with_remedy(format!("{major} has no class {parent}")),
            })
        });
        match done {
            Some((_, done)) => done,
            None => {
                let error = ParseError::new("Error: Parent Qdisc doesn't exists.");
                Err(error.with_remedy(format!("there is no qdisc {major} (the root is {})", tree.root)))
            }
        }
    }
}

fn no_blocks(major: Handle) -> ParseError {
    let error = ParseError::new("Error: Class doesn't support blocks.");
    error.with_remedy(format!("qdisc {major} chooses the class without filters"))
}
