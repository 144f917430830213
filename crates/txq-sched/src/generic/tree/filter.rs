//! The filters of qdiscs and classes (`tc filter`).

use txq_core::arch::Arch;

use super::Trees;
use crate::generic::filter::Filters;
use crate::generic::qdisc::{Cx, Qdisc};
use crate::tc::{Handle, ParseError};

impl<A: Arch> Trees<'_, A> {
    /// Calls `f` with the filters of the qdisc or class `parent`; without one, those of the root. In replicas, with those of each
    /// tree. `f` also receives the parent. Returns what the first call returned.
    ///
    /// # Errors
    /// tc's errors, if there is no such parent or it takes no filters.
    pub fn with_filters<R>(
        &mut self,
        parent: Option<Handle>,
        mut f: impl FnMut(&mut Filters<A>, Handle) -> R,
    ) -> Result<R, ParseError> {
        // As in the kernel, `root` names no qdisc here.
        if parent == Some(Handle::ROOT) {
            return Err(self.no_qdisc("Error: Parent Qdisc doesn't exists.", Handle::ROOT));
        }
        let parent = parent.unwrap_or(self.root);
        let (major, minor) = (Handle::new(parent.major(), 0), parent.minor());
        if self.above > 0 && major == self.root && major != Handle::UNSPEC {
            return Err(no_blocks(major));
        }
        let call = |qdisc: &mut dyn Qdisc<A>, _: &mut Cx<'_, A>| {
            if let Some(filters) = qdisc.filters(minor) {
                return Ok(f(filters, parent));
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
        };
        match self.with_each(major, call) {
            Some((_, done)) => done,
            None => Err(self.no_qdisc("Error: Parent Qdisc doesn't exists.", major)),
        }
    }

    /// As [`with_filters`](Trees::with_filters), to read them. Replicas have the same filters, each with its own counters:
    /// `add` adds what `f` returns for the next tree to what it returned for those before.
    ///
    /// # Errors
    /// As those of [`with_filters`](Trees::with_filters).
    pub fn read_filters<R>(
        &mut self,
        parent: Option<Handle>,
        f: impl Fn(&Filters<A>, Handle) -> R,
        add: impl Fn(&mut R, &dyn Fn() -> R),
    ) -> Result<R, ParseError> {
        let mut sum = None;
        self.with_filters(parent, |filters, parent| match &mut sum {
            Some(sum) => add(sum, &|| f(filters, parent)),
            None => sum = Some(f(filters, parent)),
        })?;
        Ok(sum.expect("a parent without filters is an error"))
    }
}

fn no_blocks(major: Handle) -> ParseError {
    let error = ParseError::new("Error: Class doesn't support blocks.");
    error.with_remedy(format!("qdisc {major} chooses the class without filters"))
}
