//! etf: sends each packet at its departure time ([`Packet::departure`]), or drops it.
//!
//! It serves programs with a schedule of their own, such as a control loop or a media clock. A packet may leave `delta`
//! before its departure time, to cover the time from here to the wire. Three kinds of packets are dropped as `QDISC_DROP`:
//! those without a departure time, those whose time has passed, and those whose time is before that of the last packet
//! sent. With `deadline_mode` the departure time is a deadline: packets leave as soon as possible, the earliest deadline
//! first. etf has no limit; only the pool bounds the number of packets.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `clockid CLOCK_TAI` | required | no other clock is accepted |
//! | `delta NANOS` | 0 | how long before its time a packet may leave: nanoseconds, without a unit |
//! | `deadline_mode` | off | the departure time is the latest time instead of the earliest |
//! | `skip_sock_check` | off | accepted and shown, without effect |
//! | `offload` | off | refused: no device here keeps times of its own |
//!
//! The options cannot be changed (`tc qdisc change`): replace the qdisc instead.
//!
//! Example: `tc qdisc add root handle 1: etf clockid CLOCK_TAI delta 100000`
//!
//! The kernel's counterpart is `sch_etf`. Differences:
//! - Times are on the clock of the `Arch`, although `clockid` must be CLOCK_TAI as in Linux.
//! - There are no sockets, so `skip_sock_check` has no effect and no error queue reports drops. They are counted in
//!   `dropped`; packets that were queued and missed their time are counted in `overlimits` as well.
//! - A packet may leave exactly `delta` before its time, not only after that instant.

use txq_core::arch::{Arch, Nanos};
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::timed::Timed;
use crate::generic::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict};
use crate::tc::{OptionWords, Options, ParseError, Style, Syntax, Wording, Words};

static SYNTAX: Syntax = Syntax {
    kind: "etf",
    words: &["clockid", "delta", "offload", "deadline_mode", "skip_sock_check"],
    usage: "Usage: ... etf delta NANOS clockid CLOCKID [offload] [deadline_mode]\n\
            CLOCKID must be a valid SYS-V id (i.e. CLOCK_TAI)",
    wording: Wording::NamedLower,
};

/// The clocks that tc accepts.
const CLOCKS: [&str; 4] = ["TAI", "REALTIME", "BOOTTIME", "MONOTONIC"];

struct Etf<A: Arch> {
    queue: Timed<A>,
    params: Params,
    /// Departure time of the last packet sent; with `deadline_mode`, when it was sent. An earlier packet is dropped.
    last: Nanos,
    stats: QdiscStats,
}

struct Params {
    /// How long before its time a packet may leave, in nanoseconds.
    delta: u32,
    deadline_mode: bool,
    skip_sock_check: bool,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, _: &Env) -> Result<Built<A>, ParseError> {
    let params = read(words)?.checked()?;
    Ok(Built::Qdisc(Box::new(Etf::<A> {
        queue: Timed::new(),
        params,
        last: 0,
        stats: QdiscStats::default(),
    })))
}

/// The options as tc reads them, before the kernel's checks.
#[derive(Default)]
struct Said {
    delta: Option<i32>,
    clock: Option<&'static str>,
    offload: bool,
    deadline_mode: bool,
    skip_sock_check: bool,
}

fn read(words: &mut Words<'_>) -> Result<Said, ParseError> {
    let mut options = words.options(&SYNTAX).abbreviated(&["offload", "deadline_mode", "delta", "clockid"]);
    let mut said = Said::default();
    while let Some(word) = options.next_word() {
        match word {
            "delta" if said.delta.is_some() => return Err(options.duplicate(word)),
            "delta" => said.delta = Some(read_delta(&mut options)?),
            "clockid" if said.clock.is_some() => return Err(options.duplicate(word)),
            "clockid" => said.clock = Some(read_clock(&mut options)?),
            "offload" if said.offload => return Err(options.duplicate(word)),
            "offload" => said.offload = true,
            "deadline_mode" if said.deadline_mode => return Err(options.duplicate(word)),
            "deadline_mode" => said.deadline_mode = true,
            "skip_sock_check" if said.skip_sock_check => return Err(options.duplicate(word)),
            "skip_sock_check" => said.skip_sock_check = true,
            other => return Err(options.unknown(other)),
        }
    }
    Ok(said)
}

impl Said {
    /// Returns the parameters, or the kernel's error for options that tc accepts and the kernel refuses.
    fn checked(self) -> Result<Params, ParseError> {
        let refused = |message: &str, remedy: &str| Err(ParseError::new(message).with_remedy(remedy));
        match self.clock {
            Some("TAI") => {}
            Some(_) => {
                return refused("Error: Invalid clockid. CLOCK_TAI must be used.", "say clockid CLOCK_TAI");
            }
            None => return refused("Error: Dynamic clockids are not supported.", "say clockid CLOCK_TAI"),
        }
        let Ok(delta) = u32::try_from(self.delta.unwrap_or(0)) else {
            return refused("Error: Delta must be positive.", "use 0 to 2147483647 nanoseconds");
        };
        if self.offload {
            return refused(
                "Error: Specified device does not support ETF offload.",
                "leave offload away: the queue keeps the times itself",
            );
        }
        Ok(Params { delta, deadline_mode: self.deadline_mode, skip_sock_check: self.skip_sock_check })
    }
}

fn read_delta(options: &mut OptionWords<'_, '_>) -> Result<i32, ParseError> {
    let word = options.value("delta")?;
    word.parse()
        .map_err(|_| options.illegal("delta", word, "use 0 to 2147483647 nanoseconds, without a unit"))
}

fn read_clock(options: &mut OptionWords<'_, '_>) -> Result<&'static str, ParseError> {
    let word = options.value("clockid")?;
    let upper = word.to_ascii_uppercase();
    let name = upper.strip_prefix("CLOCK_").unwrap_or(&upper);
    CLOCKS.into_iter().find(|clock| *clock == name).ok_or_else(|| {
        ParseError::new(format!(
            "etf: illegal value for \"clockid\": \"{word}\".\nIt must be a valid SYS-V id (i.e. CLOCK_TAI)"
        ))
        .with_remedy("say clockid CLOCK_TAI")
    })
}

impl<A: Arch> Etf<A> {
    /// Drops the first packet, whose departure time has passed.
    fn drop_late(&mut self, cx: &mut Cx<'_, A>) {
        if let Some((_, packet)) = self.queue.pop() {
            self.stats.drops += 1;
            self.stats.overlimits += 1;
            cx.drop(packet, DropReason::QdiscDrop);
        }
    }

    /// Returns when a packet with departure time `time` may leave.
    fn opens(&self, time: Nanos) -> Nanos {
        if self.params.deadline_mode { 0 } else { time.saturating_sub(self.params.delta.into()) }
    }
}

impl<A: Arch> Qdisc<A> for Etf<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        let time = packet.departure();
        if time == 0 || time < cx.clock.now() || time < self.last {
            self.stats.drops += 1;
            cx.drop(packet, DropReason::QdiscDrop);
            return Verdict::Drop;
        }
        self.queue.push(time, packet);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        let now = cx.clock.now();
        while budget.is_left()
            && let Some(time) = self.queue.next_time()
        {
            if time < now {
                self.drop_late(cx);
                continue;
            }
            if self.opens(time) > now {
                return;
            }
            let Some((_, mut packet)) = self.queue.pop() else { return };
            if self.params.deadline_mode {
                packet.set_departure(now);
            }
            self.last = if self.params.deadline_mode { now } else { time };
            budget.send(packet, out, &mut self.stats);
        }
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        while let Some((_, packet)) = self.queue.pop() {
            cx.drop(packet, DropReason::QueuePurge);
        }
        self.last = 0;
    }

    /// Refuses every change, as the kernel does. tc's error for wrong words comes first.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        read(words)?;
        Err(ParseError::new("Error: Change operation not supported by specified qdisc.")
            .with_remedy("replace it by another, with a handle of its own"))
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        QdiscStats { backlog: self.queue.bytes(), qlen: self.queue.len() as u64, ..self.stats }
    }

    fn options(&self, style: Style) -> Options {
        let on = |on: bool| if on { "on" } else { "off" };
        let mut options = Options::new(style);
        if style.input {
            options.text_only("clockid CLOCK_TAI").number("delta", self.params.delta.into());
            if self.params.deadline_mode {
                options.flag("deadline_mode");
            }
            if self.params.skip_sock_check {
                options.flag("skip_sock_check");
            }
            return options;
        }
        options.put("clockid", "TAI", "clockid TAI").number("delta", self.params.delta.into());
        for (key, value) in [
            ("offload", false),
            ("deadline_mode", self.params.deadline_mode),
            ("skip_sock_check", self.params.skip_sock_check),
        ] {
            options.put(key, on(value), format_args!("{key} {}", on(value)));
        }
        options
    }

    fn next_event(&self) -> Option<Nanos> {
        self.queue.next_time().map(|time| self.opens(time))
    }
}

#[cfg(test)]
mod tests;
