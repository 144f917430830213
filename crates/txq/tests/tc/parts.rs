//! cake_mq, and tbf_mq: one qdisc in parts, one for each txq. tc's commands reach the part that they mean, or all; and threads of all
//! txqs together keep to one rate.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::device::Wires;
use txq::NetDev;
use txq::pool::PoolConfig;
use txq::tc::{Style, class_text, show_json, show_text};

const ROOT: &str = "root handle 1: tbf_mq rate 80mbit burst 20k limit 50k";

fn pool() -> PoolConfig {
    PoolConfig { buffers: 2048, room: 1024, ..crate::device::pool() }
}

fn build(text: &str) -> (NetDev, Wires) {
    let wires = Wires::new(4, None);
    let dev = NetDev::builder(wires.clone()).pool_config(pool()).qdisc("noqueue").build().unwrap();
    dev.add_qdisc(text).unwrap();
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
        class_text(&dev.classes_info(Style::default()), false),
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

#[test]
fn commands_reach_the_part_of_a_class() {
    let (dev, _) = build(ROOT);
    let line = shown(&dev);
    dev.replace_qdisc("parent 1:3 handle 30: pfifo limit 5").unwrap();
    dev.replace_qdisc("parent 1:1 handle 10: prio").unwrap();
    dev.add_qdisc("parent 10:2 handle 12: pfifo limit 3").unwrap();
    let below = "qdisc prio 10: dev wires parent 1:1 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1\n\
                 qdisc pfifo 12: dev wires parent 10:2 limit 3p\n\
                 qdisc pfifo 30: dev wires parent 1:3 limit 5p\n";
    assert_eq!(shown(&dev), format!("{line}{below}"));
    dev.change_qdisc("parent 1:3 pfifo limit 6").unwrap();
    dev.delete_qdisc("parent 1:1").unwrap();
    assert_eq!(shown(&dev), format!("{line}qdisc pfifo 30: dev wires parent 1:3 limit 6p\n"));
    let refused = |done: Result<(), txq::tc::ParseError>| done.unwrap_err().to_string();
    let none = refused(dev.add_qdisc("parent 1:5 pfifo"));
    assert!(
        none.starts_with("Error: Specified class not found.") && none.contains("1:1, 1:2, 1:3, 1:4"),
        "{none}"
    );
    assert!(
        refused(dev.replace_qdisc("parent 1:2 mq")).starts_with("RTNETLINK answers: Operation not supported")
    );
    assert!(
        refused(dev.replace_qdisc("parent 1:2 tbf_mq rate 1mbit burst 2k limit 3k"))
            .contains("not supported")
    );
    assert!(refused(dev.add_class("parent 1: classid 1:9 htb rate 1mbit")).starts_with("RTNETLINK answers"));
    assert!(refused(dev.add_qdisc("parent 1:2 handle 30: pfifo")).contains("30:"));
    dev.replace_qdisc("root pfifo limit 9").unwrap();
    assert!(shown(&dev).contains("pfifo"));
    dev.replace_qdisc(ROOT).unwrap();
    dev.delete_qdisc("root").unwrap();
    assert!(shown(&dev).starts_with("qdisc mq 0: dev wires root"), "{}", shown(&dev));
}

/// A change of the root is one of all parts; a wrong one changes none.
#[test]
fn a_change_reaches_all_parts() {
    let (dev, wires) = build(ROOT);
    assert!(dev.change_qdisc("root tbf_mq rate 1gbit").is_err());
    assert!(shown(&dev).contains("rate 80Mbit burst 20Kb"));
    dev.change_qdisc("root tbf_mq rate 8gbit burst 1m limit 90k").unwrap();
    assert!(shown(&dev).contains("rate 8Gbit"), "{}", shown(&dev));
    send(&dev, 400);
    let sent: usize = (0..4).map(|txq| wires.at(txq).sent().len()).sum();
    assert_eq!(sent, 400, "each part has the new rate");
    // The same root once more, with other parameters, is a change as well: no packet is lost.
    dev.replace_qdisc(ROOT).unwrap();
    send(&dev, 100);
    let queued = dev.qdiscs(Style::default())[0].stats.qlen;
    dev.replace_qdisc("root handle 1: tbf_mq rate 160mbit burst 20k limit 50k").unwrap();
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
        ("replace", dev.replace_qdisc("parent 1:2 pfifo")),
        ("change", dev.change_qdisc("parent 1:2 cake bandwidth 1mbit")),
        ("delete", dev.delete_qdisc("parent 1:2")),
        ("autorate", dev.change_qdisc("root cake_mq autorate-ingress")),
    ] {
        let error = done.expect_err(text).to_string();
        assert!(error.starts_with("RTNETLINK answers: Operation not supported"), "{text}: {error}");
    }
    dev.change_qdisc("root cake_mq bandwidth 20mbit").unwrap();
    assert_eq!(shown(&dev).matches("bandwidth 20Mbit besteffort").count(), 5);
    let child =
        NetDev::builder(Wires::new(2, None)).pool_config(pool()).qdisc("cake_mq").child(0, "pfifo").build();
    assert!(child.err().unwrap().to_string().contains("its own"));
    dev.delete_qdisc("root").unwrap();
    assert!(shown(&dev).starts_with("qdisc mq 0:"));
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
    let dev = NetDev::builder(wires.clone()).pool_config(pool()).qdisc(ROOT).workers(2).start().unwrap();
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
