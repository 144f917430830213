//! fq's words: the options that it reads, shows and refuses.

use std::time::Duration;

use super::*;

#[test]
fn shown_as_tc_shows_it() {
    let defaults = "limit 10000p flow_limit 100p buckets 1024 orphan_mask 1023 quantum 3028b initial_quantum 15140b \
                    low_rate_threshold 550Kbit refill_delay 40ms timer_slack 10us horizon 10s horizon_drop ";
    for (options, shown) in [
        ("", defaults),
        (
            "limit 0x10 flow_limit 5 buckets 3 nopacing quantum 1 initial_quantum 0 maxrate 10mbit ce_threshold 4ms \
             low_rate_threshold 0 horizon_cap horizon 1s refill_delay 1ms timer_slack 1 orphan_mask 7 defrate 1mbit",
            "limit 16p flow_limit 5p buckets 4 orphan_mask 7 nopacing quantum 1b initial_quantum 0b maxrate 10Mbit \
             refill_delay 1ms ce_threshold 4ms timer_slack 1ns horizon 1s horizon_cap ",
        ),
    ] {
        assert_eq!(Bench::new(options).qdisc.options(Style::default()).text(), shown);
    }
    let env = Env { pacing_horizon: Duration::from_millis(2), ..ENV };
    let bench = Bench::on("offload_horizon 2ms", env);
    assert_eq!(bench.qdisc.options(Style::default()).text(), format!("{defaults}offload_horizon 2ms "));
    assert_eq!(bench.qdisc.options(Style::default()).json()["offload_horizon"], 2000);
    let bench = Bench::new("weights 16384 16384 16384");
    let text = bench.qdisc.options(Style::default()).text().to_owned();
    assert!(
        text.contains("bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1 weights 16384 16384 16384 quantum")
    );
    let json = bench.qdisc.options(Style::default()).json();
    assert_eq!((&json["horizon_drop"], &json["timer_slack"]), (&serde_json::Value::Null, &10_000.into()));

    let mut bench = Bench::new("horizon 1s");
    let xstats = |bench: &Bench| bench.qdisc.xstats(Style::default()).unwrap().text().to_owned();
    assert_eq!(xstats(&bench), "  flows 0 (inactive 0 throttled 0)\n  gc 0 highprio 0 throttled 0");
    let _ = bench.send(1, 60, 0, Some(0));
    let _ = bench.send(1, 60, 0, Some(9999 * MS));
    let _ = bench.send(1, 60, 0, Some(500 * MS));
    bench.take(9);
    bench.later(600 * MS);
    bench.take(9);
    assert_eq!(
        xstats(&bench),
        "  flows 1 (inactive 1 throttled 0)\n  gc 0 highprio 0 throttled 1 latency 12.5ms\n horizon_drops 1"
    );
}

#[test]
fn errors_are_tcs() {
    for (options, expected) in [
        ("foo", "What is \"foo\"?"),
        ("limit", "Command line is not complete. Try option \"help\""),
        ("limit 1k", "Illegal \"limit\""),
        ("quantum 10k", "Illegal \"quantum\""),
        ("maxrate 100gbit", "Illegal \"maxrate\""),
        ("timer_slack 5s", "Illegal (out of range) \"timer_slack\""),
        ("refill_delay 100ns", "Illegal \"refill_delay\""),
        ("quantum 0", "Error: sch_fq: invalid quantum."),
        ("quantum 1048577", "Error: sch_fq: invalid quantum."),
        ("initial_quantum 2147483648", "Error: integer out of range."),
        ("buckets 1", "RTNETLINK answers: Invalid argument"),
        ("buckets 262145", "RTNETLINK answers: Invalid argument"),
        ("bands 4", "Illegal \"bands\""),
        ("priomap 3", "Illegal \"priomap\""),
        ("weights 16383", "Illegal \"weights\""),
        ("offload_horizon x", "Illegal \"offload_horizon\""),
        ("offload_horizon 1us", "Error: sch_fq: invalid offload_horizon."),
    ] {
        let error = try_build(&format!("fq {options}"), &ENV).err().expect(options);
        assert_eq!(error.message(), expected, "{options}");
        assert!(error.remedy().is_some() || error.usage().is_some());
    }
}
