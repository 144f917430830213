//! The errors and the output of tc 6.1, as observed.

use super::*;

#[test]
fn shows_its_options_as_tc() {
    for (text, shown) in [
        ("", "limit 1000"),
        ("delay 10ms", "limit 1000 delay 10ms"),
        ("limit 5 delay 10ms 2ms 25%", "limit 5 delay 10ms  2ms 25%"),
        ("delay 10ms 2ms distribution normal", "limit 1000 delay 10ms  2ms"),
        ("delay 1ms 0 5%", "limit 1000 delay 1ms"),
        ("delay 1500ms", "limit 1000 delay 1.5s"),
        ("loss random 0.3% 25%", "limit 1000 loss 0.3% 25%"),
        ("drop 5", "limit 1000 loss 5%"),
        ("loss 0.00001%", "limit 1000 loss 9.98843e-06%"),
        ("delay 800ns 50nsec", "limit 1000 delay 800ns  50ns"),
        ("delay 1500ns", "limit 1000 delay 1.5us"),
        ("loss state 1%", "limit 1000 loss state p13 1% p31 99% p32 0% p23 100% p14 0%"),
        ("loss state 1% 2% 3% 4% 5%", "limit 1000 loss state p13 1% p31 2% p32 3% p23 4% p14 5%"),
        ("loss gemodel 1%", "limit 1000 loss gemodel p 1% r 99% 1-h 100% 1-k 0%"),
        ("loss gemodel 1% 10% 70% 0.1%", "limit 1000 loss gemodel p 1% r 10% 1-h 70% 1-k 0.1%"),
        ("loss 1% ecn", "limit 1000 loss 1% ecn "),
        ("delay 1ms reorder 25% 50%", "limit 1000 delay 1ms reorder 25% 50% gap 1"),
        ("rate 1mbit -20 53 5", "limit 1000 rate 1Mbit packetoverhead -20 cellsize 53 celloverhead 5"),
        ("slot 800us", "limit 1000 slot 800us 800us"),
        ("slot 1ms 5ms packets 42 bytes 64k", "limit 1000 slot 1ms 5ms packets 42 bytes 65536"),
        ("slot distribution normal 1ms 2ms", "limit 1000 slot distribution 1ms 2ms"),
        ("corrupt 0.1% 3%", "limit 1000 corrupt 0.1% 3%"),
        (
            "delay 1ms 2ms reorder 5% gap 3 rate 1mbit slot 1ms 2ms ecn loss 1%",
            "limit 1000 delay 1ms  2ms loss 1% reorder 5% rate 1Mbit slot 1ms 2ms ecn  gap 3",
        ),
        ("limit 0x10", "limit 16"),
        ("duplicate 0%", "limit 1000"),
        ("seed 5", "limit 1000 seed 5"),
    ] {
        let qdisc = try_build(&format!("netem {text}")).expect(text);
        assert_eq!(qdisc.options(Style::default()).text(), shown, "{text}");
    }
}

#[test]
fn shows_json_as_tc() {
    for (text, shown) in [
        ("", r#"{"limit":1000,"ecn":false,"gap":0}"#),
        (
            "delay 10ms 2ms 25%",
            r#"{"limit":1000,"delay":{"delay":0.01,"jitter":0.002,"correlation":0.25},"ecn":false,"gap":0}"#,
        ),
        ("loss 1%", r#"{"limit":1000,"loss-random":{"loss":0.01,"correlation":0},"ecn":false,"gap":0}"#),
        (
            "loss gemodel 1% 10% 70% 0.1%",
            r#"{"limit":1000,"loss-gemodel":{"p":0.01,"r":0.1,"1-h":0.7,"1-k":0.001},"ecn":false,"gap":0}"#,
        ),
        (
            "loss state 1%",
            r#"{"limit":1000,"loss-state":{"p13":0.01,"p31":0.99,"p32":0,"p23":1,"p14":0},"ecn":false,"gap":0}"#,
        ),
        (
            "rate 1mbit -20 53 5 ecn loss 5%",
            concat!(
                r#"{"limit":1000,"loss-random":{"loss":0.05,"correlation":0},"rate":{"rate":125000,"#,
                r#""packetoverhead":-20,"cellsize":53,"celloverhead":5},"ecn":true,"gap":0}"#
            ),
        ),
        (
            "slot distribution normal 1ms 2ms",
            concat!(
                r#"{"limit":1000,"slot":{"distribution":0.001,"jitter":0.002,"packets":0,"bytes":0},"#,
                r#""ecn":false,"gap":0}"#
            ),
        ),
    ] {
        let qdisc = try_build(&format!("netem {text}")).expect(text);
        assert_eq!(qdisc.options(Style::default()).json().to_string(), shown, "{text}");
    }
}

#[test]
fn counters_are_those_of_the_latest_kernels() {
    let text = "  delayed 0 dropped 0 corrupted 0 duplicated 0 reordered 0 ecn_marked 0";
    let netem = Bench::new("netem");
    let details = Style { details: true, ..Style::default() };
    assert_eq!(netem.qdisc.xstats(details).unwrap().text(), text);
    assert!(netem.qdisc.xstats(Style::default()).is_none(), "tc 6.1 prints none");
}

#[test]
fn errors_are_tcs() {
    const INCOMPLETE: &str = "Command line is not complete. Try option \"help\"";
    for (text, message) in [
        ("foo", "What is \"foo\"?"),
        ("gap 5 delay 1ms", "gap specified without reorder probability"),
        ("reorder 25%", "reordering not possible without specifying some delay"),
        ("ecn", "ecn requested without loss model"),
        ("distribution normal", "distribution specified but no latency and jitter values"),
        ("delay 1ms distribution normal", "distribution specified but no latency and jitter values"),
        ("limit x", "Illegal \"limit\""),
        ("delay", INCOMPLETE),
        ("delay 1ms 2x", "Illegal \"latency\""),
        ("delay 1ms 2ms 200%", "Illegal \"latency\""),
        ("loss", INCOMPLETE),
        ("loss state", INCOMPLETE),
        ("loss foo", "Unknown loss parameter: foo"),
        ("loss -1%", "Unknown loss parameter: -1%"),
        ("loss 101%", "Illegal \"loss percent\""),
        ("loss 1%%", "Illegal \"loss percent\""),
        ("loss 1% 200%", "Illegal \"loss correlation\""),
        ("loss 10% 20% 30%", "What is \"30%\"?"),
        ("loss 1% loss 2%", "Illegal \"duplicate loss argument\""),
        ("loss state x", "Illegal \"loss p13\""),
        ("loss state 1% 2% 3% 4% 300%", "Illegal \"loss p14\""),
        ("loss gemodel 1% 2% 300%", "Illegal \"loss gemodel h\""),
        ("corrupt 1% x", "What is \"x\"?"),
        ("rate 1x", "Illegal \"rate\""),
        ("rate 1mbit 5 5x", "Illegal \"rate\""),
        ("rate 1mbit foo", "What is \"foo\"?"),
        ("slot x", "Unknown slot parameter: x"),
        ("slot 5ms 1ms", "Illegal \"slot max_delay\""),
        ("slot 1ms packets x", "Illegal \"slot packets\""),
        ("slot distribution normal 1ms", INCOMPLETE),
        ("slot distribution normal x 1ms", "Illegal \"slot delay\""),
        ("duplicate", INCOMPLETE),
        ("duplicate x", "Illegal \"duplicate\""),
        ("duplicate 1% 101%", "Illegal \"duplicate\""),
    ] {
        assert_eq!(try_build(&format!("netem {text}")).err().expect(text).message(), message, "{text}");
    }
}

#[test]
fn whatever_is_said_is_answered() {
    proptest!(|(words in prop::collection::vec("[a-z0-9.%-]{1,8}|delay|loss|state|slot|rate|18446744073709551615|1e300", 0..8))| {
        let _ = try_build(&format!("netem {}", words.join(" ")));
    });
}
