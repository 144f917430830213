//! `--check`: checks a command's text without the device that it names.
//!
//! The words are parsed, and the qdisc is built on a temporary device. Conditions of the named device, such as whether the
//! parent exists, are not checked.

use std::io;

use txq::NetDev;
use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::packet::PacketList;
use txq::pool::{Backing, PoolConfig};

use super::command::{Command, Object, Verb};
use super::modify::CommandWords;
use super::{class, filter, show};
use crate::answer::{Answer, REFUSED, WORDS, nearest};

/// The txqs of the temporary device: enough for any map of txqs that a person writes by hand.
const CHECK_TXQS: u16 = 64;
const CHECK_BUFFERS: u32 = 64;
const UNKNOWN: &str = "Error: Specified qdisc kind is unknown.";

/// Checks a command; returns an empty answer, or the error.
pub(super) fn check(command: &Command<'_>) -> Answer {
    let done = match (command.object, command.verb) {
        (Object::Qdisc, Verb::Show) => show::Filter::read(command.rest).map(|_| Answer::default()),
        (Object::Qdisc, verb) => qdisc(verb, command.rest),
        (Object::Class, Verb::Show) => class::Filter::read(command.rest).map(|_| Answer::default()),
        (Object::Class, verb) => class::parse(verb, command.rest).map(|()| Answer::default()),
        (Object::Filter, Verb::Show) => filter::Filter::read(command.rest).map(|_| Answer::default()),
        (Object::Filter, Verb::Get) => filter::complete(command.rest).map(|_| Answer::default()),
        (Object::Filter, verb) => filter::parse(verb, command.rest).map(|()| Answer::default()),
    };
    done.unwrap_or_else(|answer| answer)
}

fn qdisc(verb: Verb, rest: &[String]) -> Result<Answer, Answer> {
    let command = CommandWords::read(rest)?;
    if command.header.dev.is_none() {
        let remedy = "say which: dev NAME";
        return Err(Answer::bad(REFUSED, "RTNETLINK answers: No such device", Some(remedy)));
    }
    if command.header.kind.is_some() && verb != Verb::Del {
        build(&command)?;
    }
    Ok(Answer::default())
}

/// Returns the error that tc itself reports for a kind's options, before it asks the kernel.
pub(super) fn options(command: &CommandWords<'_>) -> Result<(), Answer> {
    match build(command) {
        Err(answer) if answer.rc != REFUSED => Err(answer),
        _ => Ok(()),
    }
}

/// Returns the error that the kernel reports for an unknown kind, before it looks up the qdisc's place.
pub(super) fn kind(command: &CommandWords<'_>) -> Result<(), Answer> {
    match command.header.kind {
        Some(kind) if command.options.is_empty() && !is_hook(kind) => {
            match device()?.tc(&format!("qdisc replace root {kind}")) {
                Err(error) if error.message() == UNKNOWN => Err(error.into()),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn build(command: &CommandWords<'_>) -> Result<(), Answer> {
    let Some(kind) = command.header.kind else { return Ok(()) };
    let place_of = if is_hook(kind) { "" } else { "root" };
    let text = format!("{place_of} {kind} {}", command.options.join(" "));
    device()?.tc(&format!("qdisc replace {text}"))?;
    Ok(())
}

/// Returns whether a kind has a place of its own.
fn is_hook(kind: &str) -> bool {
    matches!(kind, "ingress" | "clsact")
}

/// Makes the temporary device; its workers are never started.
pub(super) fn device() -> Result<NetDev, Answer> {
    let pool = PoolConfig { buffers: CHECK_BUFFERS, backing: Backing::Heap, ..PoolConfig::default() };
    let builder = NetDev::builder(Unused).txqs(CHECK_TXQS).qdisc("noqueue").pool_config(pool);
    let refused = |error: txq::netdev::BuildError| Answer::bad(REFUSED, &error.to_string(), None);
    builder.build().map_err(refused)
}

/// The driver of the temporary device, which never gets a packet.
struct Unused;

impl Driver for Unused {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("null0").txqs(CHECK_TXQS)
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(Self, NoCompletions))
    }
}

impl Transmit for Unused {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        while let Some(packet) = batch.pop_front() {
            cx.sent(packet);
        }
        Status::Ok
    }
}

/// Returns the error for an unknown word after `show`.
pub(super) fn unknown_word(word: &str) -> Answer {
    let message = format!("What is \"{word}\"? Try \"tc qdisc help\".");
    Answer::bad(WORDS, &message, nearest(word, &["dev", "root", "parent", "handle"]).as_deref())
}
