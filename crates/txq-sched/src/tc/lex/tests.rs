//! tc 6.1 printed every expected message.

use super::*;

static PFIFO: Syntax = Syntax {
    kind: "pfifo",
    words: &["limit"],
    usage: "Usage: ... pfifo [ limit PACKETS ]",
    wording: Wording::Named,
};
static TBF: Syntax = Syntax {
    kind: "tbf",
    words: &["rate", "burst", "limit", "latency"],
    usage: "Usage: ... tbf rate RATE burst BYTES { limit BYTES | latency TIME }",
    wording: Wording::NamedLower,
};
static FQ: Syntax = Syntax {
    kind: "fq",
    words: &["limit", "flow_limit", "quantum"],
    usage: "Usage: ... fq [ limit PACKETS ]",
    wording: Wording::Plain,
};
static PFIFO_FAST: Syntax =
    Syntax { kind: "pfifo_fast", words: &[], usage: "Usage: ... pfifo_fast", wording: Wording::NoOptions };
static MQ: Syntax = Syntax { kind: "mq", words: &[], usage: "Usage: ... mq", wording: Wording::Unparsable };

fn message(syntax: &'static Syntax, args: &[&str]) -> String {
    let mut words = Words::from_args(args);
    let mut options = words.options(syntax);
    let Some(word) = options.next_word() else { panic!("no option") };
    let error = match word {
        "limit" if syntax.kind == "fq" => options.value_u32("limit").map(|_| ()),
        "limit" | "burst" => options.value_size(word).map(|_| ()),
        "rate" => options.value_rate("rate").map(|_| ()),
        "latency" => options.value_micros("latency").map(|_| ()),
        "r2q" => options.value_decimal("r2q").map(|_| ()),
        other => Err(options.unknown(other)),
    };
    error.expect_err("an error").message().to_owned()
}

#[test]
fn messages_are_those_of_tc() {
    for (syntax, args, text) in [
        (&PFIFO, &["limit", "abc"][..], "pfifo: Illegal value for \"limit\": \"abc\""),
        (&PFIFO, &["limit", "-1"], "pfifo: Illegal value for \"limit\": \"-1\""),
        (&PFIFO, &["limit", "4294967296"], "pfifo: Illegal value for \"limit\": \"4294967296\""),
        (&PFIFO, &["limit", "9p"], "pfifo: Illegal value for \"limit\": \"9p\""),
        (&PFIFO, &["limit", "9 "], "pfifo: Illegal value for \"limit\": \"9 \""),
        (&PFIFO, &["limit", ""], "pfifo: Illegal value for \"limit\": \"\""),
        (&PFIFO, &["limit"], "Command line is not complete. Try option \"help\""),
        (&PFIFO, &["foo"], "pfifo: unknown parameter \"foo\""),
        (&TBF, &["rate", "abc"], "tbf: illegal value for \"rate\": \"abc\""),
        (&TBF, &["latency", "1ns"], "tbf: illegal value for \"latency\": \"1ns\""),
        (&TBF, &["foo", "abc"], "tbf: unknown parameter \"foo\""),
        (&FQ, &["limit", "10k"], "Illegal \"limit\""),
        (&FQ, &["r2q", "0x10"], "Illegal \"r2q\""),
        (&FQ, &["bogus"], "What is \"bogus\"?"),
        (&PFIFO_FAST, &["foo"], "qdisc 'pfifo_fast' does not support option parsing"),
        (&MQ, &["foo"], "Unknown qdisc \"mq\", hence option \"foo\" is unparsable"),
    ] {
        assert_eq!(message(syntax, args), text);
    }
}

#[test]
fn an_error_ends_with_remedy_and_usage() {
    let mut words = Words::split("limti 5");
    let options = words.options(&PFIFO);
    assert_eq!(
        options.unknown("limti").to_string(),
        "pfifo: unknown parameter \"limti\" (did you mean \"limit\"?)\nUsage: ... pfifo [ limit PACKETS ]"
    );
    assert_eq!(
        Words::split("12x").options(&FQ).value_u32("quantum").unwrap_err().to_string(),
        "Illegal \"quantum\" (fq got \"12x\": use 0 to 4294967295; a leading 0x means hexadecimal, a leading 0 octal)\n\
         Usage: ... fq [ limit PACKETS ]"
    );
    assert_eq!(
        Words::split("").options(&FQ).value_u32("quantum").unwrap_err().to_string(),
        "Command line is not complete. Try option \"help\" (\"quantum\" wants a value)\nUsage: ... fq [ limit PACKETS ]"
    );
    assert_eq!(
        Words::split("limit 5").options(&PFIFO_FAST).end().unwrap_err().to_string(),
        "qdisc 'pfifo_fast' does not support option parsing (pfifo_fast takes no options: remove \"limit\")\n\
         Usage: ... pfifo_fast"
    );
}

#[test]
fn help_is_the_usage_alone() {
    let error = Words::split("help").options(&PFIFO).end().unwrap_err();
    assert_eq!(error.to_string(), "Usage: ... pfifo [ limit PACKETS ]");
}

#[test]
fn errors_about_several_options_have_the_words_of_tbf() {
    let mut words = Words::split("");
    let options = words.options(&TBF);
    assert_eq!(options.duplicate("limit").message(), "tbf: duplicate \"limit\" specification");
    assert_eq!(options.mandatory("rate").message(), "tbf: the \"rate\" parameter is mandatory.");
    assert_eq!(
        options.refuse("either \"limit\" or \"latency\" is required.").message(),
        "tbf: either \"limit\" or \"latency\" is required."
    );
}

#[test]
fn numbers_read_as_c_reads_them() {
    for (text, value) in
        [("010", Some(8)), ("0x10", Some(16)), ("+5", Some(5)), ("0", Some(0)), (" 5", Some(5))]
    {
        assert_eq!(Words::from_args(&[text]).options(&FQ).value_u32("limit").ok(), value, "{text}");
    }
    for text in ["-1", "09", "1e3", "10k", "4294967296", "", "0x", "0x+5", "0+5", "++5"] {
        assert!(Words::from_args(&[text]).options(&FQ).value_u32("limit").is_err(), "{text}");
    }
    assert_eq!(Words::split("010").options(&FQ).value_decimal("r2q"), Ok(10));
    assert_eq!(Words::split("4294967295").options(&FQ).value_decimal("r2q"), Ok(u32::MAX));
    assert_eq!(Words::split("0x10").options(&FQ).value_hex("default"), Ok(16));
    assert_eq!(Words::split("1f").options(&FQ).value_hex("default"), Ok(31));
}

#[test]
fn words_split_at_any_blank_and_can_be_peeked() {
    let mut words = Words::split("  pfifo\tlimit \n 5 ");
    assert_eq!(words.peek(), Some("pfifo"));
    assert_eq!(words.next_word(), Some("pfifo"));
    assert_eq!(words.value("x"), Ok("limit"));
    assert_eq!((words.next_word(), words.next_word(), words.peek()), (Some("5"), None, None));
}
