//! Refusals of the system, which have an exit code of their own.

use std::fmt::{self, Display};

/// Marks an error as the system's refusal.
#[derive(Debug)]
pub struct Refused(pub String);

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Returns a function that maps a system error to [`Refused`], with `what` before it.
pub fn refused<E: Display>(what: impl Display) -> impl FnOnce(E) -> anyhow::Error {
    move |error| Refused(format!("{what}: {error}")).into()
}
