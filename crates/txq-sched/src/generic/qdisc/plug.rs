//! plug: holds packets back until a command releases them, for a program that sends only what a checkpoint covers.
//!
//! A new plug holds packets. `block` begins an epoch: the packets that are queued from now on are not those that `release`
//! sends. `release` sends the packets of the epoch before the last `block`, and those that earlier releases have not sent
//! yet. Then the plug holds packets again. `release_indefinite` sends all packets, present and later ones, until the next
//! `block`.
//!
//! The state of a virtual machine that is copied at each `block` so vouches for all packets that have left: when the copy is
//! complete, `release` sends those that the machine had sent before.
//!
//! | option | meaning |
//! |---|---|
//! | `limit BYTES` | bytes queued at most; a packet beyond it is dropped as `QDISC_OVERLIMIT` |
//! | `block` | begins an epoch |
//! | `release` | sends the packets of the epoch before the last `block` |
//! | `release_indefinite` | sends all packets until the next `block` |
//!
//! The last option of a line counts: `tc qdisc change` changes the limit, or does what the command says. Without options it
//! changes nothing. Without options, a new qdisc has a limit of `tx_queue_len` of the longest packets. With other options than
//! the limit it has a limit of 0, as in Linux, and drops every packet.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: plug limit 10m
//! tc qdisc change dev eth0 root plug block
//! tc qdisc change dev eth0 root plug release
//! ```
//!
//! The kernel's counterpart is `sch_plug`. As there, neither the limit nor the state is shown.

use txq_core::arch::Arch;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::child::Total;
use crate::generic::qdisc::fifo::Fifo;
use crate::generic::qdisc::{Arrival, Budget, Built, Cx, Env, Full, Qdisc, Verdict};
use crate::tc::{Options, ParseError, Size, Style, Syntax, Wording, Words};

static SYNTAX: Syntax = Syntax {
    kind: "plug",
    words: &["block", "release", "release_indefinite", "limit"],
    usage: "Usage: ... plug [block | release | release_indefinite | limit NUMBER]",
    wording: Wording::Named,
};

/// What a line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Block,
    Release,
    ReleaseIndefinite,
    Limit,
}

struct Plug<A: Arch> {
    queue: Fifo<A>,
    /// Bytes queued at most.
    limit: u32,
    /// Packets queued since the last `block`.
    current: usize,
    /// Packets of the epoch before the last `block`, which no `release` has released.
    before: usize,
    /// Packets that have been released and not been sent.
    released: usize,
    /// Whether all packets may leave.
    open: bool,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let (command, limit) = parse(words)?;
    let default = command.map_or_else(|| env.tx_queue_len.saturating_mul(env.mtu), |_| 0);
    let (queue, limit) = (Fifo::new(), limit.unwrap_or(default));
    Ok(Built::Qdisc(Box::new(Plug { queue, limit, current: 0, before: 0, released: 0, open: false })))
}

/// Returns the last option, and the limit if one is given.
fn parse(words: &mut Words<'_>) -> Result<(Option<Command>, Option<u32>), ParseError> {
    let mut options = words.options(&SYNTAX);
    let (mut command, mut limit) = (None, None);
    while let Some(word) = options.next_word() {
        command = Some(match word {
            "block" => Command::Block,
            "release" => Command::Release,
            "release_indefinite" => Command::ReleaseIndefinite,
            "limit" => {
                let text = options.value("limit")?;
                let size = text.parse::<Size>().map_err(|error| {
                    // tc leaves the kind out.
                    let message = format!("Illegal value for \"limit\": \"{text}\"");
                    ParseError::new(message).with_remedy(error.remedy())
                })?;
                limit = Some(size.0);
                Command::Limit
            }
            other => return Err(options.unknown(other)),
        });
    }
    Ok((command, limit))
}

impl<A: Arch> Qdisc<A> for Plug<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        if self.queue.bytes() + packet.len() as u64 > self.limit.into() {
            return self.queue.refuse(packet, cx);
        }
        self.current += usize::from(!self.open);
        self.queue.push(packet)
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList<A>, _: &mut Cx<'_, A>) {
        let packets = if self.open { budget.packets } else { budget.packets.min(self.released) };
        if packets == 0 {
            return;
        }
        let before = out.len();
        self.queue.pop(&mut Budget { packets, ..budget }, out);
        if !self.open {
            self.released -= out.len() - before;
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.queue.purge(cx);
        (self.current, self.before, self.released) = (0, 0, 0);
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let (command, limit) = parse(words)?;
        match command {
            None => {}
            Some(Command::Block) => {
                self.before = std::mem::take(&mut self.current);
                self.open = false;
            }
            Some(Command::Release) => self.released += std::mem::take(&mut self.before),
            Some(Command::ReleaseIndefinite) => {
                (self.current, self.before, self.released) = (0, 0, 0);
                self.open = true;
            }
            Some(Command::Limit) => self.limit = limit.unwrap_or(self.limit),
        }
        Ok(())
    }

    fn room_for(&self, arrival: Arrival<'_, A>) -> Result<(), Full> {
        let has_room = self.queue.bytes() + arrival.bytes() <= self.limit.into();
        arrival.if_room(has_room, self.queue.len())
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        self.queue.stats()
    }

    fn total(&self) -> Total {
        self.queue.total()
    }

    fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        if style.input {
            options.number("limit", self.limit.into());
        }
        options
    }
}

#[cfg(test)]
mod tests;
