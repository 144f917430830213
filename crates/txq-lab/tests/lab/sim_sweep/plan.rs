//! `txq sim plan` and `cost`: what they answer, what they say that they assumed, and what they refuse.

use serde_json::Value;

use super::{INPUT, good, refused, rows, sim};
use crate::support::tempdir::TempDir;

const PLAN: &str =
    "plan --cpus 4 --senders 4 --machine desktop-16 --time 100us --seeds 2 --quiet --qdisc pfifo";

#[test]
fn a_plan_has_the_cheapest_first() {
    let folder = TempDir::new();
    let all = rows(&good(sim(&folder, &format!("{PLAN} --rate 0.2mpps --within 300s --json"))).stdout);
    // One txq and each discipline; 2 and 4 txqs with each discipline and each of three steering rules.
    assert_eq!(all.len(), 5 + 2 * 5 * 3);
    let meets = |row: &Value| row["meets"].as_bool().expect("a truth");
    assert!(all.is_sorted_by_key(|row| !meets(row)) && meets(&all[0]), "{all:?}");
    let cost = |row: &Value| (row["txqs"].as_u64(), row["at_rate"]["cpu_ns_per_packet"].as_f64());
    let order: Vec<_> = all.iter().filter(|row| meets(row)).map(cost).collect();
    assert!(order.is_sorted() && order[0].0 == Some(1), "{order:?}");
    for row in &all {
        let number = |key: &str| row[key].as_f64().expect("a number");
        assert!((number("mpps_low") / number("asked_mpps") - 1.0 - number("margin")).abs() < 1e-9, "{row}");
        assert!(number("mpps_low") <= number("mpps") && number("mpps") <= number("mpps_high"), "{row}");
        assert_eq!(row["private_assumed"], true);
        // Ways are screened by one short run, and those that promise most are run with both seeds.
        assert!(row["seeds"] == 0 || row["seeds"] == 2, "{row}");
        assert!(!meets(row) || row["seeds"] == 2, "{row}");
    }
    let at_rate = &all[0]["at_rate"];
    let of = |key: &str| at_rate[key].as_f64().unwrap_or_else(|| panic!("no {key} in {at_rate}"));
    assert!(of("xmit_p50_ns") <= of("xmit_p99_ns") && of("sojourn_p50_us") <= of("sojourn_p99_us"));
    // A packet is on its way for longer than the median call, and all senders offer as much as was asked for: 20 packets
    // are expected, and half of that is beyond any doubt.
    assert!(of("sojourn_p50_us") * 1e3 > 0.0 && of("mpps") < 2.0 * 0.2, "{at_rate}");
}

#[test]
fn a_plan_says_what_was_assumed_and_why_nothing_reaches() {
    let folder = TempDir::new();
    let plan = |words: &str| good(sim(&folder, &format!("{PLAN} --within 300s {words}"))).stdout;
    let table = plan("--rate 0.2mpps --txqs 1,2");
    for part in [
        "desktop-16, scaled from 32 CPUs to 4 (",
        ": 1 x 1 x 1 x 2 x 2)",
        "2000 ns of their own (assumed)",
        "\nUse ",
        " to spare",
        "more ways were screened",
        "The 2000 ns of own work are assumed. This way sends ",
        " with 1000 ns, ",
        "txq sim cost -- PROGRAM {}",
    ] {
        assert!(table.contains(part), "no {part:?} in {table}");
    }
    let table = plan("--rate 100gbit --bytes 60 --all --txqs 1,4");
    assert!(
        table.contains("\nNothing reaches 208 Mpps; ") && table.contains("own work allows 2.00 Mpps"),
        "{table}"
    );
    assert_eq!(table.lines().filter(|line| line.ends_with("  -")).count(), 5 + 15, "{table}");

    // With work that takes no time it is the path itself, and the report names the part of it.
    let table = plan("--rate 100mpps --private 0 --txqs 1 --smt 1 --irq-cpus 1");
    assert!(table.contains("\nNothing reaches 100 Mpps; ") && !table.contains("assumed"), "{table}");
    assert!(
        table.contains("1 x 1 x 1 x 4 x 1)") && table.contains("interrupts on 1 of the CPUs alone"),
        "{table}"
    );
    let advice = table.lines().last().expect("advice");
    let causes = ["Senders ", "CPUs spin", "One cache line", "completion CPUs", "softirqs", "No CPU is idle"];
    assert!(causes.iter().any(|cause| advice.contains(cause)), "{advice}");
}

#[test]
fn a_plan_ends_in_its_time_and_says_what_is_left_out() {
    let folder = TempDir::new();
    let ended = sim(&folder, &format!("{PLAN} --rate 0.2mpps --threads 1 --within 1ns"));
    refused(&ended, INPUT, &["there is no way: no run ended within 1 ns", "--within"]);
}

#[test]
fn a_plan_that_cannot_be_is_refused() {
    let folder = TempDir::new();
    for (words, parts) in [
        ("--rate max", &["--rate max", "20mpps"][..]),
        ("--rate 5", &["has no unit"]),
        ("--rate 1mpps --cpus 0", &["use 1 to 4096"]),
        ("--rate 1mpps --qdisc nonesuch", &["there is no way", "nonesuch"]),
        ("--rate 1mpps --machine nowhere", &["no machine \"nowhere\""]),
        ("--rate 1mpps --time 1ns", &["--time 1 ns: ", "use 10us to 10s"]),
        ("--rate 1mpps --txqs 1,0", &["use 1 to 4096"]),
        ("--rate 1mpps --link 5mpps", &["--link 5Mpps", "25gbit"]),
        ("--rate 10mpps --link 1gbit", &["carries 0.60 Mpps of 186 bytes at most, and 10.0 are asked for"]),
        ("--rate 1mpps --irq-cpus 4", &["--irq-cpus 4: leaves none of 4 CPUs"]),
    ] {
        let mut of = PLAN.to_owned();
        for option in
            ["--cpus", "--qdisc", "--machine", "--time"].iter().filter(|&&option| words.contains(option))
        {
            let at = of.find(option).expect("an option");
            let end = of[at..].match_indices(' ').nth(1).map_or(of.len(), |(end, _)| at + end);
            of.replace_range(at..end, "");
        }
        refused(&sim(&folder, &format!("{of} {words}")), INPUT, parts);
    }
}

#[test]
fn the_cost_of_a_packet_is_what_more_packets_take() {
    let folder = TempDir::new();
    // awk counts: each number costs about the same, and starting it nothing.
    let awk = "awk BEGIN{for(i=0;i<{};i++)s+=i}";
    let cost = format!("cost --packets 4000000 --rounds 3 --quiet --json -- {awk}");
    let line = &rows(&good(sim(&folder, &cost)).stdout)[0];
    let number = |key: &str| line[key].as_f64().expect("a number");
    assert!(number("low") <= number("cpu_ns_per_packet") && number("cpu_ns_per_packet") <= number("high"));
    assert!(number("user_ns") > number("system_ns"), "{line}");
    let table = good(sim(&folder, &cost.replace(" --json", ""))).stdout;
    assert!(
        table.contains(" ns of CPU time a packet (") && table.contains("\ntxq sim plan --private "),
        "{table}"
    );
    for (words, parts) in [
        ("-- true", &["no argument of the program contains {}"][..]),
        ("--rounds 1 -- true {}", &["too little to measure", "--packets"]),
        ("-- false {}", &["false failed with 200000 packets"]),
        ("-- /nonexistent/x {}", &["/nonexistent/x cannot be run", "No such file"]),
    ] {
        let ended = sim(&folder, &format!("cost --quiet {words}"));
        assert!(!ended.status.success() && ended.stdout.is_empty(), "{words}: {}", ended.stdout);
        parts.iter().for_each(|part| assert!(ended.stderr.contains(part), "no {part:?} in {}", ended.stderr));
    }
}
