//! What tc's commands work on: a device, or a scheduler.

use std::sync::Arc;

use txq::filter::FilterInfo;
use txq::netdev::NetDevRef;
use txq::tc::{ClassInfo, Handle, ParseError, QdiscInfo, Style};

use crate::scheduler::Mailbox;

/// A device of the program or of a command, or a scheduler of the program.
#[derive(Debug)]
pub(crate) enum Target {
    Dev(NetDevRef),
    Scheduler(Arc<Mailbox>),
}

type Result<T> = std::result::Result<T, ParseError>;

impl Target {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Dev(dev) => &dev.info().name,
            Self::Scheduler(mailbox) => mailbox.name(),
        }
    }

    pub(crate) fn qdiscs(&self, style: Style) -> Result<Vec<QdiscInfo>> {
        match self {
            Self::Dev(dev) => Ok(dev.qdiscs(style)),
            Self::Scheduler(mailbox) => {
                let mut list = mailbox.call(move |tree| tree.qdiscs(style))?;
                list.iter_mut().for_each(|info| info.dev = Some(mailbox.name().to_owned()));
                Ok(list)
            }
        }
    }

    pub(crate) fn classes(&self, style: Style) -> Result<Vec<ClassInfo>> {
        match self {
            Self::Dev(dev) => Ok(dev.classes(style)),
            Self::Scheduler(mailbox) => mailbox.call(move |tree| tree.classes(style)),
        }
    }

    pub(crate) fn filters(&self, parent: Option<Handle>, style: Style) -> Result<Vec<FilterInfo>> {
        match self {
            Self::Dev(dev) => Ok(dev.filters(parent, style)),
            Self::Scheduler(mailbox) => mailbox.call(move |tree| tree.filters(parent, style)),
        }
    }

    pub(crate) fn filter(&self, text: &str, style: Style) -> Result<FilterInfo> {
        match self {
            Self::Dev(dev) => dev.filter(text, style),
            Self::Scheduler(_) => {
                let error = ParseError::new("RTNETLINK answers: Operation not supported");
                Err(error.with_remedy("a scheduler lists its filters: filter show dev NAME parent 1:"))
            }
        }
    }

    /// Grows a device's pool to what its qdiscs may queue; returns a warning if senders may find no buffer before the qdiscs are full.
    pub(crate) fn fit_pool(&self) -> Option<String> {
        let Self::Dev(dev) = self else { return None };
        let (demand, why) = match dev.fit_pool() {
            Ok(demand) => (demand, String::new()),
            Err(error) => (dev.pool_demand(), format!(" ({error})")),
        };
        let matters = demand.is_short() && !dev.stats().senders.is_empty();
        matters.then(|| format!("txq: {demand}{why}"))
    }

    /// Executes a command in tc's words; returns tc's warnings.
    pub(crate) fn tc(&self, command: &str) -> Result<Vec<String>> {
        match self {
            Self::Dev(dev) => dev.tc(command),
            Self::Scheduler(mailbox) => {
                let command = command.to_owned();
                mailbox.call(move |tree| tree.tc(&command))?
            }
        }
    }
}
