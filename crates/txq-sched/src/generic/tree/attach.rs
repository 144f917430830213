//! What `tc qdisc add`, `replace` and `del` do where another qdisc is attached (`tc_modify_qdisc`, `tc_get_qdisc`).

use crate::tc::{Handle, Header, ParseError};

/// The first handle for a qdisc that asks for none (`qdisc_alloc_handle`).
const FIRST_HANDLE: u16 = 0x8001;

/// A qdisc attached at the place that a command names.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its handle; [`Handle::UNSPEC`] for a default qdisc.
    pub handle: Handle,
    /// Its kind.
    pub kind: &'static str,
}

/// How a command goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// The parameters of the attached qdisc change.
    Change,
    /// A new qdisc takes its place, with this handle or, without, with one that is chosen.
    Replace(Option<Handle>),
}

impl Found {
    /// Returns what adding (`add`) or replacing a qdisc does here.
    ///
    /// # Errors
    /// tc's errors, if a qdisc to add finds one attached.
    pub fn attach(&self, header: &Header<'_>, add: bool) -> Result<Attach, ParseError> {
        let asked = header.handle.filter(|&h| h != Handle::UNSPEC);
        if self.handle == Handle::UNSPEC {
            return Ok(Attach::Replace(asked));
        }
        let there = || format!("{} {} is there: replace it", self.kind, self.handle);
        match asked {
            Some(handle) if add && handle != self.handle => {
                Err(ParseError::new("Error: NLM_F_REPLACE needed to override.").with_remedy(there()))
            }
            _ if add => {
                Err(ParseError::new("Error: Exclusivity flag on, cannot modify.").with_remedy(there()))
            }
            Some(handle) if handle == self.handle => Ok(Attach::Change),
            None if header.kind == Some(self.kind) => Ok(Attach::Change),
            _ => Ok(Attach::Replace(asked)),
        }
    }

    /// Checks that the qdisc may be deleted by a command with this header.
    ///
    /// # Errors
    /// tc's errors, if it is a default qdisc or not the one that the header describes.
    pub fn delete(&self, header: &Header<'_>) -> Result<(), ParseError> {
        if self.handle == Handle::UNSPEC {
            let error = ParseError::new("Error: Cannot delete qdisc with handle of zero.");
            return Err(error.with_remedy("it is the default one: replace it instead"));
        }
        if header.handle.is_some_and(|h| h != self.handle) {
            return Err(ParseError::new("Error: Invalid handle.")
                .with_remedy(format!("the qdisc there is {}", self.handle)));
        }
        if header.kind.is_some_and(|kind| kind != self.kind) {
            return Err(ParseError::new("Error: Invalid qdisc name.")
                .with_remedy(format!("the qdisc there is {}", self.kind)));
        }
        Ok(())
    }

    /// Checks that a change names the qdisc's kind and, if it names a handle, the qdisc's.
    ///
    /// # Errors
    /// tc's error, if it names another one.
    pub fn change(&self, header: &Header<'_>) -> Result<(), ParseError> {
        if header.handle.is_some_and(|asked| ![Handle::UNSPEC, self.handle].contains(&asked)) {
            let error = match self.handle {
                Handle::UNSPEC => "Error: Qdisc not found. To create specify NLM_F_CREATE flag.",
                _ => "Error: NLM_F_REPLACE needed to override.",
            };
            return Err(ParseError::new(error).with_remedy(format!("the qdisc there is {}", self.handle)));
        }
        if header.kind == Some(self.kind) {
            return Ok(());
        }
        let error = ParseError::new("Error: Invalid qdisc name: must match existing qdisc.");
        Err(error.with_remedy(format!("it is {}: replace it for another kind", self.kind)))
    }
}

/// Returns the error for a command whose handle names a qdisc at another place.
pub fn taken(handle: Handle) -> ParseError {
    ParseError::new("Error: Cannot move an existing qdisc to a different parent.")
        .with_remedy(format!("{handle} is another qdisc of the device"))
}

/// The handles that qdiscs get that ask for none.
#[derive(Debug)]
pub struct Handles(u16);

impl Default for Handles {
    fn default() -> Self {
        Self(FIRST_HANDLE)
    }
}

impl Handles {
    /// Returns the next handle that is not `taken`.
    pub fn next(&mut self, mut taken: impl FnMut(Handle) -> bool) -> Handle {
        loop {
            let handle = Handle::new(self.0, 0);
            self.0 = self.0.checked_add(1).unwrap_or(FIRST_HANDLE);
            if !taken(handle) {
                return handle;
            }
        }
    }
}
