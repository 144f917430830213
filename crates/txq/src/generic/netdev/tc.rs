//! tc's commands on a device.

use txq_core::arch::Arch;
use txq_sched::generic::filter::Mode;
use txq_sched::tc::{Command, Object, ParseError, Verb};

use super::NetDev;

impl<A: Arch> NetDev<A> {
    /// Executes a command in tc's words, under traffic.
    #[inline(never)]
    pub fn tc(&self, command: &str) -> Result<Vec<String>, ParseError> {
        let Command { object, verb, rest } = Command::parse(command)?;
        match (object, verb) {
            (Object::Qdisc, Verb::Add) => self.attach(rest, true)?,
            (Object::Qdisc, Verb::Replace) => self.attach(rest, false)?,
            (Object::Qdisc, Verb::Change) => self.change_qdisc(rest)?,
            (Object::Qdisc, Verb::Delete) => self.delete_qdisc(rest)?,
            (Object::Class, verb) => return self.class(rest, verb),
            (Object::Filter, Verb::Delete) => self.delete_filter(rest)?,
            (Object::Filter, verb) => self.set_filter(rest, Mode::of(verb))?,
        }
        Ok(Vec::new())
    }
}
