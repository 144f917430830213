//! [`Discipline`]: the choice of an enqueue discipline, by name.

use std::fmt;
use std::str::FromStr;

use txq_core::arch::Arch;

use super::{busylock, combine, llist, lockless, spinlock};
use crate::generic::datapath::{Core, CoreAccess};

/// How concurrent senders reach one qdisc. The [module](super) compares them; `docs/disciplines.md` says which one is for which
/// case.
///
/// ```
/// use txq::Discipline;
///
/// assert_eq!("llist".parse(), Ok(Discipline::Llist));
/// assert_eq!(Discipline::default().to_string(), "combine");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Discipline {
    /// A sender that finds the queue owned puts its packets on a list and returns. There is no lock.
    #[default]
    Combine,
    /// A sender that finds the queue owned puts its packets on a list and returns. One sender at a time waits for the lock, to
    /// enqueue all of them (Linux 6.19).
    Llist,
    /// A sender that finds the queue owned puts its packets on their band's list and returns. The token holder runs the queue
    /// (Linux 4.16).
    Lockless,
    /// A sender that finds the queue owned waits, in front of a second lock (Linux 2.6.36 to 6.18).
    Busylock,
    /// A sender that finds the queue owned waits for the lock, and so does the owner after each batch (Linux until 2.6.35).
    Spinlock,
}

impl Discipline {
    /// All disciplines, the default first.
    pub const ALL: &'static [Self] =
        &[Self::Combine, Self::Llist, Self::Lockless, Self::Busylock, Self::Spinlock];

    /// Returns the name, as [`FromStr`] accepts it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Combine => "combine",
            Self::Llist => "llist",
            Self::Lockless => "lockless",
            Self::Busylock => "busylock",
            Self::Spinlock => "spinlock",
        }
    }

    /// Returns the discipline for a queue with this core. At most `max_burst` packets wait for the queue's owner.
    pub(crate) fn build<A: Arch>(self, core: Core<A>, max_burst: u32) -> Box<dyn CoreAccess<A>> {
        match self {
            Self::Combine => combine::build(core, max_burst),
            Self::Llist => llist::build(core, max_burst),
            Self::Lockless => lockless::build(core, max_burst),
            Self::Busylock => busylock::build(core, max_burst),
            Self::Spinlock => spinlock::build(core, max_burst),
        }
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Discipline {
    type Err = ParseDisciplineError;

    fn from_str(name: &str) -> Result<Self, ParseDisciplineError> {
        let named = Self::ALL.iter().find(|discipline| discipline.name() == name);
        named.copied().ok_or_else(|| ParseDisciplineError { name: name.to_owned() })
    }
}

/// There is no enqueue discipline of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no enqueue discipline \"{name}\": use one of {}", names())]
#[non_exhaustive]
pub struct ParseDisciplineError {
    /// The name.
    pub name: String,
}

/// Returns the names of all disciplines, the default first.
fn names() -> String {
    Discipline::ALL.iter().map(|discipline| discipline.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_its_disciplines() {
        for &discipline in Discipline::ALL {
            assert_eq!(discipline.to_string().parse(), Ok(discipline));
        }
        assert_eq!(Discipline::ALL[0], Discipline::default());
        assert_eq!(format!("{:>8}", Discipline::Llist), "   llist");
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_choices() {
        assert_eq!(
            Discipline::from_str("x").unwrap_err().to_string(),
            "there is no enqueue discipline \"x\": use one of combine, llist, lockless, busylock, spinlock"
        );
    }
}
