//! Units, handles and error texts compared with the real tc: tc reads the same text, and prints what it understood or what
//! is wrong.

use crate::netns::{DEV, Netns};
use serde_json::Value;
use txq::tc::{Handle, Header, Micros, Options, ParseError, Rate, Size, Style, Syntax, Wording, Words};

#[test]
fn units_are_those_of_tc() {
    let Some(netns) = Netns::new("units") else { return };

    for text in [
        "0",
        "1023",
        "1024",
        "1039",
        "1040",
        "2033",
        "1048575",
        "1049599",
        "1049600",
        "1572848",
        "4294967295",
        "10k",
        "1.5kb",
        "3g",
        "8kbit",
        "1mbit",
        "0x1f",
        "1e3",
        ".5k",
        "1.1k",
        "0.3m",
        "4194303k",
        "7.7gbit",
        "010",
    ] {
        let size: Size = text.parse().unwrap();
        let mut ours = Options::new(Style::default());
        ours.size("limit", size);
        if netns.replace(&["root", "handle", "1:", "bfifo", "limit", text]) {
            compare(&netns, &ours, text);
        }
    }

    netns.delete();
    for iec in [false, true] {
        for text in [
            "8",
            "1000",
            "8191",
            "8192",
            "999999",
            "1kbit",
            "1.1kbit",
            "8.9kbit",
            "550kbit",
            "1023kibit",
            "10.3mbit",
            "33.3mbit",
            "1001mbit",
            "1gibit",
            "1.7gbit",
            "2tbit",
            "1tibps",
            "0.1mbps",
            "17.5gibps",
            "1e6",
            "0x8000",
        ] {
            let rate: Rate = text.parse().unwrap();
            if !netns.replace(&["root", "handle", "1:", "tbf", "rate", text, "burst", "10k", "limit", "10k"])
            {
                return;
            }
            let flag = if iec { &["-iec"][..] } else { &[] };
            let shown = netns.tc(&[flag, &["qdisc", "show", "dev", DEV]].concat());
            let rate_text = if iec { rate.iec().to_string() } else { rate.to_string() };
            assert!(shown.contains(&format!(" rate {rate_text} ")), "{text}: ours {rate_text}, tc: {shown}");
            assert_eq!(parameter(&netns, "rate"), rate.0, "{text}");
        }
    }

    // At one byte per microsecond tc prints the latency that it read, up to a clock tick at the ends.
    for text in
        ["5", "999us", "1.5ms", "10050", "10250", "2.225ms", "2.235ms", "123456us", "1.23456s", "1234s"]
    {
        netns.delete();
        netns.replace(&["root", "tbf", "rate", "8mbit", "burst", "1000b", "latency", text]);
        let micros: Micros = text.parse().unwrap();
        assert_eq!(parameter(&netns, "lat"), u64::from(micros.0), "{text}");
        let shown = netns.tc(&["qdisc", "show", "dev", DEV]);
        assert!(shown.contains(&format!(" lat {micros} ")), "{text}: ours {micros}, tc: {shown}");
    }
}

/// Compares the end of tc's text and its `options` with the attached qdisc's parameters.
fn compare(netns: &Netns, ours: &Options, text: &str) {
    let shown = netns.tc(&["qdisc", "show", "dev", DEV]);
    assert!(shown.ends_with(&format!(" {}\n", ours.text())), "{text}: ours {}, tc: {shown}", ours.text());
    assert_eq!(parameters(netns), ours.json(), "{text}");
}

fn parameters(netns: &Netns) -> Value {
    let json: Value = serde_json::from_str(&netns.tc(&["-j", "qdisc", "show", "dev", DEV])).unwrap();
    json[0]["options"].clone()
}

fn parameter(netns: &Netns, key: &str) -> u64 {
    parameters(netns)[key].as_u64().unwrap()
}

static PFIFO: Syntax =
    Syntax { kind: "pfifo", words: &["limit"], usage: "Usage: ... pfifo", wording: Wording::Named };
static TBF: Syntax =
    Syntax { kind: "tbf", words: &["rate", "limit"], usage: "Usage: ... tbf", wording: Wording::NamedLower };
static FQ: Syntax =
    Syntax { kind: "fq", words: &["limit", "quantum"], usage: "Usage: ... fq", wording: Wording::Plain };
static PFIFO_FAST: Syntax =
    Syntax { kind: "pfifo_fast", words: &[], usage: "Usage: ... pfifo_fast", wording: Wording::NoOptions };
static MQ: Syntax = Syntax { kind: "mq", words: &[], usage: "Usage: ... mq", wording: Wording::Unparsable };

/// Parses a text as far as these tests need.
fn read(text: &str) -> Result<(), ParseError> {
    let mut words = Words::split(text);
    let header = Header::parse(&mut words)?;
    let kind = header.kind.expect("the texts have a kind");
    let syntax = [&PFIFO, &TBF, &FQ, &PFIFO_FAST, &MQ].into_iter().find(|syntax| syntax.kind == kind);
    let Some(syntax) = syntax else {
        return Err(ParseError::unknown_kind(kind, words.peek(), &["pfifo", "tbf"]));
    };
    let mut options = words.options(syntax);
    while let Some(word) = options.next_word() {
        match (kind, word) {
            ("fq", "limit" | "quantum") => drop(options.value_u32(word)?),
            ("pfifo" | "tbf", "limit") => drop(options.value_size(word)?),
            ("tbf", "rate") => drop(options.value_rate(word)?),
            ("tbf", "latency") => drop(options.value_micros(word)?),
            _ => return Err(options.unknown(word)),
        }
    }
    Ok(())
}

#[test]
fn errors_begin_with_those_of_tc() {
    let Some(netns) = Netns::new("errors") else { return };
    for text in [
        "root pfifo limit abc",
        "root pfifo limit -1",
        "root pfifo limit 4294967296",
        "root pfifo limit 9p",
        "root pfifo limit",
        "root pfifo limit 10 foo",
        "root pfifo handle 1:",
        "root pfifo_fast limit 10",
        "root mq foo",
        "root nosuch limit 10",
        "root tbf rate 10m",
        "root tbf latency 1ns",
        "root tbf rate",
        "root tbf foo",
        "root fq limit 10k",
        "root fq limit 09",
        "root fq quantum 4294967296",
        "root fq bogus",
        "root root pfifo",
        "parent 1:1 root pfifo",
        "root parent 1: pfifo",
        "root handle 1: handle 2: pfifo",
        "root handle 10000: pfifo",
        "root handle 1x pfifo",
        "root handle root pfifo",
        "root handle : pfifo",
        "parent 1:10000 pfifo",
        "parent 1:2:3 pfifo",
        "parent :: pfifo",
        "parent zz pfifo",
        "dev Y root pfifo",
        "root handle",
    ] {
        let args: Vec<&str> = ["qdisc", "replace", "dev", DEV].into_iter().chain(text.split(' ')).collect();
        let output = netns.run("tc", &args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let ours = read(&format!("dev {DEV} {text}")).expect_err(text);
        assert_eq!(Some(ours.message()), stderr.lines().next(), "{text}");
    }
}

#[test]
fn handles_are_those_of_tc() {
    let Some(netns) = Netns::new("handles") else { return };
    for text in ["1", "1:", "1:5", "1:zz", "0x10:", "FFFE:", "+a:"] {
        netns.delete();
        netns.replace(&["root", "handle", text, "pfifo"]);
        let shown = netns.tc(&["qdisc", "show", "dev", DEV]);
        let handle = Handle::parse_qdisc(text).unwrap();
        assert!(
            shown.starts_with(&format!("qdisc pfifo {handle} root ")),
            "{text}: ours {handle}, tc: {shown}"
        );
    }
}
