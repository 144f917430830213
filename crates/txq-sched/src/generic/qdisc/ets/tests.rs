use super::*;
use crate::generic::qdisc::testing::{ENV, Virtual, try_build};

/// The numbers of the bands in the order in which 100-byte packets left; the bands are in the packets' priorities.
fn bands(ets: &mut Virtual, packets: usize) -> Vec<u32> {
    let out = ets.take(Budget::packets(packets));
    out.iter().map(Packet::priority).collect()
}

fn share(bands: &[u32], band: u32) -> usize {
    bands.iter().filter(|&&other| other == band).count()
}

#[test]
fn strict_bands_go_first_and_the_others_share() {
    let mut ets = Virtual::new("ets strict 2 quanta 3000 1000 priomap 0 1 2 3");
    for band in [3, 2, 1, 0] {
        (0..100).for_each(|_| assert_eq!(ets.enqueue(100, band), Verdict::Success));
    }
    let left = bands(&mut ets, 200);
    assert!(left[..100].iter().all(|&band| band == 0) && left[100..].iter().all(|&band| band == 1));
    let left = bands(&mut ets, 80);
    assert_eq!((share(&left, 2), share(&left, 3)), (60, 20));
    let _ = ets.enqueue(100, 1);
    assert_eq!(bands(&mut ets, 1), [1], "a strict band interrupts a round");
    assert_eq!(bands(&mut ets, 1000).len(), 120);
    let stats = ets.qdisc.stats();
    assert_eq!((stats.packets, stats.bytes, stats.qlen), (401, 40_100, 0));
}

/// Shares are by bytes, whatever the lengths, and tiny quanta cost no time.
#[test]
fn quanta_are_bytes() {
    let mut ets = Virtual::new("ets quanta 1 2 priomap 0 1");
    for _ in 0..200 {
        let _ = ets.enqueue(1500, 0);
        let _ = ets.enqueue(500, 1);
        let _ = ets.enqueue(500, 1);
    }
    let left = bands(&mut ets, 140);
    let (first, second) = (share(&left, 0) * 1500, share(&left, 1) * 500);
    assert!(second.abs_diff(2 * first) <= 4500, "{first} {second}");
}

#[test]
fn a_class_with_a_shaper_lets_the_others_pass() {
    let mut ets = Virtual::new("ets bands 2 priomap 0 1");
    assert!(ets.attach(Handle::new(1, 1), Handle::new(10, 0), "tbf rate 8kbit burst 100 limit 4000"));
    for band in [0, 0, 1, 1, 1] {
        let _ = ets.enqueue(100, band);
    }
    assert_eq!(bands(&mut ets, 10), [0, 1, 1, 1]);
    let next = ets.qdisc.next_event().expect("a packet waits");
    assert_eq!(next, ets.now + 100_000_000);
    ets.now = next;
    assert_eq!(bands(&mut ets, 10), [0]);
}

#[test]
fn bands_and_quanta_change_with_packets_in_them() {
    let mut ets = Virtual::new("ets bands 4 priomap 0 1 2 3");
    for number in 0..12 {
        let _ = ets.enqueue(100, number / 3);
    }
    ets.change("bands 2 strict 1 priomap 0 1").unwrap();
    assert_eq!((ets.qdisc.qlen(), ets.qdisc.stats().drops), (6, 6));
    assert_eq!(bands(&mut ets, 10), [0, 0, 0, 1, 1, 1]);
    ets.change("quanta 500 500 500 priomap 2").unwrap();
    let _ = ets.enqueue(100, 0);
    let class = |ets: &mut Virtual, text: &str, minor| {
        ets.with(|qdisc, cx| qdisc.classes().unwrap().change_class(minor, &mut Words::split(text), cx))
    };
    class(&mut ets, "quantum 700", 3).unwrap();
    class(&mut ets, "", 3).unwrap();
    let shown = ets.qdisc.classes().unwrap().class(3, Style::default());
    assert_eq!((shown.options.text(), shown.stats.unwrap().qlen), ("quantum 700 ", 1));
    for (text, message) in [
        ("quantum x", "Illegal \"quanta\" element"),
        ("quantum 0", "\"quanta\" must be > 0"),
        ("foo", "What is \"foo\"?"),
    ] {
        assert_eq!(class(&mut ets, text, 1).unwrap_err().message(), message);
    }
    ets.change("strict 1").unwrap();
    let error = class(&mut ets, "quantum 5", 1).unwrap_err();
    assert_eq!(error.message(), "Error: Strict bands do not have a configurable quantum.");
    let error = ets.add_class(9, "quantum 5").unwrap_err();
    assert_eq!(error.message(), "Error: Fine-grained class addition and removal is not supported.");
}

/// The examples of tc-ets(8), and tc's errors.
#[test]
fn words_and_errors_are_tcs() {
    for (text, shown) in [
        (
            "ets bands 8 priomap 7 6 5 4 3 2 1 0",
            "bands 8 quanta 1514 1514 1514 1514 1514 1514 1514 1514 priomap 7 6 5 4 3 2 1 0 7 7 7 7 7 7 7 7 ",
        ),
        ("ets strict 8 priomap 7 6 5 4 3 2 1 0", "bands 8 strict 8 priomap 7 6 5 4 3 2 1 0 7 7 7 7 7 7 7 7 "),
        (
            "ets strict 3 quanta 3500 3000 2500 priomap 0 1 1 1 2 3 4 5",
            "bands 6 strict 3 quanta 3500 3000 2500 priomap 0 1 1 1 2 3 4 5 5 5 5 5 5 5 5 5 ",
        ),
        (
            "ets bands 8 strict 3 priomap 3 4 0 1 2 5 6 7",
            "bands 8 strict 3 quanta 1514 1514 1514 1514 1514 priomap 3 4 0 1 2 5 6 7 7 7 7 7 7 7 7 7 ",
        ),
    ] {
        let options = Virtual::new(text).qdisc.options(Style::default());
        assert_eq!(options.text(), shown);
        let input = Virtual::new(text).qdisc.options(Style { input: true, ..Style::default() });
        assert_eq!(Virtual::new(&format!("ets {}", input.text())).qdisc.options(Style::default()), options);
    }
    for (text, message) in [
        ("", "One of \"bands\", \"quanta\" or \"strict\" needs to be specified"),
        ("priomap 0 1 2", "One of \"bands\", \"quanta\" or \"strict\" needs to be specified"),
        ("bands 17", "The number of \"bands\" must be <= 16"),
        ("bands x", "Illegal \"bands\""),
        ("strict 17", "The number of \"strict\" must be <= 16"),
        ("bands 3 strict 4", "Not enough total bands to cover all the strict bands and quanta"),
        ("bands 2 quanta 1000 1000 1000", "Not enough total bands to cover all the strict bands and quanta"),
        ("quanta 0", "\"quanta\" must be > 0"),
        ("quanta x", "Illegal \"quanta\" element"),
        ("quanta", "Command line is not complete. Try option \"help\""),
        ("bands 3 priomap 0 1 2 3", "\"priomap\" element is out of bounds"),
        ("bands 3 priomap x", "Illegal \"priomap\" element"),
        ("bands 3 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", "\"priomap\" index cannot be higher than 15"),
        ("foo", "What is \"foo\"?"),
    ] {
        let error = try_build(&format!("ets {text}"), &ENV).err().expect(text);
        assert_eq!(error.message(), message, "{text}");
    }
}
