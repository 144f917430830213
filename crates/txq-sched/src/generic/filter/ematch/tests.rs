use proptest::prelude::*;

use crate::generic::filter::tests::{Bench, any_frame, ethernet, ipv4, ports, udp};
use crate::generic::filter::{Mode, Request};
use crate::tc::Style;

fn matches(expr: &str, frame: &[u8]) -> bool {
    let mut bench = Bench::with(&[&format!("pref 1 basic match {expr} classid 1:1")]);
    bench.class(frame).is_some()
}

/// UDP from 10.0.0.1:7 to 10.0.0.2:8, with DSCP 4.
fn frame() -> Vec<u8> {
    ethernet(0x800, &ipv4(17, 0x10, &ports(7, 8)))
}

#[test]
fn matches_find_what_the_packet_has() {
    for (expr, expected) in [
        ("cmp(u8 at 9 layer 1 eq 17)", true),
        ("cmp(u8 at 9 eq 6)", false),
        ("cmp(u16 at 12 layer link eq 0x800)", true),
        ("cmp(u16 at 12 layer 0 trans eq 8)", true),
        ("cmp(u16 at 0 layer transport eq 7)", true),
        ("cmp(u16 at 2 layer 2 gt 7)", true),
        ("cmp(u16 at 2 layer 2 lt 8)", false),
        ("cmp(u32 at 12 mask 0xff000000 eq 0x0a000000)", true),
        ("cmp(u8 at 2000 eq 0)", false),
        ("cmp(u8 at 65535 gt 0)", false),
        ("u32(u32 0x0a000001 0xffffffff at 12)", true),
        ("u32(u16 7 0xffff at nexthdr+20)", true),
        ("u32(u16 7 0xffff at nexthdr+ 20)", true),
        ("u32(u8 0x10 0xfc at 1)", true),
        ("u32(u8 0x20 0xfc at 1)", false),
        ("nbyte(\"\\x0a\\x00\\0\\001\" at 12)", true),
        ("nbyte(\"\\x0a\\x01\" at 12 layer network)", false),
        ("nbyte(\"E\\020\" at 0)", true),
        ("nbyte(E at 0)", true),
        ("meta(pkt_len eq 54)", true),
        ("meta(mac_len eq 14)", true),
        ("meta(protocol eq 8)", true),
        ("meta(vlan eq 0)", false),
        ("meta(nf_mark eq priority)", true),
        ("meta(fwmark shift 4 mask 0xf eq 0)", true),
        ("meta(7 gt pkt_len)", false),
        ("meta(data_len eq 0)", true),
    ] {
        assert_eq!(matches(expr, &frame()), expected, "{expr}");
        assert_eq!(matches(&format!("not {expr}"), &frame()), !expected, "not {expr}");
    }
    let tagged = ethernet(0x8100, &[&[0x20, 5, 8, 0], &ipv4(17, 0, &ports(7, 8))[..]].concat());
    assert!(matches("meta(vlan mask 0xfff eq 5)", &tagged));
    let mut bench = Bench::with(&["pref 1 basic match meta(random mask 1 eq 1) classid 1:1"]);
    let drawn = (0..1000).filter(|_| bench.class(&frame()).is_some()).count();
    assert!((400..600).contains(&drawn), "{drawn} of 1000");
}

/// What a list of matches gives for each of their values is `a op (b op (c ..))`.
#[test]
fn lists_are_read_from_the_right() {
    let of = |value: bool| if value { "cmp(u8 at 9 eq 17)" } else { "cmp(u8 at 9 eq 6)" };
    for bits in 0..64 {
        let [a, b, c, and1, and2, not] = std::array::from_fn(|at| bits >> at & 1 == 1);
        let op = |and: bool, left: bool, right: bool| if and { left && right } else { left || right };
        let word = |and: bool| if and { "and" } else { "or" };
        let negated = if not { "not " } else { "" };
        let list = format!("{} {} {negated}{} {} {}", of(a), word(and1), of(b), word(and2), of(c));
        assert_eq!(matches(&list, &frame()), op(and1, a, op(and2, b != not, c)), "{list}");
        let group = format!("( {} {} {} ) {} {negated}( {} )", of(a), word(and1), of(b), word(and2), of(c));
        assert_eq!(matches(&group, &frame()), op(and2, op(and1, a, b), c != not), "{group}");
    }
}

#[test]
fn words_may_be_split_anywhere() {
    for expr in [
        "cmp(u8 at 9 eq 17)and(cmp(u8 at 0 eq 69))",
        "cmp ( u8 at 9 eq 17 ) AND ( cmp ( u8 at 0 eq 69 ) )",
        "not(not cmp(u8 at 9 eq 17)or cmp(u8 at 0 eq 5))",
    ] {
        assert!(matches(expr, &frame()), "{expr}");
    }
}

/// The texts are those of tc 6.1 with Linux 6.1.
#[test]
fn text_is_that_of_tc() {
    let bench = Bench::with(&[
        "prio 2 basic match cmp(u8 at 9 layer 1 eq 6) flowid 1:1",
        "prio 2 basic match cmp(u32 at 12 layer network trans lt 20) classid 1:2",
        "prio 2 basic match cmp(u8 at 0 layer link eq 0x45) or not cmp(u8 at 0 layer transport gt 5) classid 1:2",
        "prio 2 basic match cmp(u8 at 0 layer link eq 0x45) and ( u32(u16 0x1122 0xffff at nexthdr+4) or \
         nbyte(\"ababa\" at 12 layer 1) ) classid 1:2",
        "prio 2 basic match not ( u32(u16 0x1122 0xffff at nexthdr+4) or u32(u8 0x11 0xff at 1) ) classid 1:2",
        "prio 2 basic match nbyte(\"ab\\x01\\n\" at 12 layer 1) classid 1:2",
        "prio 3 handle 7 basic match meta(priority eq 6) flowid 1:3",
        "prio 3 basic match meta(nf_mark mask 0xff shift 3 gt priority mask 7) flowid 1:3",
        "prio 3 basic match ( cmp(u8 at 0 eq 1) or ( cmp(u8 at 0 eq 2) and not cmp(u8 at 1 eq 7) ) ) and \
         cmp(u8 at 0 eq 3) flowid 1:1",
        "prio 3 basic match ( ( cmp(u8 at 0 eq 1) ) ) or ( cmp(u8 at 0 eq 2) ) flowid 1:1",
        "prio 5 basic match cmp(u8 at 0 eq 5) action drop",
        "prio 5 basic match cmp(u8 at 0 eq 5) police rate 1mbit burst 10k drop flowid 1:1",
        "prio 6 basic flowid 1:1",
    ]);
    assert_eq!(bench.text(), include_str!("basic.txt"));
}

#[test]
fn messages_are_those_of_tc() {
    let mut bench = Bench::new();
    let end = "Command line is not complete. Try option \"help\"";
    for (text, message) in [
        ("match", end),
        ("match cmp(u8 at 0 eq 5", "Parse error: syntax error"),
        ("match and flowid 1:3", "Parse error: syntax error"),
        ("match cmp(u8 at 0 eq 5) and flowid 1:3", "Parse error: syntax error"),
        ("match cmp() flowid 1:1", "Parse error: syntax error"),
        ("match ) flowid 1:1", "Parse error: syntax error"),
        ("match ( ) flowid 1:1", "Parse error: syntax error"),
        ("match not not cmp(u8 at 0 eq 1) flowid 1:1", "Parse error: syntax error"),
        ("match zzz(1) flowid 1:3", "Unknown ematch \"zzz\""),
        ("match cmp(u9 at 0 eq 5)", "cmp: invalid alignment|... cmp(>>u9<< at 0 eq 5)..."),
        ("match cmp(u8 at x eq 5)", "cmp: invalid offset, must be numeric|... cmp(u8 at >>x<< eq 5)..."),
        ("match cmp(u8 at 0 foo 5)", "nbyte: unknown parameter|... cmp(u8 at 0 >>foo<< 5)..."),
        ("match cmp(u8 at 0 eq)", "cmp: missing argument|... cmp(u8 at 0 >>eq<<)..."),
        ("match cmp(u8 at 0)", "cmp: offset and value required|... cmp(u8 at 0)..."),
        (
            "match cmp(u8 at 0 layer 7 eq 5)",
            "cmp: illegal layer, must be in 0..2|... cmp(u8 at 0 layer >>7<< eq 5)...",
        ),
        ("match cmp(u8 at 0 eq zz)", "cmp: invalid value|... cmp(u8 at 0 eq >>zz<<)..."),
        ("match meta(zzz eq 5)", "meta: unknown meta id|... meta(>>zzz<< eq 5)..."),
        ("match meta(nf_mark foo 5)", "meta: invalid operand|... meta(nf_mark >>foo<< 5)..."),
        ("match meta(nf_mark eq)", "meta: missing rvalue|... meta(>>nf_mark<< eq)..."),
        ("match meta(nf_mark)", "meta: missing operand|... meta(>>nf_mark<<)..."),
        (
            "match meta(nf_mark shift x eq 5)",
            "meta: invalid shift, must be numeric|... meta(nf_mark shift >>x<< eq 5)...",
        ),
        ("match meta(nf_mark eq 5 6)", "meta: unexpected trailer|... meta(nf_mark eq 5 >>6<<)..."),
        (
            "match u32(u16 zz 0xffff at 4)",
            "u32: invalid key, must be numeric|... u32(u16 >>zz<< 0xffff at 4)...",
        ),
        ("match u32(u64 1 0xffff at 3)", "u32: invalid alignment|... u32(>>u64<< 1 0xffff at 3)..."),
        ("match u32(u16 1 0xffff)", "u32: missing \"at\"|... u32(u16 1 0xffff)..."),
        ("match u32(u16)", "u32: missing key|... u32(u16)..."),
        (
            "match u32(u16 0x12345 0xffff at 4)",
            "Illegal key (>0xFFFF)|... u32(u16 0x12345 0xffff at >>4<<)...",
        ),
        ("match nbyte(abc)", "nbyte: offset required|... nbyte(abc)..."),
        ("match nbyte(abc at x)", "nbyte: invalid offset, must be numeric|... nbyte(abc at >>x<<)..."),
        ("match nbyte(abc foo 2)", "nbyte: unknown parameter|... nbyte(abc >>foo<< 2)..."),
        ("foo", "What is \"foo\"?"),
        ("flowid zz", "Illegal \"classid\""),
    ] {
        let told = bench.message(&format!("pref 1 basic {text}"));
        let lines: Vec<_> = told.lines().filter(|line| *line != "Illegal \"ematch\"").collect();
        assert_eq!(lines.join("|"), message, "{text}");
    }
    assert_eq!(bench.message("pref 1 basic"), "RTNETLINK answers: Invalid argument");
    bench.add("pref 1 handle 7 basic match cmp(u8 at 9 eq 17) flowid 1:1").unwrap();
    assert_eq!(bench.message("pref 1 handle 7 basic flowid 1:1"), "Error: Filter already exists.");
    // A change replaces all, and the latest rule is tried first.
    bench.set("pref 1 handle 7 basic flowid 1:2", Mode::Change).unwrap();
    assert_eq!(bench.class(&ethernet(0x806, &[0; 30])), Some(2));
    bench.add("pref 1 basic flowid 1:3").unwrap();
    assert_eq!(bench.class(&udp(1, 2)), Some(3));
    bench.delete("pref 1 handle 1 basic").unwrap();
    assert_eq!(bench.class(&udp(1, 2)), Some(2));
    let open = format!("pref 2 basic match {} cmp(u8 at 0 eq 1) {}", "( ".repeat(33), ") ".repeat(33));
    assert_eq!(bench.message(&open), "RTNETLINK answers: Invalid argument");
}

/// Expressions with groups inside groups.
fn any_expr() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (0u16..40, 0u8..3, 0u32..30)
            .prop_map(|(at, layer, value)| format!("cmp(u8 at {at} layer {layer} gt {value})")),
        (-14i32..40, 0u32..9, 0u32..9)
            .prop_map(|(at, value, mask)| format!("u32(u8 {value} {mask} at {at})")),
        (0u16..30, any::<[u8; 2]>()).prop_map(|(at, [a, b])| format!("nbyte(\"\\x{a:x}\\x{b:x}\" at {at})")),
        (0u32..90).prop_map(|len| format!("meta(pkt_len lt {len})")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let item =
            (prop_oneof![Just(""), Just("not ")], inner).prop_map(|(not, expr)| format!("{not}( {expr} )"));
        let op = prop_oneof![Just(" and "), Just(" or ")];
        (item.clone(), prop::collection::vec((op, item), 0..3))
            .prop_map(|(first, rest)| rest.into_iter().fold(first, |all, (op, item)| all + op + &item))
    })
}

proptest! {
    /// What restores a rule matches the same packets and is shown alike.
    #[test]
    fn text_restores_rules(expr in any_expr(), frames in prop::collection::vec(any_frame(), 1..8)) {
        let mut bench = Bench::with(&[&format!("pref 1 basic match {expr} flowid 1:1")]);
        let info = bench.filters.info(None, Style { input: true, ..Style::default() }).remove(1);
        let text = info.options.unwrap().text().to_owned();
        let (_, words) = text.split_once("handle 0x1").unwrap();
        let mut again = Bench::with(&[&format!("pref 1 handle 1 basic {words}")]);
        prop_assert_eq!(again.text(), bench.text());
        for frame in frames {
            prop_assert_eq!(again.class(&frame), bench.class(&frame), "{}", words);
        }
    }

    #[test]
    fn no_expression_panics(words in prop::collection::vec(prop_oneof![
        Just("("), Just(")"), Just("not"), Just("and"), Just("or"), Just("cmp("), Just("u32("), Just("nbyte("), Just("meta("),
        Just("u8"), Just("u32"), Just("at"), Just("0"), Just("0xffffffff"), Just("nexthdr+"), Just("-4"), Just("layer"),
        Just("2"), Just("eq"), Just("\"a"), Just("b\\"), Just("\\x"), Just("\""), Just("priority"), Just("shift"), Just("99"),
        Just("ä(")
    ], 1..20)) {
        let _ = Request::parse(&format!("pref 1 basic match {}", words.join(" ")));
        let _ = Request::parse(&format!("pref 1 basic match {}", words.concat()));
    }
}
