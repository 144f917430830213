use std::cell::Cell;

use proptest::prelude::*;

use crate::generic::filter::Mode;
use crate::generic::filter::tests::{Bench, any_frame, ethernet, ipv4, ports, udp};

thread_local! {
    /// Rules that searches of this thread have compared.
    pub(super) static COMPARED: Cell<u64> = const { Cell::new(0) };
}

/// UDP from an address.
fn from(source: [u8; 4]) -> Vec<u8> {
    let mut frame = udp(7, 8);
    frame[26..30].copy_from_slice(&source);
    frame
}

/// The HOWTO's "hashing filters for very fast massive filtering", section 12.4.
const LARTC: [&str; 7] = [
    "prio 5 protocol ip u32",
    "prio 5 handle 2: protocol ip u32 divisor 256",
    "protocol ip prio 5 u32 ht 2:7b: match ip src 1.2.0.123 flowid 1:1",
    "protocol ip prio 5 u32 ht 2:7b: match ip src 1.2.1.123 flowid 1:2",
    "protocol ip prio 5 u32 ht 2:7b: match ip src 1.2.3.123 flowid 1:3",
    "protocol ip prio 5 u32 ht 2:7c: match ip src 1.2.3.124 flowid 1:2",
    "protocol ip prio 5 u32 ht 800:: match ip src 1.2.0.0/16 hashkey mask 0x000000ff at 12 link 2:",
];

#[test]
fn a_hash_chooses_the_rules_to_compare() {
    let mut bench = Bench::with(&LARTC);
    for (source, class) in [
        ([1, 2, 0, 123], Some(1)),
        ([1, 2, 1, 123], Some(2)),
        ([1, 2, 3, 123], Some(3)),
        ([1, 2, 3, 124], Some(2)),
        ([1, 2, 9, 123], None),
        ([1, 2, 3, 125], None),
        ([1, 3, 0, 123], None),
    ] {
        assert_eq!(bench.class(&from(source)), class, "{source:?}");
    }
    assert_eq!(
        bench.text(),
        "filter parent 1: protocol ip pref 5 u32 chain 0 \n\
         filter parent 1: protocol ip pref 5 u32 chain 0 fh 2: ht divisor 256 \n\
         filter parent 1: protocol ip pref 5 u32 chain 0 fh 2:7b:800 order 2048 key ht 2 bkt 7b *flowid 1:1 not_in_hw \n  \
         match 0102007b/ffffffff at 12\n\
         filter parent 1: protocol ip pref 5 u32 chain 0 fh 2:7b:801 order 2049 key ht 2 bkt 7b *flowid 1:2 not_in_hw \n  \
         match 0102017b/ffffffff at 12\n\
         filter parent 1: protocol ip pref 5 u32 chain 0 fh 2:7b:802 order 2050 key ht 2 bkt 7b *flowid 1:3 not_in_hw \n  \
         match 0102037b/ffffffff at 12\n\
         filter parent 1: protocol ip pref 5 u32 chain 0 fh 2:7c:800 order 2048 key ht 2 bkt 7c *flowid 1:2 not_in_hw \n  \
         match 0102037c/ffffffff at 12\n\
         filter parent 1: protocol ip pref 5 u32 chain 0 fh 800: ht divisor 1 \n\
         filter parent 1: protocol ip pref 5 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 link 2: not_in_hw \n  \
         match 01020000/ffff0000 at 12\n    hash mask 000000ff at 12 \n"
    );
    let json = crate::generic::filter::filters_json(&bench.filters.info(None, Default::default()), false);
    assert_eq!(
        json[7]["options"].to_string(),
        r#"{"fh":"800::800","order":2048,"key_ht":"800","bkt":"0","link":"2:","not_in_hw":true,"match":{"value":"1020000","mask":"ffff0000","offmask":"","off":12},"hash_mask":"ff","hash_off":12}"#
    );
}

/// 4096 customers: 16 of each last number.
#[test]
fn a_search_compares_the_rules_of_a_bucket_alone() {
    let customers = || (0..16).flat_map(|net| (0..256).map(move |host| (net, host)));
    let mut hashed = Bench::with(&LARTC[..2]);
    let mut listed = Bench::new();
    for (net, host) in customers() {
        let class = 1 + net * 256 + host;
        let rule = format!("match ip src 1.2.{net}.{host} flowid 1:{class:x}");
        hashed.add(&format!("protocol ip prio 5 u32 ht 2:{host:x}: {rule}")).unwrap();
        // A bucket holds 4095 rules.
        listed.add(&format!("protocol ip prio {} u32 {rule}", 1 + net / 8)).unwrap();
    }
    hashed.add(LARTC[6]).unwrap();
    let most = |bench: &mut Bench| {
        let cost = |(net, host): (u16, u16)| {
            COMPARED.set(0);
            let class = bench.class(&from([1, 2, net as u8, host as u8]));
            assert_eq!(class, Some(1 + net * 256 + host));
            COMPARED.get()
        };
        customers().filter(|(_, host)| host % 16 == 15).map(cost).max()
    };
    assert_eq!((most(&mut hashed), most(&mut listed)), (Some(17), Some(4096)));
}

#[test]
fn links_move_the_offsets() {
    // The manual's example: TCP ports behind an IP header of any length, in the words of tc-u32(8).
    let mut bench = Bench::with(&[
        "prio 1 protocol ip handle 1: u32 divisor 1",
        "prio 1 protocol ip u32 ht 1: match tcp src 22 FFFF classid 1:2",
        "prio 1 protocol ip u32 ht 800: match ip protocol 6 FF match u16 0 1fff at 6 offset at 0 mask 0f00 shift 6 link 1:",
    ]);
    let plain = ethernet(0x800, &ipv4(6, 0, &ports(22, 9)));
    let mut long = ipv4(6, 0, &ports(9, 9));
    long[0] = 0x46;
    long.splice(20..20, [1, 1, 1, 1]);
    long[24..26].copy_from_slice(&22u16.to_be_bytes());
    assert_eq!(bench.class(&plain), Some(2));
    assert_eq!(bench.class(&ethernet(0x800, &long)), Some(2));
    assert_eq!(bench.class(&ethernet(0x800, &ipv4(6, 0, &ports(9, 22)))), None);
    assert_eq!(bench.class(&ethernet(0x800, &ipv4(17, 0, &ports(22, 9)))), None);
    // `eat` moves all offsets, and a rule that links may choose a class itself.
    let mut bench = Bench::with(&[
        "prio 1 handle 1: u32 divisor 1",
        "prio 1 u32 ht 1: match u16 22 0xffff at 0 match u16 9 0xffff at 2 flowid 1:2",
        "prio 1 u32 match u32 0 0 offset at 0 mask 0f00 shift 6 offset eat link 1: flowid 1:3",
        "prio 1 u32 match u32 0 0 flowid 1:4",
    ]);
    assert_eq!(bench.class(&plain), Some(2));
    assert_eq!(bench.class(&ethernet(0x800, &ipv4(6, 0, &ports(9, 22)))), Some(3));
    // Offsets beyond the packet's end leave the link out.
    let mut bench = Bench::with(&[
        "prio 1 handle 1: u32 divisor 1",
        "prio 1 u32 ht 1: match ip6 src any flowid 1:2",
        "prio 1 u32 match u32 0 0 offset plus 2000 eat link 1:",
        "prio 1 u32 match u32 0 0 flowid 1:4",
    ]);
    assert_eq!(bench.class(&plain), Some(4));
}

#[test]
fn a_search_ends_at_the_ninth_link() {
    let mut bench = Bench::new();
    for table in 1..10 {
        bench.add(&format!("prio 1 handle {table:x}: u32 divisor 1")).unwrap();
    }
    for table in 1..9 {
        let rule = format!("prio 1 u32 ht {table:x}: match u32 0 0 link {:x}:", table + 1);
        bench.add(&rule).unwrap();
    }
    bench.add("prio 1 u32 ht 8: match u32 0 0 flowid 1:8").unwrap();
    bench.add("prio 1 u32 match u32 0 0 link 2:").unwrap();
    bench.add("prio 1 u32 match u32 0 0 flowid 1:9").unwrap();
    assert_eq!(bench.class(&udp(1, 2)), Some(8), "eight links");
    bench.add("prio 1 handle 800::1 u32 match u32 0 0 link 1:").unwrap();
    assert_eq!(bench.class(&udp(1, 2)), None, "nine: the search is given up");
    // A loop is no different.
    let mut bench = Bench::with(&["prio 1 handle 1: u32 divisor 1", "prio 1 u32 match u32 0 0 link 1:"]);
    bench.add("prio 1 u32 ht 1: match u32 0 0 link 1:").unwrap();
    assert_eq!(bench.class(&udp(1, 2)), None);
}

proptest! {
    /// Rules in the buckets of their sample choose what the same rules in one list do.
    #[test]
    fn a_hash_changes_no_choice(
        rules in prop::collection::vec((0u8..4, 0u8..6, 1u16..30), 0..40),
        frames in prop::collection::vec(any_frame(), 1..20),
        mask in prop_oneof![Just(0xffu32), Just(0x0f00), Just(0xffff_ffff), Just(0x0000_1ff0)],
        divisor in 0u32..9,
    ) {
        let divisor = 1 << divisor;
        let (mut hashed, mut listed) = (Bench::new(), Bench::new());
        hashed.add(&format!("prio 1 handle 1: u32 divisor {divisor}")).unwrap();
        hashed.add(&format!("prio 1 u32 match u32 0 0 link 1: hashkey mask {mask:x} at 12")).unwrap();
        for (net, host, class) in rules {
            let word = u32::from_be_bytes([10, 0, net, host]);
            let rule = format!("match ip src 10.0.{net}.{host} flowid 1:{class:x}");
            hashed.add(&format!("prio 1 u32 ht 1: sample u32 {word:#x} {mask:#x} at 12 divisor {divisor} {rule}")).unwrap();
            listed.add(&format!("prio 1 u32 {rule}")).unwrap();
        }
        for frame in frames {
            prop_assert_eq!(hashed.class(&frame), listed.class(&frame));
        }
    }

    /// Commands in any order neither panic nor leave a table in use that no rule links to.
    #[test]
    fn tables_and_links_agree(script in prop::collection::vec((0u8..9, 1u8..5, 0u8..5, 0u16..5), 1..60)) {
        let mut bench = Bench::new();
        for (what, pref, table, node) in script {
            let _ = match what {
                0 => bench.add(&format!("pref {pref} handle {table}: u32 divisor 4")),
                1 => bench.add(&format!("pref {pref} u32 ht {table}:1: match u32 0 0 flowid 1:{pref} link {node}:")),
                2 => bench.add(&format!("pref {pref} u32 match u32 0 0 link {table}:")),
                3 => bench.set(&format!("pref {pref} handle {table}:1:800 u32 link {node}:"), Mode::Replace),
                4 => bench.delete(&format!("pref {pref} handle {table}: u32")),
                5 => bench.delete(&format!("pref {pref} handle {table}:1:80{node} u32")),
                6 => bench.delete(&format!("pref {pref} handle 80{table}::80{node} u32")),
                7 => bench.delete(&format!("pref {pref}")),
                _ => bench.add(&format!("pref {pref} u32 divisor 2")),
            };
            bench.class(&udp(1, 2));
            let u32 = &bench.filters.u32;
            let rules = || u32.all().flat_map(|(_, table)| &table.buckets).flat_map(|bucket| &bucket.rules);
            for (at, table) in u32.all() {
                let links = rules().filter(|(_, rule)| rule.link == Some(at)).count();
                prop_assert_eq!(links, table.links, "table {:x}", table.number);
            }
            prop_assert!(rules().all(|(_, rule)| rule.link.is_none_or(|at| u32.tables[at].is_some())));
        }
        // The commands that save the filters restore them.
        let (mut again, style) = (Bench::new(), crate::tc::Style { input: true, ..Default::default() });
        let saved = |bench: &Bench| -> Vec<_> {
            let lines = bench.filters.info(None, style).into_iter().filter(|info| info.options.is_some());
            let text = |info: &crate::generic::filter::FilterInfo| info.options.as_ref().map_or(String::new(), |o| o.text().to_owned());
            lines.map(|info| (info.pref, text(&info))).collect()
        };
        for (pref, text) in saved(&bench) {
            let (_, rest) = text.split_once("handle ").unwrap();
            let (handle, rest) = rest.split_once(' ').unwrap();
            // A table whose number a root has is restored under another one only.
            if let Err(error) = again.add(&format!("pref {pref} handle {handle} u32 {rest}")) {
                let taken = handle.starts_with("80") && error.message() == "Error: Filter already exists.";
                prop_assume!(!taken);
                prop_assert!(false, "{}: {}", text, error);
            }
        }
        // The tables of a pref that has gone and come again are older than its root.
        let sorted = |bench: &Bench| -> std::collections::BTreeSet<_> { saved(bench).into_iter().collect() };
        prop_assert_eq!(sorted(&again), sorted(&bench));
    }
}

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

/// Offsets below 0 reach the MAC addresses and the ethertype, as if a tag had been taken out of the frame; so do `cmp`, `nbyte` and
/// `u32` of `basic`.
#[test]
fn tags_do_not_move_the_mac_addresses() {
    let with = |tags: &[u8]| {
        let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1];
        frame.extend(tags);
        frame.extend([8, 0]);
        frame.extend(ipv4(17, 0, &ports(7, 8)));
        frame
    };
    let frames = [with(&[]), with(&[0x81, 0, 0, 5]), with(&[0x88, 0xa8, 0, 3, 0x81, 0, 0, 5])];
    for filter in [
        "u32 match u32 0x02000000 0xffffffff at -8 match u16 0x0001 0xffff at -4 classid 1:1",
        "u32 match ether src 02:00:00:00:00:01 classid 1:1",
        "u32 match ether dst 02:00:00:00:00:09 match u16 0x0800 0xffff at -2 classid 1:1",
        "u32 match u32 0x00010800 0xffffffff at -4 match ip dport 8 0xffff classid 1:1",
        "basic match u32(u32 0x00010800 0xffffffff at -4) classid 1:1",
        "basic match cmp(u8 at 11 layer link eq 1) and cmp(u16 at 12 layer link eq 2048) classid 1:1",
        "basic match nbyte(\"\\x01\\x08\\x00\" at 11 layer link) classid 1:1",
        "basic match cmp(u16 at 2 layer transport eq 8) classid 1:1",
    ] {
        let mut bench = Bench::with(&[filter]);
        for frame in &frames {
            assert_eq!(bench.class(frame), Some(1), "{filter}: {frame:?}");
        }
        let mut other = frames[1].clone();
        (other[5], other[11], *other.last_mut().unwrap()) = (3, 3, 3);
        other[39..42].fill(3);
        assert_eq!(bench.class(&other), None, "{filter}");
    }
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
    let text = crate::generic::filter::filters_text(&bench.filters.info(None, raw), false);
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
        ("pref 1 handle ::800 u32 match u32 0 0", "RTNETLINK answers: No space left on device"),
        ("pref 1 handle 5: u32", "Error: cls_u32: Filter handle requires options."),
        ("pref 1 u32 divisor 3", "Illegal \"divisor\""),
        ("pref 1 u32 divisor 512", "Illegal \"divisor\""),
        ("pref 1 handle 5::2 u32 divisor 8", "Error: cls_u32: Divisor can only be used on a hash table."),
        ("pref 1 handle 800: u32 divisor 8", "Error: Filter already exists."),
        ("pref 1 u32 ht 77: match u32 0 0", "Error: cls_u32: Specified hash table not found."),
        ("pref 1 u32 sample u32 1 1 at 4 match u32 0 0", "Error: cls_u32: Specified hash table not found."),
        (
            "pref 1 u32 ht 800:7: match u32 0 0",
            "Error: cls_u32: Specified hash table buckets exceed configured value.",
        ),
        ("pref 1 u32 ht zz match u32 0 0", "Illegal \"ht\""),
        ("pref 1 u32 ht 5 match u32 0 0", "Illegal \"ht\""),
        ("pref 1 handle ::7 u32 order 8 match u32 0 0", "\"order\" contradicts \"handle\""),
        ("pref 1 u32 order x match u32 0 0", "Illegal \"order\""),
        ("pref 1 u32 link 77: match u32 0 0", "Error: cls_u32: Link hash table not found."),
        ("pref 1 u32 link 801:1: match u32 0 0", "Error: cls_u32: u32 Link handle must be a hash table."),
        ("pref 1 u32 link 801:1:2 match u32 0 0", "\"link\" must be a hash table."),
        ("pref 1 u32 link 800: match u32 0 0", "Error: cls_u32: Not linking to root node."),
        ("pref 1 u32 link 800:", "Error: cls_u32: Selector not specified."),
        ("pref 1 u32 hashkey mask zz at 12", "Illegal \"hashkey\""),
        ("pref 1 u32 hashkey mask f at 11", "Illegal \"hashkey\""),
        ("pref 1 u32 hashkey foo", "What is \"foo\"?"),
        ("pref 1 u32 offset foo", "What is \"foo\"?"),
        ("pref 1 u32 offset at 1", "offset \"at\" must be even\nIllegal \"offset\""),
        ("pref 1 u32 offset at 2 mask fffff", "Illegal \"offset\""),
        ("pref 1 u32 sample u32 1 1 at 3", "Illegal \"sample\""),
        ("pref 1 u32 sample ip6 src ::1", "\"sample\" must contain exactly ONE key."),
        ("pref 1 u32 sample ip src 1.2.3.4 divisor 3", "Illegal sample \"divisor\""),
    ] {
        assert_eq!(bench.message(text), message, "{text}");
    }
    bench.add("pref 1 handle 2: u32 divisor 4").unwrap();
    bench.add("pref 1 u32 match u32 0 0 link 2:").unwrap();
    for (text, message) in [
        ("pref 1 handle 800: u32", "Error: cls_u32: Not allowed to delete root node."),
        ("pref 1 handle 2: u32", "Error: cls_u32: Can not delete in-use filter."),
        ("pref 1 handle 2:1: u32", "Error: Specified filter handle not found."),
    ] {
        assert_eq!(bench.delete(text).unwrap_err().message(), message, "del {text}");
    }
    let error = bench.set("pref 1 handle 2: u32 divisor 8", Mode::Replace).unwrap_err();
    assert_eq!(error.message(), "Error: cls_u32: Key node id cannot be zero.");
    bench.delete("pref 1 handle 800::801 u32").unwrap();
    bench.delete("pref 1 handle 2: u32").unwrap();
    // The keys stay.
    bench.set("pref 1 handle 800::800 u32 match ip src 1.2.3.4 flowid 1:8", Mode::Change).unwrap();
    assert_eq!(bench.class(&udp(1, 2)), Some(8));
}

/// No two tables share a number: a command that names one could mean the other.
#[test]
fn more_prefs_than_numbers_are_refused() {
    let mut bench = Bench::with(&[]);
    for pref in 1..=2047 {
        bench.add(&format!("prio {pref} protocol ip u32 match u32 0 0 flowid 1:1")).unwrap();
    }
    for command in ["prio 3000 protocol ip u32 match u32 0 0 flowid 1:1", "prio 5 protocol ip u32 divisor 4"]
    {
        let error = bench.add(command).unwrap_err();
        assert!(error.message().contains("Cannot allocate memory"), "{command}: {error}");
    }
    // A number that is free again is the next one.
    bench.delete("pref 7 u32").unwrap();
    bench.add("prio 3000 protocol ip u32 match u32 0 0 flowid 1:1").unwrap();
}
