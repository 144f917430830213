//! cake_mq, tbf_mq and htb_mq: one qdisc in parts, one for each txq. tc's commands reach the part that they mean, or all; and threads of all
//! txqs together keep to one rate.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::device::Wires;
use txq::NetDev;
use txq::filter::filters_text;
use txq::pool::PoolConfig;
use txq::tc::{Handle, Style, class_text, show_json, show_text};

const ROOT: &str = "root handle 1: tbf_mq rate 80mbit burst 20k limit 50k";

fn pool() -> PoolConfig {
    PoolConfig { buffers: 2048, room: 1024, ..crate::device::pool() }
}

fn build(text: &str) -> (NetDev, Wires) {
    let wires = Wires::new(4, None);
    let dev = NetDev::builder(wires.clone()).pool_config(pool()).qdisc("noqueue").build().unwrap();
    dev.tc(&format!("qdisc add {text}")).unwrap();
    (dev, wires)
}

fn shown(dev: &NetDev) -> String {
    show_text(&dev.qdiscs(Style::default()), false)
}

fn send(dev: &NetDev, packets: u32) {
    let mut sender = dev.sender("test");
    for number in 0..packets {
        let mut packet = sender.alloc(1000).unwrap();
        packet.set_hash(number.wrapping_mul(0x9e37_79b9) | 1);
        let _ = sender.xmit(packet);
    }
}

#[test]
fn it_is_shown_as_one_qdisc_with_a_class_for_each_txq() {
    let (dev, wires) = build(ROOT);
    let line = "qdisc tbf_mq 1: dev wires root refcnt 5 rate 80Mbit burst 20Kb lat 3.07ms \n";
    assert_eq!(shown(&dev), line);
    assert_eq!(
        class_text(&dev.classes(Style::default()), false),
        "class tbf_mq 1:1 parent 1: \nclass tbf_mq 1:2 parent 1: \nclass tbf_mq 1:3 parent 1: \nclass tbf_mq 1:4 parent 1: \n"
    );
    send(&dev, 60);
    let root = &dev.qdiscs(Style::default())[0];
    let sent: usize = (0..4).map(|txq| wires.at(txq).sent().len()).sum();
    // The bucket of all parts: 20 packets, and those for which it was filled meanwhile.
    assert!(sent >= 20 && (0..4).filter(|&txq| !wires.at(txq).sent().is_empty()).count() > 1, "{sent}");
    assert_eq!((root.stats.packets, root.stats.packets + root.stats.qlen), (sent as u64, 60));
    let json = show_json(&dev.qdiscs(Style::default()), false).to_string();
    assert!(json.starts_with(r#"[{"kind":"tbf_mq","handle":"1:","#), "{json}");
    dev.audit().unwrap();
}

/// The parts count packets whose priority names no class, and the device shows the sum.
#[test]
fn packets_that_name_no_class_are_summed_over_the_parts() {
    let (dev, _wires) = build("root handle 1: htb_mq default 1");
    dev.tc("class add parent 1: classid 1:1 htb_mq rate 1gbit").unwrap();
    let shown = |dev: &NetDev| show_text(&dev.qdiscs(Style::default()), true);
    send(&dev, 10);
    assert!(!shown(&dev).contains("unknown_class"), "{}", shown(&dev));
    let mut sender = dev.sender("test");
    for number in 0..40_u32 {
        let mut packet = sender.alloc(100).unwrap();
        packet.set_hash(number.wrapping_mul(0x9e37_79b9) | 1);
        packet.set_priority("1:10".parse::<Handle>().unwrap().priority());
        let _ = sender.xmit(packet);
    }
    assert!(shown(&dev).contains(" unknown_class 40\n"), "{}", shown(&dev));
    let json = show_json(&dev.qdiscs(Style::default()), true);
    assert_eq!(json[0]["unknown_class"], 40);
    dev.audit().unwrap();
}

#[test]
fn commands_reach_the_part_of_a_class() {
    let (dev, _) = build(ROOT);
    let line = shown(&dev);
    dev.tc("qdisc replace parent 1:3 handle 30: pfifo limit 5").unwrap();
    dev.tc("qdisc replace parent 1:1 handle 10: prio").unwrap();
    dev.tc("qdisc add parent 10:2 handle 12: pfifo limit 3").unwrap();
    let below = "qdisc prio 10: dev wires parent 1:1 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1\n\
                 qdisc pfifo 12: dev wires parent 10:2 limit 3p\n\
                 qdisc pfifo 30: dev wires parent 1:3 limit 5p\n";
    assert_eq!(shown(&dev), format!("{line}{below}"));
    dev.tc("qdisc change parent 1:3 pfifo limit 6").unwrap();
    dev.tc("qdisc del parent 1:1").unwrap();
    assert_eq!(shown(&dev), format!("{line}qdisc pfifo 30: dev wires parent 1:3 limit 6p\n"));
    let refused = |done: Result<Vec<String>, txq::tc::ParseError>| done.unwrap_err().to_string();
    let none = refused(dev.tc("qdisc add parent 1:5 pfifo"));
    assert!(
        none.starts_with("Error: Specified class not found.") && none.contains("1:1, 1:2, 1:3, 1:4"),
        "{none}"
    );
    assert!(
        refused(dev.tc("qdisc replace parent 1:2 mq"))
            .starts_with("RTNETLINK answers: Operation not supported")
    );
    assert!(
        refused(dev.tc("qdisc replace parent 1:2 tbf_mq rate 1mbit burst 2k limit 3k"))
            .contains("not supported")
    );
    assert!(
        refused(dev.tc("class add parent 1: classid 1:9 htb rate 1mbit")).starts_with("RTNETLINK answers")
    );
    assert!(refused(dev.tc("qdisc add parent 1:2 handle 30: pfifo")).contains("30:"));
    dev.tc("qdisc replace root pfifo limit 9").unwrap();
    assert!(shown(&dev).contains("pfifo"));
    dev.tc(&format!("qdisc replace {}", ROOT)).unwrap();
    dev.tc("qdisc del root").unwrap();
    assert!(shown(&dev).starts_with("qdisc mq 0: dev wires root"), "{}", shown(&dev));
}

/// A change of the root is one of all parts; a wrong one changes none.
#[test]
fn a_change_reaches_all_parts() {
    let (dev, wires) = build(ROOT);
    assert!(dev.tc("qdisc change root tbf_mq rate 1gbit").is_err());
    assert!(shown(&dev).contains("rate 80Mbit burst 20Kb"));
    dev.tc("qdisc change root tbf_mq rate 8gbit burst 1m limit 90k").unwrap();
    assert!(shown(&dev).contains("rate 8Gbit"), "{}", shown(&dev));
    send(&dev, 400);
    let sent: usize = (0..4).map(|txq| wires.at(txq).sent().len()).sum();
    assert_eq!(sent, 400, "each part has the new rate");
    // The same root once more, with other parameters, is a change as well: no packet is lost.
    dev.tc(&format!("qdisc replace {}", ROOT)).unwrap();
    send(&dev, 100);
    let queued = dev.qdiscs(Style::default())[0].stats.qlen;
    dev.tc("qdisc replace root handle 1: tbf_mq rate 160mbit burst 20k limit 50k").unwrap();
    assert!(dev.qdiscs(Style::default())[0].stats.qlen <= queued);
    dev.reset_qdisc("root").unwrap();
    assert_eq!(dev.qdiscs(Style::default())[0].stats.qlen, 0);
    dev.audit().unwrap();
}

/// cake_mq is listed as mq with cakes, whose parameters are its own.
#[test]
fn cake_mq_keeps_its_cakes() {
    let (dev, _) = build("root handle 1: cake_mq bandwidth 100mbit besteffort");
    let options = "bandwidth 100Mbit besteffort triple-isolate nonat nowash no-ack-filter split-gso rtt 100ms raw overhead 0 \n";
    let cake = |minor| format!("qdisc cake 0: dev wires parent 1:{minor} {options}");
    let root = format!("qdisc cake_mq 1: dev wires root {options}");
    assert_eq!(shown(&dev), format!("{root}{}", [4, 3, 2, 1].map(cake).concat()));
    send(&dev, 60);
    let list = dev.qdiscs(Style::default());
    assert_eq!(list[0].stats.packets + list[0].stats.qlen, 60);
    assert_eq!(list[0].stats.qlen, list[1..].iter().map(|cake| cake.stats.qlen).sum::<u64>());
    for (text, done) in [
        ("replace", dev.tc("qdisc replace parent 1:2 pfifo")),
        ("change", dev.tc("qdisc change parent 1:2 cake bandwidth 1mbit")),
        ("delete", dev.tc("qdisc del parent 1:2")),
        ("autorate", dev.tc("qdisc change root cake_mq autorate-ingress")),
    ] {
        let error = done.expect_err(text).to_string();
        assert!(error.starts_with("RTNETLINK answers: Operation not supported"), "{text}: {error}");
    }
    dev.tc("qdisc change root cake_mq bandwidth 20mbit").unwrap();
    assert_eq!(shown(&dev).matches("bandwidth 20Mbit besteffort").count(), 5);
    let child =
        NetDev::builder(Wires::new(2, None)).pool_config(pool()).qdisc("cake_mq").child(0, "pfifo").build();
    assert!(child.err().unwrap().to_string().contains("its own"));
    dev.tc("qdisc del root").unwrap();
    assert!(shown(&dev).starts_with("qdisc mq 0:"));
    dev.audit().unwrap();
}

fn classes(dev: &NetDev) -> String {
    class_text(&dev.classes(Style::default()), false)
}

/// htb_mq is listed as one htb: a command on a class, a leaf or a filter is one on all parts, and counters are sums.
#[test]
fn htb_mq_is_one_htb_for_all_txqs() {
    let (dev, wires) = build("root handle 1: htb_mq default 20");
    assert_eq!(
        shown(&dev),
        "qdisc htb_mq 1: dev wires root refcnt 5 r2q 10 default 0x20 direct_packets_stat 0 direct_qlen 1000\n"
    );
    let warnings = dev.tc("class add parent 1: classid 1:1 htb rate 800mbit burst 100k cburst 100k").unwrap();
    // Each part has the warning that the quantum of 1:1 is big.
    assert_eq!(warnings.len(), 1);
    dev.tc(
        "class add parent 1:1 classid 1:10 htb rate 8mbit ceil 800mbit burst 4000 cburst 20k quantum 2000",
    )
    .unwrap();
    dev.tc("class add parent 1:1 classid 1:20 htb_mq rate 80mbit quantum 2000").unwrap();
    let error = dev.tc("class add parent 1:1 classid 1:20 htb rate 80mbit").unwrap_err().to_string();
    assert!(error.starts_with("RTNETLINK answers: File exists"), "{error}");
    let error = dev.tc("class add parent 1:1 classid 1:30 drr").unwrap_err().to_string();
    assert!(error.contains("1: is htb_mq"), "{error}");
    dev.tc("class change classid 1:20 htb rate 80mbit burst 60k cburst 60k quantum 2000").unwrap();
    dev.tc("qdisc add parent 1:10 handle 10: pfifo limit 5").unwrap();
    dev.tc("qdisc add parent 1:20 handle 20: prio").unwrap();
    dev.tc("qdisc add parent 20:1 handle 21: pfifo limit 7").unwrap();
    dev.tc("qdisc change parent 1:10 handle 10: pfifo limit 6").unwrap();
    dev.tc("filter add parent 1: pref 1 handle 5 fw classid 1:10").unwrap();
    dev.tc("filter add parent 1: pref 2 matchall classid 1:20 action ok").unwrap();
    assert_eq!(dev.filters(None, Style::default()).len(), 4);
    let leaves = "qdisc pfifo 10: dev wires parent 1:10 limit 6p\n\
                  qdisc prio 20: dev wires parent 1:20 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1\n\
                  qdisc pfifo 21: dev wires parent 20:1 limit 7p\n";
    assert!(shown(&dev).ends_with(leaves), "{}", shown(&dev));
    // 40 packets of 1000 bytes, which the buckets hold, by all txqs: 20 of them through the filter.
    let mut sender = dev.sender("test");
    for number in 0..40_u32 {
        let mut packet = sender.alloc(1000).unwrap();
        packet.set_hash(number.wrapping_mul(0x9e37_79b9) | 1);
        packet.set_mark(if number % 2 == 0 { 5 } else { 0 });
        let _ = sender.xmit(packet);
    }
    let sent: Vec<_> = (0..4).map(|txq| wires.at(txq).sent().len()).collect();
    assert!(
        sent.iter().sum::<usize>() == 40 && sent.iter().filter(|&&sent| sent > 0).count() > 1,
        "{sent:?}"
    );
    let list = dev.classes(Style::default());
    let of = |class: &str| {
        list.iter().find(|info| info.handle.to_string() == class).unwrap_or_else(|| panic!("{class}"))
    };
    let packets = |class: &str| of(class).stats.unwrap().packets;
    assert_eq!(
        ["1:1", "1:10", "1:20", "20:2"].map(packets),
        [40, 20, 20, 20],
        "{}",
        class_text(&list, false)
    );
    let counted = of("1:10").xstats.as_ref().unwrap().json();
    assert_eq!(counted["lended"].as_u64().unwrap() + counted["borrowed"].as_u64().unwrap(), 20);
    let qdiscs = dev.qdiscs(Style::default());
    assert_eq!(qdiscs.iter().map(|info| info.stats.packets).collect::<Vec<_>>(), [40, 20, 20, 0]);
    let text = "class htb_mq 1:1 root rate 800Mbit ceil 800Mbit burst 100Kb cburst 100Kb \n\
                class htb_mq 1:10 parent 1:1 leaf 10: prio 0 rate 8Mbit ceil 800Mbit burst 4000b cburst 20300b \n";
    assert!(classes(&dev).starts_with(text), "{}", classes(&dev));
    let filters = dev.filters(None, Style::default());
    assert_eq!(filters.iter().filter_map(|info| info.hits).collect::<Vec<_>>(), [20]);
    let text = filters_text(&filters, true);
    assert!(text.contains("Sent 20000 bytes 20 pkt (dropped 0, overlimits 0"), "{text}");
    let one = "parent 1: protocol all pref 2 handle 1 matchall";
    assert_eq!(dev.filter(one, Style::default()).unwrap().hits, Some(20));
    assert!(dev.tc("class del classid 1:10").unwrap_err().to_string().contains("filters"));
    dev.tc("filter del parent 1: pref 2").unwrap();
    dev.tc("filter del parent 1: pref 1").unwrap();
    dev.tc("class del classid 1:10").unwrap();
    dev.tc("qdisc del parent 1:20").unwrap();
    assert_eq!(shown(&dev).lines().count(), 1);
    dev.tc("qdisc change root htb_mq default 0").unwrap_err();
    dev.tc("qdisc replace root handle 2: tbf_mq rate 1gbit burst 10k limit 10k").unwrap();
    assert!(dev.tc("class add parent 2: classid 2:9 htb rate 1mbit").is_err());
    dev.audit().unwrap();
}

/// What no class is for goes past all classes, on each txq.
#[test]
fn htb_mq_counts_direct_packets_of_all_txqs() {
    let (dev, _) = build("root handle 1: htb_mq");
    send(&dev, 50);
    assert!(shown(&dev).contains("direct_packets_stat 50"), "{}", shown(&dev));
    dev.tc("class add parent 1: classid 1:1 htb rate 8kbit").unwrap();
    dev.reset_qdisc("root").unwrap();
    dev.audit().unwrap();
}

/// A builder takes it as any root.
#[test]
fn a_device_begins_with_it() {
    let wires = Wires::new(3, None);
    let dev = NetDev::builder(wires).pool_config(pool()).qdisc(ROOT).build().unwrap();
    assert!(shown(&dev).starts_with("qdisc tbf_mq 1: dev wires root refcnt 4"), "{}", shown(&dev));
    let one = NetDev::builder(Wires::new(1, None)).pool_config(pool()).qdisc(ROOT).build();
    assert!(one.err().unwrap().to_string().contains("use tbf"));
}

/// Four threads send what they can, beside the workers, for a while: the device gets no more than the rate and one burst
/// allow, and each txq sends.
#[test]
fn threads_of_all_txqs_keep_to_one_rate() {
    const RATE: u64 = 10_000_000;
    let wires = Wires::new(4, None);
    let dev =
        NetDev::builder(wires.clone()).pool_config(pool()).qdisc(ROOT).workers(2).xps(None).start().unwrap();
    let over = AtomicBool::new(false);
    let sent = || (0..4).map(|txq| wires.at(txq).sent().len() as u64).sum::<u64>() * 1000;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (dev, over) = (&dev, &over);
            scope.spawn(move || {
                let mut sender = dev.sender(&format!("thread {thread}"));
                while !over.load(Relaxed) {
                    if let Ok(mut packet) = sender.alloc(1000) {
                        // The hash chooses the thread's txq.
                        packet.set_hash(thread << 30 | 1);
                        let _ = sender.xmit(packet);
                    }
                }
            });
        }
        let enough = || (0..4).all(|txq| wires.at(txq).sent().len() > 20);
        while began.elapsed() < Duration::from_millis(300)
            || !enough() && began.elapsed() < Duration::from_secs(20)
        {
            std::thread::sleep(Duration::from_millis(10));
            let sent = sent();
            let most = 20_480 + RATE * began.elapsed().as_micros() as u64 / 1_000_000;
            assert!(sent <= most, "{sent} bytes, at most {most} are allowed");
        }
        over.store(true, Relaxed);
    });
    for txq in 0..4 {
        assert!(wires.at(txq).sent().len() > 20, "txq {txq} sent {}", wires.at(txq).sent().len());
    }
    dev.reset_qdisc("root").unwrap();
    assert!(dev.drain(Duration::from_secs(10)));
    dev.audit().unwrap();
}

/// Two threads fill the leaves of two txqs, and two workers empty them: whatever CPU time each has, the classes of each txq, which borrow
/// from one bucket of both, share it by `quantum` while they have packets.
#[test]
fn threads_of_two_txqs_share_by_quantum() {
    const EACH: u32 = 2000;
    let pool = PoolConfig { buffers: 5 * EACH, ..pool() };
    let wires = Wires::new(2, None);
    let builder = NetDev::builder(wires.clone()).pool_config(pool).qdisc("handle 1: htb_mq");
    let dev = builder.workers(2).xps(None).start().unwrap();
    // Nearly nothing leaves until all packets are queued.
    dev.tc("class add parent 1: classid 1:1 htb rate 8kbit burst 2000 cburst 2000").unwrap();
    for (class, quantum) in [("1:10", 2000), ("1:20", 4000)] {
        let parameters = format!("rate 8kbit ceil 800mbit burst 2000 cburst 100k quantum {quantum}");
        dev.tc(&format!("class add parent 1:1 classid {class} htb {parameters}")).unwrap();
        dev.tc(&format!("qdisc add parent {class} pfifo limit 5000")).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..2_u32 {
            let dev = &dev;
            scope.spawn(move || {
                let mut sender = dev.sender(&format!("thread {thread}"));
                for number in 0..2 * EACH {
                    let mut packet = sender.alloc(1000).unwrap();
                    let class = 0x10 << (number % 2);
                    packet.set_hash(thread << 31 | 1);
                    packet.set_priority(0x1_0000 | class);
                    packet.set_cookie(class.into());
                    let _ = sender.xmit(packet);
                }
            });
        }
    });
    let early = [0, 1].map(|txq| wires.at(txq).sent().len());
    assert!(early.iter().sum::<usize>() < 50, "{early:?} of all have left");
    dev.tc("class change classid 1:1 htb rate 800mbit burst 100k cburst 100k").unwrap();
    assert!(dev.drain(Duration::from_secs(30)));
    for txq in 0..2 {
        let sent = wires.at(txq).sent();
        assert_eq!(sent.len(), 2 * EACH as usize);
        let mut many = sent.iter().enumerate().filter(|(_, class)| **class == 0x20);
        let (last, _) = many.nth(EACH as usize * 9 / 10 - 1).unwrap();
        // Until then both classes have packets.
        let few = sent[..=last].iter().filter(|&&class| class == 0x10).count() as u32;
        assert!(
            few.abs_diff(EACH * 9 / 20) <= EACH * 9 / 20 / 50,
            "txq {txq}: {few} beside {}",
            EACH * 9 / 10
        );
    }
    dev.audit().unwrap();
}
