//! Texts that tc 6.1 printed on Linux 6.18 (a veth with four queues).

use super::*;
use crate::tc::{Micros, Rate, Size, Style};

const PRIOMAP: [u64; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

fn qdisc(kind: &str, handle: Handle, parent: Handle, refcnt: u32, fill: impl Fn(&mut Options)) -> QdiscInfo {
    let mut options = Options::new(Style::default());
    fill(&mut options);
    let stats = QdiscStats::default();
    QdiscInfo { refcnt, options, stats, ..QdiscInfo::new(kind, handle, parent, Style::default()) }
}

fn pfifo_fast(parent: Handle) -> QdiscInfo {
    qdisc("pfifo_fast", Handle::UNSPEC, parent, 1, |options| {
        options.number("bands", 3).list("priomap", &PRIOMAP).json_only("multiqueue", false);
    })
}

#[test]
fn mq_with_children() {
    let mut root = qdisc("mq", Handle::new(1, 0), Handle::ROOT, 1, |_| ());
    root.stats = QdiscStats { bytes: 90, packets: 1, ..QdiscStats::default() };
    let child = pfifo_fast(Handle::new(1, 4));
    let pfifo = qdisc("pfifo", Handle::new(0x20, 0), Handle::new(1, 2), 1, |options| {
        options.packets("limit", 7);
    });
    let qdiscs = [root, child, pfifo];
    assert_eq!(
        show_text(&qdiscs, true),
        "qdisc mq 1: root \n \
         Sent 90 bytes 1 pkt (dropped 0, overlimits 0 requeues 0) \n \
         backlog 0b 0p requeues 0\n\
         qdisc pfifo_fast 0: parent 1:4 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1\n \
         Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) \n \
         backlog 0b 0p requeues 0\n\
         qdisc pfifo 20: parent 1:2 limit 7p\n \
         Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) \n \
         backlog 0b 0p requeues 0\n"
    );
    assert_eq!(
        show_json(&qdiscs, false).to_string(),
        "[{\"kind\":\"mq\",\"handle\":\"1:\",\"root\":true,\"options\":{}},\
         {\"kind\":\"pfifo_fast\",\"handle\":\"0:\",\"parent\":\"1:4\",\"options\":{\"bands\":3,\
         \"priomap\":[1,2,2,2,1,2,0,0,1,1,1,1,1,1,1,1],\"multiqueue\":false}},\
         {\"kind\":\"pfifo\",\"handle\":\"20:\",\"parent\":\"1:2\",\"options\":{\"limit\":7}}]"
    );
}

#[test]
fn a_shaper_with_backlog() {
    let mut tbf = qdisc("tbf", Handle::new(0x8007, 0), Handle::ROOT, 5, |options| {
        options
            .rate("rate", Rate(1000))
            .size("burst", Size(2048))
            .micros("lat", Micros(2_997_952_000))
            .end_blank();
    });
    tbf.stats = QdiscStats {
        bytes: 72_736,
        packets: 58,
        overlimits: 176,
        backlog: 5838,
        qlen: 5,
        ..QdiscStats::default()
    };
    assert_eq!(
        show_text(&[tbf.clone()], true),
        "qdisc tbf 8007: root refcnt 5 rate 8Kbit burst 2Kb lat 3e+03s \n \
         Sent 72736 bytes 58 pkt (dropped 0, overlimits 176 requeues 0) \n \
         backlog 5838b 5p requeues 0\n"
    );
    assert_eq!(
        show_json(&[tbf], true).to_string(),
        "[{\"kind\":\"tbf\",\"handle\":\"8007:\",\"root\":true,\"refcnt\":5,\
         \"options\":{\"rate\":1000,\"burst\":2048,\"lat\":2997952000},\"bytes\":72736,\"packets\":58,\"drops\":0,\
         \"overlimits\":176,\"requeues\":0,\"backlog\":5838,\"qlen\":5}]"
    );
}

#[test]
fn a_listing_of_all_devices_names_them() {
    let mut noqueue = qdisc("noqueue", Handle::UNSPEC, Handle::ROOT, 2, |_| ());
    noqueue.dev = Some("lo".to_owned());
    assert_eq!(show_text(&[noqueue.clone()], false), "qdisc noqueue 0: dev lo root refcnt 2 \n");
    assert_eq!(
        show_json(&[noqueue], false).to_string(),
        "[{\"kind\":\"noqueue\",\"handle\":\"0:\",\"dev\":\"lo\",\"root\":true,\"refcnt\":2,\"options\":{}}]"
    );
}

#[test]
fn a_kinds_own_counters_follow_and_only_with_stats() {
    let mut codel = qdisc("codel", Handle::new(1, 0), Handle::ROOT, 1, |options| {
        options.packets("limit", 1000);
    });
    let mut xstats = Options::new(Style::default());
    xstats.put("count", 3, "  count 3").put("maxpacket", 0, "\n  maxpacket 0");
    codel.xstats = Some(xstats);
    assert_eq!(show_text(&[codel.clone()], false), "qdisc codel 1: root limit 1000p\n");
    assert!(
        show_text(&[codel.clone()], true).ends_with(" backlog 0b 0p requeues 0\n  count 3\n  maxpacket 0\n")
    );
    assert!(show_json(&[codel], true).to_string().ends_with("\"qlen\":0,\"count\":3,\"maxpacket\":0}]"));
}

#[test]
fn nothing_to_show() {
    assert_eq!(show_text(&[], true), "");
    assert_eq!(show_json(&[], true).to_string(), "[]");
}

/// A size table is a line of its own, and a key behind the options, and only with details.
#[test]
fn a_size_table_is_a_detail() {
    let mut words = crate::tc::Words::split("stab overhead 4 mpu 64 linklayer atm pfifo");
    let stab = crate::tc::Header::parse(&mut words).unwrap().stab;
    for (details, text, json) in [
        (false, "", ""),
        (
            true,
            " linklayer atm overhead 4 mpu 64 mtu 2047 tsize 512 \n",
            r#","stab":{"linklayer":"atm","overhead":4,"mpu":64,"mtu":2047,"tsize":512}"#,
        ),
    ] {
        let style = Style { details, ..Style::default() };
        let mut options = Options::new(style);
        options.packets("limit", 7);
        let info =
            QdiscInfo { options, stab, ..QdiscInfo::new("pfifo", Handle::new(1, 0), Handle::ROOT, style) };
        let infos = [info];
        assert_eq!(show_text(&infos, false), format!("qdisc pfifo 1: root limit 7p\n{text}"));
        let stats = " Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0) \n backlog 0b 0p requeues 0\n";
        assert_eq!(show_text(&infos, true), format!("qdisc pfifo 1: root limit 7p\n{text}{stats}"));
        let expected =
            format!(r#"[{{"kind":"pfifo","handle":"1:","root":true,"options":{{"limit":7}}{json}}}]"#);
        assert_eq!(show_json(&infos, false).to_string(), expected);
    }
}
