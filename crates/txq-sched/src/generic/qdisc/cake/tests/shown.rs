//! tc's words: the expected texts are tc 6.1's output for a running kernel's cake with the same options.

use super::*;

const FLAGS: &str = "triple-isolate nonat nowash no-ack-filter split-gso";

#[test]
fn words_are_shown_as_tc_shows_them() {
    let usual = |link: &str| format!("bandwidth unlimited diffserv3 {FLAGS} rtt 100ms {link} ");
    for (words, link) in [
        ("", "raw overhead 0"),
        ("unlimited internet egress nonat nowash split-gso no-ack-filter", "raw overhead 0"),
        ("rtt 0 memlimit 0 fwmark 0 mpu 0 bandwidth 1", "raw overhead 0"),
        ("ptm", "raw ptm overhead 0"),
        ("atm", "raw atm overhead 0"),
        ("atm raw", "raw overhead 0"),
        ("overhead 10", "noatm overhead 10"),
        ("overhead -64", "noatm overhead -64"),
        ("overhead +5", "noatm overhead 5"),
        ("overhead 256 ether-vlan", "noatm overhead 260"),
        ("raw overhead 10", "raw overhead 10"),
        ("overhead 10 raw", "raw overhead 0"),
        ("conservative", "atm overhead 48"),
        ("conservative raw", "raw overhead 0"),
        ("raw conservative", "raw atm overhead 48"),
        ("conservative atm noatm", "noatm overhead 48"),
        ("conservative ether-vlan", "atm overhead 52"),
        ("ether-vlan conservative", "atm overhead 48"),
        ("pppoa-vcmux", "atm overhead 10"),
        ("pppoa-llc", "atm overhead 14"),
        ("pppoe-vcmux", "atm overhead 32"),
        ("pppoe-vcmux overhead 3", "atm overhead 3"),
        ("pppoe-llcsnap", "atm overhead 40"),
        ("bridged-vcmux", "atm overhead 24"),
        ("bridged-llcsnap", "atm overhead 32"),
        ("ipoa-vcmux", "atm overhead 8"),
        ("ipoa-llcsnap", "atm overhead 16"),
        ("pppoe-ptm", "ptm overhead 30"),
        ("bridged-ptm", "ptm overhead 22"),
        ("ether-vlan pppoe-ptm", "ptm overhead 34"),
        ("via-ethernet", "raw overhead 0"),
        ("ethernet", "noatm overhead 38 mpu 84"),
        ("mpu 100 ethernet", "noatm overhead 38 mpu 84"),
        ("ethernet mpu 10", "noatm overhead 38 mpu 10"),
        ("overhead 10 ethernet", "noatm overhead 48 mpu 84"),
        ("atm ethernet", "atm overhead 38 mpu 84"),
        ("raw ethernet", "raw overhead 38 mpu 84"),
        ("ethernet raw", "raw overhead 0 mpu 84"),
        ("ether-vlan ether-vlan", "noatm overhead 8"),
        ("docsis", "noatm overhead 18 mpu 64"),
        ("atm docsis", "noatm overhead 18 mpu 64"),
        ("ether-vlan docsis", "noatm overhead 22 mpu 64"),
        ("mpu 256", "raw overhead 0 mpu 256"),
        ("memlimit 1m", "raw overhead 0 memlimit 1Mb"),
        ("fwmark 010", "raw overhead 0 fwmark 0x8"),
        ("memlimit 1k fwmark 0xff", "raw overhead 0 memlimit 1Kb fwmark 0xff"),
    ] {
        let bench = Bench::new(&format!("cake {words}"));
        assert_eq!(bench.qdisc.options(Style::default()).text(), usual(link), "{words}");
    }
    for (words, shown) in [
        (
            "bandwidth 10mbit autorate-ingress diffserv4 dual-srchost nat wash ingress ack-filter no-split-gso lan",
            "bandwidth 10Mbit autorate-ingress diffserv4 dual-srchost nat wash ingress ack-filter no-split-gso rtt 1ms \
             raw overhead 0 ",
        ),
        (
            "ack-filter-aggressive interplanetary precedence hosts",
            "bandwidth unlimited precedence hosts nonat nowash ack-filter-aggressive split-gso rtt 1e+03s raw \
             overhead 0 ",
        ),
    ] {
        assert_eq!(Bench::new(&format!("cake {words}")).qdisc.options(Style::default()).text(), shown);
    }
}

#[test]
fn a_change_keeps_what_was_not_said() {
    let mut bench = Bench::new("cake conservative mpu 33 fwmark 7");
    for (words, shown) in [
        ("noatm", "noatm overhead 48 mpu 33 fwmark 0x7 "),
        ("atm", "atm overhead 48 mpu 33 fwmark 0x7 "),
        ("ethernet", "atm overhead 38 mpu 84 fwmark 0x7 "),
        ("ether-vlan", "atm overhead 4 mpu 84 fwmark 0x7 "),
        ("fwmark 0", "atm overhead 4 mpu 84 fwmark 0x7 "),
        ("mpu 0", "atm overhead 4 mpu 84 fwmark 0x7 "),
        ("raw atm", "raw atm overhead 0 mpu 84 fwmark 0x7 "),
        ("noatm", "raw overhead 0 mpu 84 fwmark 0x7 "),
        ("overhead 5", "noatm overhead 5 mpu 84 fwmark 0x7 "),
        ("memlimit 1k", "noatm overhead 5 mpu 84 memlimit 1Kb fwmark 0x7 "),
        ("memlimit 0", "noatm overhead 5 mpu 84 memlimit 1Kb fwmark 0x7 "),
    ] {
        bench.change(words).unwrap();
        let text = bench.qdisc.options(Style::default()).text().to_owned();
        assert!(text.ends_with(&format!("rtt 100ms {shown}")), "{words}: {text}");
    }
    bench.change("bandwidth 5mbit autorate-ingress").unwrap();
    bench.change("rtt 50ms").unwrap();
    let start = "bandwidth 5Mbit autorate-ingress diffserv3";
    assert!(bench.qdisc.options(Style::default()).text().starts_with(start));
    bench.change("bandwidth 6mbit").unwrap();
    assert!(bench.qdisc.options(Style::default()).text().starts_with("bandwidth 6Mbit diffserv3"));
}

#[test]
fn errors_are_those_of_tc() {
    for (words, message) in [
        ("bandwidth abc", "Illegal \"bandwidth\""),
        ("rtt abc", "Illegal \"rtt\""),
        ("overhead 257", "Illegal \"overhead\", valid range is -64 to 256"),
        ("overhead 0x10", "Illegal \"overhead\", valid range is -64 to 256"),
        ("mpu -1", "Illegal \"mpu\", valid range is 0 to 256"),
        ("memlimit 4g", "Illegal value for \"memlimit\": \"4g\""),
        ("fwmark x", "Illegal value for \"fwmark\": \"x\""),
        ("bandwidth", "Command line is not complete. Try option \"help\""),
        ("fwmark", "Command line is not complete. Try option \"help\""),
        ("diffserv5", "What is \"diffserv5\"?"),
    ] {
        let mut bench = Bench::new("cake");
        let error = bench.change(words).unwrap_err();
        assert_eq!(error.message(), message);
        assert!(words.split(' ').count() < 2 || error.remedy().is_some(), "{words}");
    }
}

/// Target, interval, quantum, threshold and memory limit of each tin.
#[test]
fn tins_have_the_kernels_parameters() {
    for (words, limit, tins) in [
        (
            "bandwidth 100mbit rtt 10ms",
            4_194_304,
            vec![
                (781_250, 2906, 12_406, 300),
                (12_500_000, 500, 10_000, 1514),
                (3_125_000, 726, 10_226, 762),
            ],
        ),
        (
            "bandwidth 100mbit",
            5_000_000,
            vec![
                (781_250, 5000, 100_000, 300),
                (12_500_000, 5000, 100_000, 1514),
                (3_125_000, 5000, 100_000, 762),
            ],
        ),
        ("bandwidth 1mbit besteffort", 4_194_304, vec![(125_000, 18_168, 113_168, 300)]),
        (
            "bandwidth 100kbit",
            4_194_304,
            vec![
                (781, 2_907_810, 5_815_620, 300),
                (12_500, 181_680, 363_360, 300),
                (3125, 726_720, 1_453_440, 300),
            ],
        ),
        ("besteffort rtt 1us", 15_503_360, vec![(0, 1, 2, 1514)]),
        ("bandwidth 10gbit besteffort rtt 1us", 4_194_304, vec![(1_250_000_000, 1, 3, 1514)]),
        ("bandwidth 10gbit besteffort", 15_503_360, vec![(1_250_000_000, 5000, 100_000, 1514)]),
        ("bandwidth 8bit besteffort", 4_194_304, vec![(1, 35_484_375, 70_968_750, 300)]),
    ] {
        let json = Bench::new(&format!("cake {words}")).qdisc.xstats(Style::default()).unwrap().json();
        assert_eq!(json["memory_limit"], limit, "{words}");
        for (tin, (rate, target, interval, quantum)) in json["tins"].as_array().unwrap().iter().zip(tins) {
            assert_eq!(tin["threshold_rate"], rate, "{words}");
            assert_eq!(
                (&tin["target_us"], &tin["interval_us"]),
                (&target.into(), &interval.into()),
                "{words}"
            );
            assert_eq!(tin["flow_quantum"], quantum, "{words}");
        }
    }
    let json = Bench::new("cake bandwidth 10mbit precedence").qdisc.xstats(Style::default()).unwrap().json();
    let rates: Vec<_> =
        json["tins"].as_array().unwrap().iter().map(|tin| tin["threshold_rate"].as_u64()).collect();
    let expected = [1_250_000, 1_093_750, 957_031, 837_402, 732_726, 641_135, 560_993, 490_868];
    assert_eq!(rates, expected.map(Some));
}

#[test]
fn counters_are_shown_as_tc_shows_them() {
    let bench = Bench::new("cake bandwidth 100mbit");
    let text = bench.shown().0;
    let expected = " memory used: 0b of 5000000b\n capacity estimate: 100Mbit\n\
        \x20min/max network layer size:        65535 /       0\n\
        \x20min/max overhead-adjusted size:    65535 /       0\n\
        \x20average network hdr offset:            0\n\n\
        \x20                  Bulk  Best Effort        Voice\n\
        \x20 thresh       6250Kbit      100Mbit       25Mbit\n\
        \x20 target            5ms          5ms          5ms\n\
        \x20 interval        100ms        100ms        100ms\n\
        \x20 pk_delay          0us          0us          0us\n\
        \x20 av_delay          0us          0us          0us\n\
        \x20 sp_delay          0us          0us          0us\n\
        \x20 backlog            0b           0b           0b\n\
        \x20 pkts                0            0            0\n";
    assert!(text.contains(expected), "{text}");
    assert!(text.ends_with("\n  max_len             0            0            0\n  quantum           300         1514          762\n\n"));
    let options =
        r#""options":{"bandwidth":12500000,"diffserv":"diffserv3","flowmode":"triple-isolate","nat":false,"#
            .to_owned()
            + r#""wash":false,"ingress":false,"ack-filter":"disabled","split_gso":true,"rtt":100000,"raw":true,"#
            + r#""overhead":0,"fwmark":"0"},"bytes":0,"packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"#
            + r#""qlen":0,"memory_used":0,"memory_limit":5000000,"capacity_estimate":12500000,"min_network_size":65535,"#
            + r#""max_network_size":0,"min_adj_size":65535,"max_adj_size":0,"avg_hdr_offset":0,"tins":[{"#
            + r#""threshold_rate":781250,"sent_bytes":0,"backlog_bytes":0,"target_us":5000,"interval_us":100000,"#;
    assert!(bench.shown().1.contains(&options), "{}", bench.shown().1);
    // Text and JSON with the delays and sizes of traffic.
    let mut bench = Bench::new("cake ethernet memlimit 10000");
    for n in 0..100 {
        let frame = Frame { len: 142 + (n % 4) * 100, ports: (n as u16 % 4, 9), ..Frame::default() };
        let packet = frame.packet(&mut bench);
        let _ = bench.with(|q, cx| q.enqueue(packet, cx));
        bench.now += MS;
        let _ = bench.dequeue();
    }
    let text = bench.shown().0;
    assert!(text.contains(" min/max network layer size:          128 /     428\n"), "{text}");
    assert!(text.contains(" min/max overhead-adjusted size:      166 /     466\n"), "{text}");
    assert!(text.contains(" average network hdr offset:            5\n"), "{text}");
}

/// The tin of each code point.
#[test]
fn code_points_choose_tins() {
    for (words, code, tin) in [
        ("diffserv3", 0, 1),
        ("diffserv3", 8, 0),
        ("diffserv3", 1, 0),
        ("diffserv3", 46, 2),
        ("diffserv3", 48, 2),
        ("diffserv4", 34, 2),
        ("diffserv4", 46, 3),
        ("diffserv8", 46, 6),
        ("diffserv8", 48, 7),
        ("precedence", 46, 5),
        ("besteffort", 46, 0),
    ] {
        for ecn in 0..4 {
            let mut bench = Bench::new(&format!("cake {words}"));
            let packet = Frame { tos: code << 2 | ecn, ..Frame::default() }.packet(&mut bench);
            let _ = bench.with(|q, cx| q.enqueue(packet, cx));
            let json = bench.qdisc.xstats(Style::default()).unwrap().json();
            assert_eq!(json["tins"][tin]["sent_packets"], 1, "{words} {code}");
        }
    }
    // The mark goes before the priority, and the priority before the code point.
    for (mark, priority, tin) in
        [(0, 0x1_0001, 0), (0x300, 0x1_0001, 2), (0x400, 0x1_0009, 1), (0, 0x2_0001, 1)]
    {
        let mut bench = Bench::new("cake fwmark 0xff00");
        bench.with(|q, _| q.set_handle(Handle::new(1, 0)));
        let mut packet = bench.packet(100, 1);
        packet.set_mark(mark);
        packet.set_priority(priority);
        let _ = bench.with(|q, cx| q.enqueue(packet, cx));
        let json = bench.qdisc.xstats(Style::default()).unwrap().json();
        assert_eq!(json["tins"][tin]["sent_packets"], 1, "{mark:#x} {priority:#x}");
    }
}

/// As in the kernel, the capacity estimate is that of the arrivals, or the bandwidth that the qdisc was created with; the
/// sizes begin anew when the overhead changes.
#[test]
fn a_change_keeps_the_capacity_and_forgets_sizes() {
    let mut bench = Bench::new("cake bandwidth 10mbit");
    let packet = Frame::default().packet(&mut bench);
    let _ = bench.with(|q, cx| q.enqueue(packet, cx));
    bench.change("bandwidth 20mbit mpu 64").unwrap();
    let text = bench.shown().0;
    assert!(text.contains(" capacity estimate: 10Mbit\n") && !text.contains("65535"), "{text}");
    bench.change("overhead 20").unwrap();
    let text = bench.shown().0;
    assert!(text.contains(" min/max network layer size:        65535 /       0\n"), "{text}");
}
