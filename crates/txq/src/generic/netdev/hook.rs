//! The hooks of a device (`tc qdisc add dev X ingress|clsact`) and their filters.

use txq_core::arch::Arch;
use txq_core::stats::QdiscStats;
use txq_sched::generic::filter::{FilterInfo, Filters, Request};
use txq_sched::generic::tree::PORTION;
use txq_sched::tc::{Handle, Header, Options, ParseError, QdiscInfo, Style, Verb, Words};

use super::NetDev;
use super::filter::in_portions;
use super::tree::Tree;
use crate::generic::sender::Ingress;
use crate::generic::shared::hook::Side;

/// Which hooks a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookKind {
    /// Filters for packets that the device has received.
    Ingress,
    /// Those, and filters for packets that it sends.
    Clsact,
}

impl HookKind {
    fn named(name: &str) -> Option<Self> {
        match name {
            "ingress" => Some(Self::Ingress),
            "clsact" => Some(Self::Clsact),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        if self == Self::Ingress { "ingress" } else { "clsact" }
    }
}

/// Returns whether a place belongs to the hooks.
pub(super) fn is_hook(parent: Option<Handle>) -> bool {
    parent.is_some_and(|parent| parent != Handle::ROOT && parent.major() == Handle::HOOKS.major())
}

/// As [`is_hook`], of a device whose root may have the handle `ffff:`. Then only the hooks' own places are theirs.
pub(super) fn is_hook_of(tree: &Tree, parent: Option<Handle>) -> bool {
    let own = [Handle::INGRESS, Handle::HOOK_INGRESS, Handle::HOOK_EGRESS];
    is_hook(parent) && (tree.root != Handle::HOOKS || parent.is_some_and(|parent| own.contains(&parent)))
}

impl<A: Arch> NetDev<A> {
    /// Returns the parent of a filter if it is a hook.
    pub(super) fn hook_of(&self, parent: Option<Handle>) -> Option<Handle> {
        let is_hook = is_hook(parent) && self.control(|tree, _| is_hook_of(tree, parent));
        parent.filter(|_| is_hook)
    }

    /// Returns the filters of packets that the device has received (`tc qdisc add dev X ingress`), for the threads that receive them.
    #[inline(never)]
    pub fn ingress(&self) -> Ingress<A> {
        Ingress(self.shared.clone())
    }

    /// Lets filters of this device send packets through another one, by its name (`mirred egress redirect dev NAME`).
    #[inline(never)]
    pub fn connect(&self, to: &NetDev<A>) -> Result<(), ParseError> {
        let (ours, theirs) = (&self.shared.info, &to.shared.info);
        if ours.link != theirs.link {
            let error = ParseError::new("RTNETLINK answers: Invalid argument");
            return Err(error.with_remedy(format!(
                "packets of {} begin with {}, and those of {} with {}",
                ours.name, ours.link, theirs.name, theirs.link
            )));
        }
        self.shared.hooks.connect(&theirs.name, std::sync::Arc::downgrade(&to.shared));
        Ok(())
    }

    /// Adds, replaces, changes or deletes the device's hooks.
    pub(super) fn hook(
        &self,
        tree: &mut Tree,
        header: &Header<'_>,
        words: &mut Words<'_>,
        verb: Verb,
    ) -> Result<(), ParseError> {
        let there = tree.hook;
        let name_of = |kind: HookKind| format!("{} is there: delete it first", kind.name());
        if verb == Verb::Delete {
            let Some(kind) = there else {
                let error = ParseError::new("Error: Invalid handle.");
                return Err(error.with_remedy("the device has neither ingress nor clsact"));
            };
            if header.kind.is_some_and(|name| name != kind.name()) {
                return Err(ParseError::new("Error: Invalid qdisc name.").with_remedy(name_of(kind)));
            }
            self.clear_hooks(tree);
            return Ok(());
        }
        let Some(kind) = header.kind.and_then(HookKind::named) else {
            let error = ParseError::new("RTNETLINK answers: Operation not supported");
            return Err(error.with_remedy("ffff: is the place of ingress and clsact alone"));
        };
        if header.stab.is_some() {
            let error = ParseError::new("RTNETLINK answers: Operation not supported");
            return Err(
                error.with_remedy(format!("{} counts packets as they are: leave out stab", kind.name()))
            );
        }
        if let Some(word) = words.peek().filter(|word| *word != "help") {
            let usage = match kind {
                HookKind::Ingress => "Usage: ... ingress",
                HookKind::Clsact => "Usage: ... clsact",
            };
            return Err(ParseError::new(format!("What is \"{word}\"?")).with_usage(usage));
        }
        match there {
            Some(there) if verb == Verb::Add => {
                let error = ParseError::new("Error: Exclusivity flag on, cannot modify.");
                Err(error.with_remedy(name_of(there)))
            }
            Some(there) if there != kind => {
                Err(ParseError::new("Error: Invalid qdisc name.").with_remedy(name_of(there)))
            }
            Some(_) => Ok(()),
            None if verb == Verb::Change => {
                let error = "Error: Qdisc not found. To create specify NLM_F_CREATE flag.";
                Err(ParseError::new(error).with_remedy("add it"))
            }
            None => {
                tree.hook = Some(kind);
                Ok(())
            }
        }
    }

    /// Removes the hooks and their filters.
    fn clear_hooks(&self, tree: &mut Tree) {
        let hooks = &self.shared.hooks;
        self.shared.set_hooked(false);
        hooks.set_ingress(false);
        for side in [Side::Ingress, Side::Egress] {
            // The filters end outside of the lock.
            drop(hooks.with(side, |hook| {
                hook.stats = QdiscStats::default();
                std::mem::replace(&mut hook.filters, Filters::for_hook())
            }));
        }
        tree.hook = None;
    }

    /// Returns the side that a filter's parent names.
    fn side(tree: &Tree, parent: Handle) -> Result<Side, ParseError> {
        match (tree.hook, parent) {
            (None, _) => {
                let error = ParseError::new("Error: Parent Qdisc doesn't exists.");
                Err(error.with_remedy("add it: tc qdisc add dev NAME clsact"))
            }
            (Some(HookKind::Ingress), _) | (_, Handle::HOOK_INGRESS) => Ok(Side::Ingress),
            (_, Handle::HOOK_EGRESS) => Ok(Side::Egress),
            (_, Handle::HOOKS) => Err(ParseError::new("RTNETLINK answers: Invalid argument")
                .with_remedy("clsact has two sides: say ingress or egress")),
            _ => {
                Err(ParseError::new("Error: Specified class doesn't exist.")
                    .with_remedy("say ingress or egress"))
            }
        }
    }

    /// Calls `f` with the filters of a hook and with `parent`.
    pub(super) fn with_hook<R>(
        &self,
        parent: Handle,
        f: impl FnOnce(&mut Filters<A>, Handle) -> R,
    ) -> Result<R, ParseError> {
        self.control(|tree, _| {
            let (side, hooks) = (Self::side(tree, parent)?, &self.shared.hooks);
            let (done, on) = hooks.with(side, |hook| {
                let done = f(&mut hook.filters, parent);
                (done, !hook.filters.is_empty())
            });
            match side {
                Side::Ingress => hooks.set_ingress(on),
                Side::Egress => self.shared.set_hooked(on),
            }
            Ok(done)
        })
    }

    /// Finds the devices that a rule of a hook sends to.
    pub(super) fn bind(&self, request: &mut Request<'_>) -> Result<(), ParseError> {
        request.bind(|name| {
            self.shared.hooks.port_of(name).ok_or_else(|| {
                let error = ParseError::new(format!("Cannot find device \"{name}\""));
                error.with_remedy("name a device of the same program (NetDev::connect)")
            })
        })
    }

    /// Returns the filters of a hook as `tc filter show` lists them.
    pub(super) fn hook_filters(&self, parent: Handle, style: Style) -> Vec<FilterInfo> {
        self.control(|tree, _| {
            let Ok(side) = Self::side(tree, parent) else { return Vec::new() };
            in_portions(|behind| {
                self.shared.hooks.with(side, |hook| hook.filters.portion(behind, PORTION, None, style))
            })
        })
    }

    /// Returns the hooks as `tc qdisc show` lists them.
    pub(super) fn hook_info(&self, tree: &Tree, style: Style) -> Option<QdiscInfo> {
        let kind = tree.hook?;
        let hooks = &self.shared.hooks;
        let stats = [Side::Ingress, Side::Egress].map(|side| hooks.with(side, |hook| hook.stats));
        let mut info = QdiscInfo::new(kind.name(), Handle::HOOKS, Handle::INGRESS, style);
        info.dev = Some(self.shared.info.name.clone());
        info.stats = stats[0] + stats[1];
        if kind == HookKind::Ingress && !style.input {
            info.options = Options::new(style);
            info.options.text_only("---------------- ");
        }
        Some(info)
    }
}
