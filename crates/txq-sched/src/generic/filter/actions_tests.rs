//! Rules with actions: what packets meet, and what tc prints. The texts are those of tc 6.1 with Linux 6.1.

use proptest::prelude::*;

use super::tests::{Bench, ethernet, ipv4};
use super::*;

impl Bench {
    fn hook(rules: &[&str]) -> Self {
        let mut bench = Self::new();
        bench.filters = Filters::for_hook();
        rules.iter().for_each(|rule| bench.put(rule).unwrap_or_else(|error| panic!("{rule}: {error}")));
        bench
    }

    fn put(&mut self, rule: &str) -> Result<(), ParseError> {
        let indexes = self.indexes.clone();
        let mut request = Request::parse(rule)?.numbered(&indexes);
        request.bind(|dev| {
            dev.strip_prefix('d').and_then(|n| n.parse().ok()).ok_or_else(|| ParseError::new("none"))
        })?;
        self.filters.set(&request, Handle::HOOK_EGRESS, Mode::Add)
    }

    fn run(&mut self, mark: u32, now: Nanos) -> (Option<Choice>, Effects) {
        let mut packet = self.packet(&ethernet(0x800, &ipv4(17, 0xb8, &[0; 20])));
        packet.set_mark(mark);
        self.filters.classify_and_act(&packet, &mut Clock::at(now))
    }

    fn shown(&self, stats: bool) -> String {
        filters_text(&self.filters.info(None, Style::default()), stats)
    }
}

const ONE: Option<Choice> = Some(Choice::Class(Handle::new(1, 1)));

#[test]
fn decisions_lead_on() {
    let mut bench = Bench::hook(&[
        "pref 1 handle 1 fw action drop",
        "pref 2 handle 2 fw classid 1:1 action ok",
        "pref 3 handle 3 fw action continue",
        "pref 4 handle 4 fw action reclassify",
        "pref 5 handle 5 fw classid 1:1 action skbedit mark 0x12/0xff action skbedit priority 1:7 queue_mapping 3 action ok action drop",
        "pref 6 handle 6 fw action skbedit mark 2 continue",
        "pref 7 handle 2 fw classid 1:5",
        "pref 8 handle 7 fw action mirred egress mirror dev d4 action mirred egress redirect dev d5",
        "pref 9 handle 8 fw action skbedit inheritdsfield",
        "pref 10 matchall classid 1:9",
    ]);
    assert_eq!(bench.run(1, 0).0, Some(Choice::Drop));
    assert_eq!(bench.run(2, 0).0, ONE);
    assert_eq!(bench.run(3, 0).0, Some(Choice::Class(Handle::new(1, 9))));
    assert_eq!(bench.run(4, 0).0, Some(Choice::Drop), "it begins anew for ever");
    let (choice, effects) = bench.run(5, 0);
    assert_eq!((choice, effects.priority, effects.queue), (ONE, Some(0x10007), Some(3)));
    assert_eq!(effects.marked(0xff05), 0xff12);
    assert_eq!(
        bench.run(6, 0).0,
        Some(Choice::Class(Handle::new(1, 5))),
        "the next filter sees the new mark"
    );
    let (choice, effects) = bench.run(7, 0);
    assert_eq!((choice, effects.redirect, effects.mirrors()), (Some(Choice::Stolen), Some(5), &[4][..]));
    assert_eq!(bench.run(8, 0).1.priority, Some(46), "the DSCP");
}

/// A policer at 8 kbit/s with a burst of 1000 bytes: packets of 54 bytes.
#[test]
fn a_policer_lets_its_rate_through() {
    let mut bench =
        Bench::hook(&["pref 1 matchall classid 1:1 action police rate 8kbit burst 1000 conform-exceed drop"]);
    let mut passed = |from: Nanos, n: u64| (0..n).filter(|_| bench.run(0, from).0 == ONE).count();
    assert_eq!(passed(0, 100), 1000 / 54);
    assert_eq!(passed(0, 10), 0);
    assert_eq!(passed(100_000_000, 10), 2, "100 bytes more, and 28 were left");
    assert_eq!(passed(60_000_000_000, 100), 1000 / 54, "a pause saves no more than the burst");
    let shown = bench.shown(true);
    assert!(shown.contains("Sent 11880 bytes 220 pkt (dropped 182, overlimits 182 requeues 0)"), "{shown}");
}

#[test]
fn a_policer_has_two_buckets_and_a_longest_packet() {
    let police = |text: &str, n: usize| {
        let mut bench =
            Bench::hook(&[&format!("pref 1 matchall classid 1:1 action police {text} conform-exceed drop")]);
        (0..n).filter(|_| bench.run(0, 0).0 == ONE).count()
    };
    assert_eq!(police("rate 1mbit burst 10k mtu 53", 9), 0);
    assert_eq!(police("rate 1mbit burst 10k mtu 54", 9), 9);
    assert_eq!(police("mtu 53", 9), 0);
    assert_eq!(police("mtu 54", 9), 9);
    assert_eq!(police("rate 1mbit burst 10k peakrate 2mbit mtu 120", 9), 2);
    assert_eq!(police("pkts_rate 100 pkts_burst 3", 9), 3);
    assert_eq!(police("rate 1mbit burst 1000 overhead 46", 20), 10);
    assert_eq!(police("rate 1mbit burst 1000 linklayer atm", 20), 9, "two cells of 53 bytes each");
}

proptest! {
    /// In any window, what conforms is at most rate x time + burst.
    #[test]
    fn a_policer_is_conformant(gaps in prop::collection::vec(0u64..200_000_000, 1..200), burst in 100u64..2000) {
        let rule = format!("pref 1 matchall classid 1:1 action police rate 80kbit burst {burst} conform-exceed drop");
        let mut bench = Bench::hook(&[&rule]);
        let (mut now, mut passed) = (0, Vec::new());
        for gap in gaps {
            now += gap;
            if bench.run(0, now).0 == ONE {
                passed.push(now);
            }
        }
        for (at, first) in passed.iter().enumerate() {
            for (count, last) in passed[at..].iter().enumerate() {
                let bytes = 54 * (count as u64 + 1);
                let most = burst + (last - first) / 100_000 + 1;
                prop_assert!(bytes <= most, "{bytes} of {most} in {first}..{last}");
            }
        }
    }
}

#[test]
fn text_is_that_of_tc() {
    let mut bench = Bench::hook(&[
        "protocol ip pref 2 matchall action police rate 1mbit burst 10k conform-exceed drop",
        "protocol ip pref 3 matchall action police rate 1mbit burst 10k mtu 1500 peakrate 2mbit conform-exceed drop/pipe \
         action skbedit priority 1:2 mark 0x5/0xff queue_mapping 3 pipe action mirred egress redirect dev d1",
        "protocol ip pref 5 handle 5 fw classid 1:2 action pass",
        "protocol ip pref 5 handle 6 fw classid 1:2 police rate 8kbit burst 2k drop",
        "protocol ip pref 7 flower ip_proto tcp classid 1:1 action reclassify index 77",
        "protocol ip pref 10 u32 match u32 0 0 police rate 8mbit burst 64kb mtu 64kb overhead 14 linklayer atm \
         conform-exceed pipe/ok flowid 1:3",
        "protocol ip pref 11 u32 match u32 0 0 action drop action ok",
    ]);
    assert_eq!(bench.shown(false), include_str!("actions.txt"));
    bench.delete("pref 3").unwrap();
    bench.put("protocol ip pref 3 matchall action police mtu 1500 drop").unwrap();
    assert!(
        bench.shown(false).contains("police 0x2 rate 0bit burst 0b mtu 1500b action drop"),
        "the number is free"
    );
    let json = filters_json(&bench.filters.info(None, Style::default()), true);
    let police = serde_json::json!({
        "handle": 1, "not_in_hw": true, "rule_hit": 0, "actions": [{
            "order": 1, "kind": "police", "index": 1, "control_action": {"type": "drop"}, "overhead": 0, "ref": 1,
            "bind": 1, "installed": 0, "last_used": 0,
            "stats": {"bytes": 0, "packets": 0, "drops": 0, "overlimits": 0, "requeues": 0, "backlog": 0, "qlen": 0},
        }],
    });
    assert_eq!(json[1]["options"], police);
}

#[test]
fn text_restores_rules() {
    let rules = [
        "handle 0x1 action police rate 1000000bit burst 10240 mtu 1500 peakrate 2000000bit conform-exceed drop/pipe \
         action skbedit queue_mapping 3 priority 1:2 mark 5/0xff pipe action mirred egress redirect dev d1",
        "handle 0x1 action police pkts_rate 100 pkts_burst 10 overhead 14 linklayer atm conform-exceed reclassify",
        "handle 0x1 flowid 1:1 action drop",
    ];
    for rule in rules {
        let bench = Bench::hook(&[&rule.replacen("handle 0x1", "pref 1 handle 0x1 matchall", 1)]);
        let style = Style { input: true, ..Style::default() };
        let shown = bench.filters.info(None, style).remove(1).options.unwrap();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(shown.text()).replace("handle 1 ", "handle 0x1 "), words(rule));
    }
}

#[test]
fn errors_are_tcs() {
    let mut bench = Bench::hook(&[]);
    let incomplete = "Command line is not complete. Try option \"help\"";
    for (rule, message) in [
        ("matchall action foo", "Bad action type foo"),
        ("matchall action drop foo", "Bad action type foo"),
        ("matchall action police rate 1mbit burst 10k foo", "Bad action type foo"),
        ("matchall action police", incomplete),
        ("matchall action", incomplete),
        ("matchall action skbedit", incomplete),
        ("matchall action mirred", incomplete),
        ("matchall action mirred egress", incomplete),
        ("matchall action mirred egress redirect", incomplete),
        ("matchall action gact", incomplete),
        ("matchall action police rate 1mbit burst 10k mtu", incomplete),
        ("matchall action police rate 1mbit", "Illegal \"action\""),
        ("matchall action police burst 10k", "Illegal \"action\""),
        ("matchall action police rate 1mbit burst zz", "Error: argument \"zz\" is wrong: buffer"),
        ("matchall action police rate 1mbit burst 10k conform-exceed foo", "Illegal \"action\""),
        ("matchall action skbedit priority zz", "Illegal \"action\""),
        ("matchall action skbedit queue_mapping 70000", "Illegal \"action\""),
        ("matchall action mirred foo", "Illegal \"action\""),
        ("matchall action help", "Illegal \"action\""),
        ("matchall police rate 1mbit burst 10k drop", "What is \"police\"?"),
        ("flower police rate 1mbit burst 10k drop", "What is \"police\"?"),
        ("u32 match u32 0 0 police", incomplete),
    ] {
        let error = bench.put(&format!("pref 1 {rule}")).unwrap_err();
        assert_eq!(error.message(), message, "{rule}");
    }
    let index = "matchall action drop index 5";
    bench.put(&format!("pref 1 {index}")).unwrap();
    assert_eq!(
        bench.put(&format!("pref 2 {index}")).unwrap_err().message(),
        "RTNETLINK answers: File exists"
    );
    let mut qdisc = Bench::new();
    let message = qdisc.message("pref 1 matchall action skbedit mark 1");
    assert_eq!(message, "RTNETLINK answers: Operation not supported");
    assert_eq!(qdisc.message("pref 1 matchall action drop"), "");
}
