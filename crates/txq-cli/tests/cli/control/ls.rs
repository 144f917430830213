//! `txq ls`: programs that live, are stopped, or are dead.

use serde_json::Value;

use super::{LONG, Place};

fn json(place: &Place, words: &str) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&place.good(&format!("ls --json {words}"))).expect("JSON");
    listed.as_array().expect("a list").clone()
}

#[test]
fn programs_are_listed_while_they_live() {
    let place = Place::new();
    assert_eq!((place.good("ls"), json(&place, "").len()), (String::new(), 0));
    let program = place.example("shaper", 600);
    let daemon = place.daemon("--name lab");
    place.good("dev --name lab add d0");
    place.good("dev --name lab add d1 txqueuelen 0");
    let table = place.good("ls");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "PID", "PROGRAM", "STATE", "DEVICES"]);
    let (lab, shaper) = (&rows[1], &rows[2]);
    assert_eq!(lab[0], "lab");
    assert_eq!(lab[2..].join(" "), "txq daemon live d0 (pfifo_fast), d1 (noqueue)");
    assert_eq!(shaper[1], program.status("Pid:").to_string());
    let expected = format!("{} live null0 (pfifo)", super::example_name());
    assert_eq!((shaper[0], shaper[2..].join(" ")), ("shaper", expected));
    let listed = json(&place, "");
    assert_eq!(
        (listed.len(), listed[1]["name"].as_str(), listed[1]["state"].as_str()),
        (2, Some("shaper"), Some("live"))
    );
    assert_eq!(listed[1]["pid"].as_u64(), Some(program.status("Pid:")));
    assert_eq!(listed[0]["info"]["devices"][0]["name"], "d0");
    // A socket with a path of its own is listed on request.
    let path = place.0.path().join("other.sock").display().to_string();
    let other = place.daemon(&format!("--socket {path}"));
    assert_eq!(json(&place, "").len(), 2);
    assert_eq!(json(&place, &path)[0]["state"], "live");
    for running in [daemon, other] {
        running.signal(libc::SIGTERM);
        assert!(running.finish(LONG).status.success());
    }
    assert_eq!(json(&place, "").len(), 1);
}

#[test]
fn the_dead_are_stale_until_the_next_start() {
    let place = Place::new();
    let program = place.example("shaper", 600);
    program.signal(libc::SIGKILL);
    assert!(!program.finish(LONG).status.success());
    assert!(place.socket("shaper").exists());
    let listed = place.txq("ls");
    assert!(listed.status.success() && listed.stdout.is_empty(), "{}", listed.stdout);
    assert!(listed.stderr.contains("shaper.sock is stale"), "{}", listed.stderr);
    assert_eq!(json(&place, "")[0]["state"], "stale");
    assert!(place.refused("tc --name shaper qdisc").contains("no txq listens on"));
    // The same name, again.
    let again = place.example("shaper", 600);
    let listed = json(&place, "");
    assert_eq!((listed.len(), listed[0]["state"].as_str()), (1, Some("live")));
    assert_eq!(listed[0]["pid"].as_u64(), Some(again.status("Pid:")));
    // A second program of that name is refused, and harms nothing.
    let second = place.refused("daemon --name shaper");
    let held = format!("another txq listens there (process {})", again.status("Pid:"));
    assert!(second.contains(&held), "{second}");
    assert!(place.good("tc --name shaper qdisc").starts_with("qdisc pfifo"));
}
