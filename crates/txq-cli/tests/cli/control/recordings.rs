//! `txq contention` and `txq hist` of running programs.

use serde_json::Value;

use super::{LONG, Place, wait_for};
use crate::support::process::Running;

fn last(text: &str) -> Value {
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn a_running_programs_waits_are_recorded() {
    let place = Place::new();
    let program = place.example("shaper", 600);
    let line = last(&place.good("contention --name shaper --duration 200ms --json"));
    assert_eq!(
        (line["stopped_by"].as_str(), line["devices"][0]["name"].as_str()),
        (Some("duration"), Some("null0"))
    );
    assert!(line["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.2), "{line}");
    assert!(line["devices"][0]["discipline"].is_null(), "{line}");
    let sites = line["sites"].as_array().expect("sites");
    assert!(sites.iter().any(|row| row["acquisitions"].as_u64() > Some(0)), "{line}");
    let table = place.good("contention --name shaper --dev null0 --duration 100ms");
    assert!(table.starts_with(" contended   total wait"), "{table}");
    assert!(table.contains("\nnull0\n") && table.contains("packets     sent "), "{table}");
    assert!(
        place
            .good("contention --name shaper --duration 100ms --lock-stat --quiet")
            .starts_with("lock_stat version")
    );
    let absent = place.refused("contention --name shaper --dev d9 --duration 1ms");
    assert!(absent.contains("Cannot find device \"d9\"") && absent.contains("there are null0"), "{absent}");
    let mixed = place.txq("contention my.toml --name shaper");
    assert!(!mixed.status.success() && mixed.stderr.contains("cannot be used with"), "{}", mixed.stderr);
    // A recording that is interrupted leaves the program unrecorded: the next one is not refused.
    let start = || Running::start(&mut place.command("contention --name shaper --duration 600s"));
    let mut killed = start();
    wait_for("the first recording", || {
        let other = place.txq("contention --name shaper --duration 1ms --quiet --json");
        if killed.has_ended() {
            // It began during a short recording, and was refused.
            killed = start();
        }
        other.stderr.contains("another command records")
    });
    killed.signal(libc::SIGKILL);
    drop(killed);
    wait_for("the next recording", || {
        place.txq("contention --name shaper --duration 1ms --json").status.success()
    });
    drop(program);
}

#[test]
fn a_running_programs_times_are_counted() {
    let place = Place::new();
    let file = place.0.path().join("run.toml").display().to_string();
    let device = "name = \"d0\"\nsampling = \"all\"\ncontention = true\ndiscipline = \"spinlock\"\nqdisc = \"tbf rate 1mbit burst 2k limit 9k\"\n";
    std::fs::write(&file, format!("[[device]]\n{device}[[sender]]\nrate = \"10kpps\"\n")).expect("a file");
    let run = Running::start(&mut place.command(&format!("run {file} --name mine --quiet --duration 600s")));
    wait_for("the run", || place.txq("tc --name mine qdisc").status.success());
    wait_for("samples", || {
        let ended = place.txq("hist --name mine --what completion --duration 50ms --json");
        ended.status.success() && last(&ended.stdout)["samples"].as_u64() > Some(0)
    });
    let whole = last(&place.good("hist --name mine --what driver --since-start --json"));
    assert!(whole["samples"].as_u64() > Some(0) && whole["devices"][0]["name"] == "d0", "{whole}");
    assert!(place.good("hist --name mine --what driver --since-start").starts_with("@driver_ns:\n["));
    wait_for("packets that the shaper holds back", || {
        let ended = place.txq("hist --name mine --what lateness --since-start --json");
        ended.status.success() && last(&ended.stdout)["samples"].as_u64() > Some(0)
    });
    // The file has the waits for locks recorded.
    let counters = &last(&place.good("stat --name mine --json"))[0]["counters"];
    assert!(counters["lock_root-lock_worker_acquisitions"].as_u64() > Some(0), "{counters:#}");
    assert!(counters["retries_push-to-the-defer-list"].is_u64() && counters["hand_offs"].is_u64());
    // Calls are not timed in this run.
    let none = place.txq("hist --name mine --duration 1ms");
    assert!(none.status.code() == Some(1) && none.stderr.contains("xmit_times(true)"), "{}", none.stderr);
    run.signal(libc::SIGTERM);
    assert!(run.finish(LONG).status.success());
}
