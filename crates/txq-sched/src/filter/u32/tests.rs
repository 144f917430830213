use crate::filter::Mode;
use crate::filter::tests::{Bench, ethernet, ipv4, ports, udp};

#[test]
fn named_fields_are_where_headers_have_them() {
    let mut v6 = vec![0x62, 0x01, 0, 0, 0, 20, 17, 64, 0xfe, 0x80];
    v6.extend([0; 29]);
    v6.push(1);
    v6.extend(ports(7, 8));
    let v6 = ethernet(0x86dd, &v6);
    let v4 = ethernet(0x800, &ipv4(17, 0x10, &ports(7, 8)));
    let icmp = ethernet(0x800, &ipv4(1, 0, &[8, 3]));
    for (sample, frame, matches) in [
        ("ip src 10.0.0.0/8", &v4, true),
        ("ip src 10.0.0.2", &v4, false),
        ("ip dst 10.0.0.2", &v4, true),
        ("ip sport 7 0xffff", &v4, true),
        ("ip sport 8 0xffff", &v4, false),
        ("ip dport 8 0xffff", &v4, true),
        ("ip protocol 17 0xff", &v4, true),
        ("ip protocol 6 0xff", &v4, false),
        ("ip tos 0x10 0xff", &v4, true),
        ("ip dsfield 0x10 0xfc", &v4, true),
        ("ip tos 0x20 0xff", &v4, false),
        ("ip ihl 5 0xf", &v4, true),
        ("ip nofrag", &v4, true),
        ("ip mf", &v4, false),
        ("ip icmp_type 8 0xff match ip icmp_code 3 0xff", &icmp, false),
        ("u32 0x0a000001 0xffffffff at 12", &v4, true),
        ("u16 0x0800 0xffff at -2", &v4, true),
        ("u16 0x0801 0xffff at -2", &v4, false),
        ("u8 64 ff at 8", &v4, true),
        ("u8 8 ff at nexthdr+23", &v4, true),
        ("u8 0 0 at 100", &v4, false),
        ("ip6 src fe80::/10", &v6, true),
        ("ip6 dst ::1", &v6, true),
        ("ip6 dst ::2", &v6, false),
        ("ip6 sport 7 0xffff match ip6 dport 8 0xffff", &v6, true),
        ("ip6 protocol 17 0xff", &v6, true),
        ("ip6 priority 0x20 0xff", &v6, true),
        ("ip6 flowlabel 0x10000 0xfffff", &v6, true),
    ] {
        let mut bench = Bench::with(&[&format!("u32 match {sample} classid 1:1")]);
        // The ICMP frame ends within the word that its rule compares.
        assert_eq!(bench.class(frame).is_some(), matches, "{sample}");
    }
    let mut longer = icmp.clone();
    longer.extend([0; 4]);
    let mut bench = Bench::with(&["u32 match ip icmp_type 8 0xff match ip icmp_code 3 0xff classid 1:1"]);
    assert_eq!(bench.class(&longer), Some(1));
    // Offsets count from the network header, behind any tags.
    let tagged = ethernet(0x8100, &[&[0, 5, 8, 0], &ipv4(17, 0, &ports(7, 8))[..]].concat());
    let mut bench = Bench::with(&["u32 match ip dport 8 0xffff classid 1:1"]);
    assert_eq!(bench.class(&tagged), Some(1));
}

#[test]
fn rules_are_tried_in_the_order_of_their_handles() {
    let mut bench = Bench::with(&[
        "pref 1 u32 match u32 0 0",
        "pref 1 u32 match u32 0 0 classid 1:1",
        "pref 1 handle ::5 u32 match ip dport 8 0xffff classid 1:2",
    ]);
    assert_eq!(bench.class(&udp(7, 8)), Some(2));
    assert_eq!(bench.class(&udp(7, 9)), Some(1), "one without a class is passed over");
    bench.delete("pref 1 handle 800::5 u32").unwrap();
    assert_eq!(bench.class(&udp(7, 8)), Some(1));
}

/// The expected outputs are those of tc for the same commands.
#[test]
fn text_and_json_are_those_of_tc() {
    let mut bench = Bench::with(&[
        "protocol ip pref 1 u32 match ip src 1.2.3.0/24 match ip dport 80 0xffff flowid 1:1",
        "protocol ip pref 1 u32 match ip nofrag match ip df",
        "protocol all pref 5 u32 match u32 0x1 0xff at 20 match u16 0x2 0xffff at 2 match u8 3 0xf at 1 flowid 1:3 skip_hw",
        "protocol ipv6 pref 6 u32 match ip6 src fe80::/10 match ip6 dst 2001:db8::1 flowid 1:3",
    ]);
    assert_eq!(
        bench.text(),
        "filter parent 1: protocol ip pref 1 u32 chain 0 \n\
         filter parent 1: protocol ip pref 1 u32 chain 0 fh 800: ht divisor 1 \n\
         filter parent 1: protocol ip pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 1:1 not_in_hw \n  \
         match 01020300/ffffff00 at 12\n  match 00000050/0000ffff at 20\n\
         filter parent 1: protocol ip pref 1 u32 chain 0 fh 800::801 order 2049 key ht 800 bkt 0 not_in_hw \n  \
         match 00004000/00007fff at 4\n\
         filter parent 1: protocol all pref 5 u32 chain 0 \n\
         filter parent 1: protocol all pref 5 u32 chain 0 fh 801: ht divisor 1 \n\
         filter parent 1: protocol all pref 5 u32 chain 0 fh 801::800 order 2048 key ht 801 bkt 0 *flowid 1:3 skip_hw \
         not_in_hw \n  match 00000001/000000ff at 20\n  match 00030002/000fffff at 0\n\
         filter parent 1: protocol ipv6 pref 6 u32 chain 0 \n\
         filter parent 1: protocol ipv6 pref 6 u32 chain 0 fh 802: ht divisor 1 \n\
         filter parent 1: protocol ipv6 pref 6 u32 chain 0 fh 802::800 order 2048 key ht 802 bkt 0 *flowid 1:3 not_in_hw \n  \
         match fe800000/ffc00000 at 8\n  match 20010db8/ffffffff at 24\n  match 00000000/ffffffff at 28\n  \
         match 00000000/ffffffff at 32\n  match 00000001/ffffffff at 36\n"
    );
    bench.delete("pref 1").unwrap();
    bench.add("pref 9 u32").unwrap();
    assert!(bench.text().contains("fh 803: ht"), "numbers go on");
    let raw = crate::tc::Style { raw: true, ..Default::default() };
    let text = crate::filter::filters_text(&bench.filters.info(None, raw), false);
    assert!(
        text.contains(" fh 803:[80300000] ht divisor 1 ") && text.contains(" fh 801::800[80100800] order"),
        "{text}"
    );
    bench.delete("").unwrap();
    bench.add("pref 9 u32").unwrap();
    assert!(bench.text().contains("fh 800: ht"));
}

#[test]
fn messages_are_those_of_tc() {
    let mut bench = Bench::with(&["pref 1 u32 match u32 0 0 classid 1:1"]);
    for text in [
        "match foo",
        "match ip foo",
        "match ip src zz",
        "match ip src",
        "match ip dport 80",
        "match ip dport 80 x",
        "match ip dport 80 0x1ffff",
        "match u32 zz 0",
        "match u32 1 1 at 3",
        "match u16 0x12345 1 at 2",
        "match ip src 1.2.3.4 match ip src 1.2.3.5",
        "match ip6 src zz",
        "match u8 1 1 at x",
    ] {
        assert_eq!(bench.message(&format!("pref 1 u32 {text}")), "Illegal \"match\"", "{text}");
    }
    for (text, message) in [
        ("pref 1 u32 match u32 1 1 at", "Command line is not complete. Try option \"help\""),
        ("pref 1 u32 match u32 1 1 flowid x", "Illegal \"classid\""),
        ("pref 1 u32 foo", "What is \"foo\"?"),
        ("pref 1 u32 match u32 1 1 handle 8", "What is \"handle\"?"),
        ("pref 1 u32 flowid 1:1", "Error: cls_u32: Selector not specified."),
        ("pref 1 handle zz u32 match u32 0 0", "Illegal filter ID"),
        ("pref 1 handle 8 u32 match u32 0 0", "Illegal filter ID"),
        ("pref 1 handle 800::800 u32 match u32 0 0 flowid 1:7", "Error: Filter already exists."),
        (
            "pref 1 handle 801::5 u32 match u32 0 0",
            "Error: cls_u32: Handle specified hash table address mismatch.",
        ),
        ("pref 1 handle 800:1:6 u32 match u32 0 0", "RTNETLINK answers: No space left on device"),
    ] {
        assert_eq!(bench.message(text), message, "{text}");
    }
    // The keys stay.
    bench.set("pref 1 handle 800::800 u32 match ip src 1.2.3.4 flowid 1:8", Mode::Change).unwrap();
    assert_eq!(bench.class(&udp(1, 2)), Some(8));
}
