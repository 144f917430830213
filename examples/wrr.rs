//! A qdisc of your own: weighted round robin over two classes. It is registered by name, and then used like Linux's kinds:
//! as a device's root, below a class, as mq's child, changed and shown in tc's words.
//!
//! ```sh
//! cargo run -p txq-device --example wrr
//! cargo test -p txq-device --example wrr
//! ```
//!
//! A packet with an even priority belongs to class 1, any other to class 2, unless filters say otherwise. In turn, each class
//! sends as many packets as its weight says. Each has a pfifo until `tc qdisc add parent X:1` gives it another qdisc.

use txq::drop::DropReason;
use txq::filter::{Choice, Filters};
use txq::packet::{Packet, PacketList};
use txq::qdisc::{Budget, Child, Classes, Cx, Env, Qdisc, Shortcuts, Total, Verdict, register};
use txq::stats::QdiscStats;
use txq::tc::{Options, ParseError, Style, Syntax, Wording, Words};
use txq::{Instant, NetDev};
use txq_device::Null;

static SYNTAX: Syntax = Syntax {
    kind: "wrr",
    words: &["weights"],
    usage: "Usage: ... wrr [weights FIRST SECOND]",
    wording: Wording::Plain,
};

struct Wrr {
    classes: [Child; 2],
    /// Packets that each class sends in its turn.
    weights: [u32; 2],
    /// The class whose turn it is, and the packets that it may still send.
    turn: (usize, u32),
    filters: Filters,
    total: Total,
    sent: (u64, u64),
    env: Env,
}

/// Builds it from tc's words, for [`register`].
fn build(words: &mut Words<'_>, env: &Env) -> Result<Box<dyn Qdisc>, ParseError> {
    let weights = parse(words)?;
    Ok(Box::new(Wrr {
        classes: [Child::fifo(env), Child::fifo(env)],
        weights,
        turn: (0, weights[0]),
        filters: Filters::new(),
        total: Total::default(),
        sent: (0, 0),
        env: *env,
    }))
}

fn parse(words: &mut Words<'_>) -> Result<[u32; 2], ParseError> {
    let (mut options, mut weights) = (words.options(&SYNTAX), [1, 1]);
    while let Some(word) = options.next_word() {
        match word {
            "weights" => weights = [options.value_u32("weights")?, options.value_u32("weights")?],
            other => return Err(options.unknown(other)),
        }
    }
    match weights.contains(&0) {
        true => Err(ParseError::new("wrr: a weight of 0").with_remedy("use 1 or more: 0 would never send")),
        false => Ok(weights),
    }
}

impl Qdisc for Wrr {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Verdict {
        let class = match self.filters.classify(&packet, cx) {
            Some(Choice::Class(class)) if (1..=2).contains(&class.minor()) => usize::from(class.minor()) - 1,
            Some(Choice::Class(_)) | None => packet.priority() as usize & 1,
            Some(_) => {
                self.total.drops += 1;
                cx.drop(packet, DropReason::QdiscDrop);
                return Verdict::Drop;
            }
        };
        self.classes[class].enqueue(packet, &mut self.total, cx)
    }

    fn dequeue_batch(&mut self, mut budget: Budget, out: &mut PacketList, cx: &mut Cx<'_>) {
        let (segs, bytes, mut idle) = (out.segs(), out.bytes(), 0);
        // Two classes in turn that have nothing to send now: a shaper below may hold packets back.
        while budget.is_left() && idle < 2 {
            let (class, left) = self.turn;
            let before = out.len();
            let mut share = Budget::new(budget.packets.min(left as usize), budget.bytes);
            self.classes[class].dequeue(&mut share, out, &mut self.total, cx);
            let took = out.len() - before;
            budget.spend(took, budget.bytes - share.bytes);
            let left = left - took as u32;
            idle = if took == 0 { idle + 1 } else { 0 };
            if left == 0 || took == 0 {
                self.turn = (1 - class, self.weights[1 - class]);
            } else {
                self.turn.1 = left;
            }
        }
        self.sent.0 += out.segs() - segs;
        self.sent.1 += out.bytes() - bytes;
    }

    fn reset(&mut self, cx: &mut Cx<'_>) {
        self.classes.iter_mut().for_each(|class| class.reset(&mut self.total, cx));
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_>) -> Result<(), ParseError> {
        self.weights = parse(words)?;
        self.turn = (0, self.weights[0]);
        Ok(())
    }

    fn qlen(&self) -> usize {
        self.total.qlen
    }

    fn stats(&self) -> QdiscStats {
        let (Total { qlen, backlog, drops, .. }, (packets, bytes)) = (self.total, self.sent);
        QdiscStats { packets, bytes, drops, backlog, qlen: qlen as u64, ..QdiscStats::default() }
    }

    fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        options.list("weights", &self.weights.map(u64::from));
        options
    }

    fn next_event(&self) -> Option<Instant> {
        let waiting = self.classes.iter().filter(|class| class.qlen() > 0);
        waiting.filter_map(|class| class.next_event()).min()
    }

    fn filters(&mut self, class: u16) -> Option<&mut Filters> {
        (class == 0).then_some(&mut self.filters)
    }

    fn classes(&mut self) -> Option<&mut dyn Classes> {
        Some(self)
    }
}

impl Shortcuts for Wrr {}

impl Classes for Wrr {
    fn minors(&mut self) -> Vec<u16> {
        vec![1, 2]
    }

    fn leaf(&mut self, minor: u16) -> Option<(&mut Child, &mut Total)> {
        Some((&mut self.classes[usize::from(minor) - 1], &mut self.total))
    }

    fn default_leaf(&mut self, _: u16) -> Child {
        Child::fifo(&self.env)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    register("wrr", build)?;
    // One for each txq, below mq.
    let driver = Null { txqs: 2, ..Null::default() };
    let dev = NetDev::builder(driver).qdisc("handle 1: mq").default_qdisc("wrr weights 3 1").start()?;
    dev.tc("qdisc replace parent 1:1 handle 10: wrr weights 5 2")?;
    dev.tc("qdisc add parent 10:2 handle 20: fq_codel limit 500")?;
    let mut sender = dev.sender("main");
    for priority in 0..10 {
        let mut packet = sender.packet(&[0; 60])?;
        packet.set_priority(priority);
        let _ = sender.xmit(packet);
    }
    drop(sender);
    print!("{}", txq::tc::show_text(&dev.qdiscs(Style::default()), true));
    dev.audit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use txq::qdisc::Budget;
    use txq::scheduler::{Config, Item, Scheduler};

    use super::*;

    /// Returns one that schedules numbers, with so many packets of each class queued.
    fn scheduler(text: &str, packets: u32) -> Scheduler<u32> {
        let qdisc = build(&mut Words::split(text), &Env::default()).expect("right words");
        let mut wrr = Scheduler::of(qdisc, &Config::default()).expect("memory");
        for number in 0..2 * packets {
            let _ = wrr.enqueue(0, Item::new(100, number).priority(number));
        }
        wrr
    }

    /// Returns the classes of the next packets, by their parity.
    fn order(wrr: &mut Scheduler<u32>, at_once: usize) -> String {
        let mut all = Vec::new();
        while wrr.dequeue_batch(0, Budget::packets(at_once), &mut all) > 0 {}
        all.iter().map(|packet| if packet.value % 2 == 0 { 'a' } else { 'b' }).collect()
    }

    #[test]
    fn classes_send_in_turn_as_many_packets_as_their_weights() {
        for at_once in [1, 2, 5, 64] {
            assert_eq!(order(&mut scheduler("weights 3 1", 4), at_once), "aaababbb", "{at_once} at once");
            assert_eq!(order(&mut scheduler("", 3), at_once), "ababab", "{at_once} at once");
        }
    }

    #[test]
    fn it_is_changed_shown_and_given_other_leaves_in_tcs_words() {
        let mut wrr = scheduler("", 2);
        wrr.tc(0, "qdisc change root wrr weights 2 1").expect("a change");
        wrr.tc(0, "qdisc replace parent 1:2 handle 9: pfifo limit 1").expect("a leaf");
        assert_eq!(wrr.dropped().map(|packet| packet.value).collect::<Vec<_>>(), [1, 3]);
        wrr.tc(0, "filter add parent 1: pref 1 handle 7 fw classid 1:2").expect("a filter");
        let _ = wrr.enqueue(0, Item::new(100, 5).mark(7));
        assert_eq!(wrr.enqueue(0, Item::new(100, 7).mark(7)), Verdict::Drop);
        let shown = txq::tc::show_text(&wrr.qdiscs(Style::default()), false);
        assert_eq!(shown, "qdisc wrr 1: root weights 2 1\nqdisc pfifo 9: parent 1:2 limit 1p\n");
        assert_eq!(order(&mut wrr, 64), "aab");
        let wrong = wrr.tc(0, "qdisc change root wrr weights 2 0").expect_err("a weight of 0");
        assert_eq!(wrong.message(), "wrr: a weight of 0");
    }

    #[test]
    fn a_shaped_class_lets_the_other_pass() {
        let mut wrr = scheduler("weights 1 1", 0);
        wrr.tc(0, "qdisc add parent 1:1 tbf rate 8kbit burst 100 latency 9s").expect("a shaper");
        for number in 0..6 {
            let _ = wrr.enqueue(0, Item::new(100, number).priority(number));
        }
        assert_eq!(order(&mut wrr, 64), "abbb");
        assert_eq!(wrr.next_event(), Some(Instant::from_nanos(100_000_000)));
        assert_eq!(wrr.dequeue(100_000_000).map(|packet| packet.value), Some(2));
    }
}
