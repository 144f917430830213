//! Running programs: how commands reach them, and how `txq daemon` and `txq run` serve commands.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use crate::common::failure::Refused;
use crate::common::out::printable;
use anyhow::Context;
use txq_control::{Answer, Builder, Client, Error, Place, Server};

use crate::added::{self, Counters};
use crate::args::{At, RunningArgs, Target};

impl At {
    /// Returns whether a place is given.
    pub(crate) fn is_given(&self) -> bool {
        self.name.is_some() || self.socket.is_some()
    }

    /// Returns the place, or the default.
    pub(crate) fn place(&self) -> Place {
        match (&self.socket, &self.name) {
            (Some(path), _) => Place::Path(path.clone()),
            (None, Some(name)) => Place::Name(name.clone()),
            (None, None) => Place::default(),
        }
    }
}

impl RunningArgs {
    /// Returns the running program to record; `None` for a workload.
    pub(crate) fn target(&self) -> Option<Target> {
        let at = At { name: self.name.clone(), socket: self.socket.clone() };
        at.is_given().then_some(Target { at, timeout: self.timeout })
    }
}

/// The time of a recording of a running program, without `--duration`.
pub(crate) const RECORDING: Duration = Duration::from_secs(5);

/// Connects to a running program; an error names the remedy.
pub(crate) fn connect(target: &Target) -> anyhow::Result<Client> {
    Client::connect_within(target.at.place(), target.timeout.0).map_err(failed)
}

/// Converts an error: into wrong input, or into the system's refusal.
pub(crate) fn failed(error: Error) -> anyhow::Error {
    match error {
        Error::Name(_) | Error::Command { .. } | Error::SameDevice(_) => error.into(),
        _ => Refused(error.to_string()).into(),
    }
}

/// Prints both texts, as [`printable`] ones; returns the exit code.
pub(crate) fn tell(answer: &Answer) -> anyhow::Result<ExitCode> {
    std::io::stderr().write_all(printable(&answer.err).as_bytes())?;
    let mut out = std::io::stdout();
    out.write_all(printable(&answer.out).as_bytes())?;
    out.flush()?;
    Ok(ExitCode::from(answer.rc))
}

/// Returns a server's builder. Its commands can make devices and sockets; `more` returns more counters of a device.
pub(crate) fn builder(at: &At, more: Option<Counters>) -> Builder {
    added::by_commands(Server::builder().at(at.place()), more)
}

/// Returns the number of a group: the number itself, or that of the name in `/etc/group`.
pub(crate) fn group(text: &str) -> anyhow::Result<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group").context("/etc/group")?;
    let fields = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields.first() == Some(&text));
    let number = found.and_then(|fields| fields.get(2)?.parse().ok());
    number.with_context(|| {
        format!("--group {text}: there is no such group: use a name of /etc/group, or a number")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_names_or_numbers() {
        assert_eq!((group("4242").unwrap(), group("root").unwrap()), (4242, 0));
        assert!(group("no such group").unwrap_err().to_string().contains("/etc/group"));
    }
}
