//! Kinds of qdiscs that a program adds (`register_qdisc`).

use std::any::{Any, TypeId};
use std::sync::{Arc, PoisonError, RwLock};

use txq_core::arch::{Arch, Native};

use super::kinds::kinds;
use super::{Env, Qdisc};
use crate::tc::{ParseError, Words};

/// Builds a qdisc from the words after its kind, for a device with these properties.
pub type BuildFn = Arc<dyn Fn(&mut Words<'_>, &Env) -> Result<Box<dyn Qdisc>, ParseError> + Send + Sync>;

static KINDS: RwLock<Vec<Registered>> = RwLock::new(Vec::new());

#[derive(Clone)]
struct Registered {
    name: &'static str,
    build: BuildFn,
}

/// Why a kind cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Another kind has the name (`EEXIST`).
    #[error("a qdisc of the kind \"{name}\" exists: choose another name")]
    Exists {
        /// The name.
        name: &'static str,
    },
    /// The name is not one word, or tc's word for something else.
    #[error(
        "\"{name}\" is no name for a kind of qdisc: use letters, digits and _, and no word of tc's headers"
    )]
    Name {
        /// The name.
        name: &'static str,
    },
}

/// Adds a kind of qdisc, for the native machine.
pub fn register(name: &'static str, build: BuildFn) -> Result<(), RegisterError> {
    let is_word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_word || ["dev", "root", "parent", "handle"].contains(&name) {
        return Err(RegisterError::Name { name });
    }
    let mut registered = KINDS.write().unwrap_or_else(PoisonError::into_inner);
    let exists = registered.iter().any(|kind| kind.name == name);
    if exists || kinds::<Native>().iter().any(|kind| kind.name == name) {
        return Err(RegisterError::Exists { name });
    }
    registered.push(Registered { name, build });
    Ok(())
}

/// Returns the names of the registered kinds that can be built for an `Arch`: programs register kinds for `Native` only.
pub(super) fn names<A: Arch>() -> Vec<&'static str> {
    if TypeId::of::<A>() != TypeId::of::<Native>() {
        return Vec::new();
    }
    KINDS.read().unwrap_or_else(PoisonError::into_inner).iter().map(|kind| kind.name).collect()
}

/// Builds a qdisc of a registered kind; `None` if there is none of that name.
pub(super) fn build<A: Arch>(
    name: &str,
    words: &mut Words<'_>,
    env: &Env,
) -> Option<Result<Box<dyn Qdisc<A>>, ParseError>> {
    // The lock is released before the program's function runs.
    let found = KINDS.read().unwrap_or_else(PoisonError::into_inner).iter().find(|k| k.name == name).cloned();
    let kind = found.filter(|_| TypeId::of::<A>() == TypeId::of::<Native>())?;
    Some((kind.build)(words, env).map(|built| {
        let any: Box<dyn Any> = Box::new(built);
        *any.downcast::<Box<dyn Qdisc<A>>>().expect("the same type: `A` is `Native`")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generic::qdisc::build_qdisc;
    use crate::generic::qdisc::testing::{ENV, try_build};
    use crate::tc::{Syntax, Wording};

    static SYNTAX: Syntax =
        Syntax { kind: "registered", words: &[], usage: "Usage: ... registered", wording: Wording::Plain };

    fn build_it(words: &mut Words<'_>, env: &Env) -> Result<Box<dyn Qdisc>, ParseError> {
        words.options(&SYNTAX).end()?;
        Ok(build_qdisc("pfifo limit 3", env))
    }

    #[test]
    fn a_registered_kind_is_built_and_its_name_is_taken() {
        assert!(try_build("registered", &ENV).is_err());
        register("registered", Arc::new(build_it)).unwrap();
        assert_eq!(try_build("registered", &ENV).map(|qdisc| qdisc.limit()), Ok(Some(3)));
        assert_eq!(
            register("registered", Arc::new(build_it)),
            Err(RegisterError::Exists { name: "registered" })
        );
        assert_eq!(register("fq", Arc::new(build_it)), Err(RegisterError::Exists { name: "fq" }));
        for name in ["", "a b", "dev", "root", "1:"] {
            assert_eq!(register(name, Arc::new(build_it)), Err(RegisterError::Name { name }), "{name}");
        }
        let wrong = try_build("registered limit 4", &ENV).map(|_| ()).unwrap_err();
        assert_eq!(wrong.message(), "What is \"limit\"?");
        let close = try_build("registred", &ENV).map(|_| ()).unwrap_err();
        assert!(close.to_string().contains("registered"), "{close}");
    }
}
