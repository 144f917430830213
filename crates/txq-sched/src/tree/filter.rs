//! The filters of qdiscs and classes (`tc filter`).

use txq_core::arch::Arch;

use super::Trees;
use crate::filter::Filters;
use crate::tc::{Handle, ParseError};

impl<A: Arch> Trees<'_, A> {
    /// Calls `f` with the filters of the qdisc or class `parent`; without one, those of the root. `f` also receives the
    /// parent.
    ///
    /// # Errors
    /// tc's errors, if there is no such parent or it takes no filters.
    pub fn with_filters<R>(
        &mut self,
        parent: Option<Handle>,
        mut f: impl FnMut(&mut Filters<A>, Handle) -> R,
    ) -> Result<R, ParseError> {
        let parent = parent.filter(|&parent| parent != Handle::ROOT).unwrap_or(self.root);
        let (major, minor) = (Handle::new(parent.major(), 0), parent.minor());
        if self.above > 0 && major == self.root && major != Handle::UNSPEC {
            return Err(no_blocks(major));
        }
        let done = self.with_each(major, |qdisc, _| {
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
        });
        match done {
            Some((_, done)) => done,
            None => Err(self.no_qdisc("Error: Parent Qdisc doesn't exists.", major)),
        }
    }
}

fn no_blocks(major: Handle) -> ParseError {
    let error = ParseError::new("Error: Class doesn't support blocks.");
    error.with_remedy(format!("qdisc {major} chooses the class without filters"))
}
