//! `txq tc`: tc's language, for the devices of a running txq.
//!
//! Options, objects, commands, messages, output and exit codes are those of tc 6.1, as far as they concern qdiscs, classes
//! and filters. After tc's message follows the remedy, on a line of its own that begins with `txq:`. The command itself
//! answers lines that need no device (help, unknown words). The process with the devices executes all others ([`run`]);
//! with `--check` they run on a temporary device ([`check`]).

mod answer;
mod batch;
pub(crate) mod check;
mod class;
mod command;
mod filter;
mod flags;
mod modify;
mod pretty;
mod show;

use std::iter;
use std::process::ExitCode;

use anyhow::ensure;
use txq::NetDev;

pub(crate) use answer::{Answer, nearest};
use command::{Command, Object, Verb};
use flags::Flags;
pub(crate) use show::Show;

use crate::args::{self, TcArgs};
use crate::control::{Client, Devices, Request};

/// Executes a command line or a batch file; prints the answers and returns the exit code.
pub(crate) fn tc(args: &TcArgs) -> anyhow::Result<ExitCode> {
    let flags = match Flags::read(&args.words) {
        Ok(flags) => flags,
        Err(answer) => return answer.tell(),
    };
    if flags.help {
        return args::help_of("tc");
    }
    if flags.version {
        println!("txq tc {}, in the words of tc 6.1", env!("CARGO_PKG_VERSION"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut speaker = Speaker { flags: &flags, client: None };
    match &flags.batch {
        Some(file) => batch::run(file, flags.force, |words| speaker.say(words)),
        None if flags.words.is_empty() => args::help_of("tc"),
        None => speaker.say(&flags.words)?.tell(),
    }
}

/// Executes a command on `devices`; returns its output, or its error with an exit code.
pub(crate) fn run(devices: &Devices<'_>, words: &[String], show: &Show) -> Answer {
    let command = match Command::read(words) {
        Ok(command) => command,
        Err(answer) => return answer,
    };
    let done = match (command.object, command.verb) {
        (Object::Qdisc, Verb::Show) => show::qdiscs(devices, command.rest, show),
        (Object::Qdisc, verb) => modify::qdisc(devices, verb, command.rest),
        (Object::Class, Verb::Show) => class::show(devices, command.rest, show),
        (Object::Class, verb) => class::modify(devices, verb, command.rest),
        (Object::Filter, Verb::Show) => filter::show(devices, command.rest, show),
        (Object::Filter, verb) => filter::modify(devices, verb, command.rest),
    };
    done.unwrap_or_else(|answer| answer)
}

/// Executes a command of a configuration on its device, whose name need not be in it.
pub(crate) fn apply(dev: &NetDev, command: &str) -> anyhow::Result<()> {
    let mut words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    if words.first().is_some_and(|word| word == "tc") {
        words.remove(0);
    }
    let name = &dev.info().name;
    if !words.iter().any(|word| word == "dev") {
        let at = words.len().min(2);
        words.splice(at..at, ["dev".to_owned(), name.clone()]);
    }
    let answer = run(&Devices::lent(iter::once(dev)), &words, &Show::default());
    ensure!(
        answer.rc == 0,
        "device \"{name}\", tc \"{command}\": {}",
        answer.err.trim_end().replace('\n', "; ")
    );
    Ok(())
}

/// Executes commands through a running txq, or only checks them.
struct Speaker<'f> {
    flags: &'f Flags,
    client: Option<Client>,
}

impl Speaker<'_> {
    fn say(&mut self, words: &[String]) -> anyhow::Result<Answer> {
        let command = match Command::read(words) {
            Ok(command) => command,
            Err(answer) => return Ok(answer),
        };
        if self.flags.check {
            return Ok(check::check(&command));
        }
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(self.flags.socket.as_deref())?),
        };
        client.ask(&Request::Tc { words: words.to_vec(), show: self.flags.show })
    }
}
