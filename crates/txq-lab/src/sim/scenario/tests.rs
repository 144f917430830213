//! Every built-in scenario can be run, and errors name what is wrong in others.

use super::*;
use setup::Pool;

#[test]
fn all_that_are_built_in_can_be_read_and_have_something_to_compare_with() {
    for name in Scenario::names() {
        let scenario = Scenario::open(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario.name, name);
        assert!(!scenario.published.is_empty(), "{name}");
    }
}

#[test]
fn a_variant_differs_in_what_it_changes_and_in_nothing_else() {
    let p1 = Scenario::open("p1").unwrap();
    let [before, mut after] = ["before", "after"].map(|point| p1.setup(point, &[]).unwrap());
    assert_eq!((before.path.pool, after.path.pool), (Pool::Keep, Pool::Defer));
    after.path.pool = Pool::Keep;
    assert_eq!(before, after);
}

#[test]
fn only_before_is_fitted_to() {
    for name in Scenario::names() {
        let scenario = Scenario::open(name).unwrap();
        let Some(fit) = &scenario.fit else { continue };
        assert_eq!(fit.variant, scenario.points()[0], "{name}: the first variant is the one before");
        // Plain work: the sender's own, or the qdisc's.
        assert!(["workload.private", "prices.dequeue"].contains(&fit.field.as_str()), "{name}");
    }
}

#[test]
fn a_field_is_changed_by_its_path() {
    let p0 = Scenario::open("p0-pinned").unwrap();
    let changes = ["workload.senders=64", "steering=near", "tune.access.other_socket=99.5"];
    let changes: Vec<Change> = changes.iter().map(|text| text.parse().unwrap()).collect();
    let setup = p0.setup("after", &changes).unwrap();
    let Workload::UdpStream { senders, .. } = setup.workload else { panic!() };
    assert_eq!((senders, setup.steering), (64, setup::Steering::Near));
    assert_eq!(setup.tune["access"]["other_socket"].as_float(), Some(99.5));
    assert_eq!(changes[0].to_string(), "workload.senders=64");
}

#[test]
fn what_is_wrong_is_named() {
    let p0 = Scenario::open("p0-pinned").unwrap();
    let refused = |change: &str| p0.setup("before", &[change.parse().unwrap()]).unwrap_err().to_string();
    assert_eq!(refused("workload.senders=0"), "p0-pinned: workload.senders is 0: use 1 to 16384");
    assert_eq!(refused("lines.packet=17"), "p0-pinned: lines.packet is 17: use 0 to 16");
    let sum = "p0-pinned: the sum of lines.qdisc and lines.dequeue is 17: use 0 to 16";
    assert_eq!(refused("lines.dequeue=15"), sum);
    assert_eq!(
        refused("seed.x=1"),
        "p0-pinned: missing field `milliseconds`"
            .replace("missing field `milliseconds`", "invalid type: map, expected u64")
    );
    assert!(
        refused("workload.colour=red").contains("unknown field `colour`"),
        "{}",
        refused("workload.colour=red")
    );
    assert_eq!(refused("machine.x=1"), "p0-pinned: \"machine\" in \"machine.x\" is a string, not a table");
    let wrk = Scenario::open("p3-wrk").unwrap();
    let odd = wrk.setup("16, before", &["workload.passes=3".parse().unwrap()]).unwrap_err().to_string();
    assert_eq!(odd, "p3-wrk: workload.passes is 3: use an even number from 2 to 64");
    let text = include_str!("../../../scenarios/p0-unpinned.toml").replacen("to = 60000", "to = 10000", 1);
    let range = Scenario::parse("p0", &text).unwrap_err().to_string();
    let expected =
        "p0: \"switches_per_s\" of \"before\" is published from 10000 to 10000: use a lesser number first";
    assert_eq!(range, expected);
    let text = include_str!("../../../scenarios/p3-wrk.toml").replacen("value = 1.0254", "to = 1.1", 1);
    let end = Scenario::parse("p3", &text).unwrap_err().to_string();
    assert_eq!(end, "p3: \"kreq\" of \"16, after\" has no value: give it a number");
    let classes = |words: &[&str]| {
        let value = Value::Array(words.iter().map(|&word| word.into()).collect());
        p0.setup("before", &[Change { path: "workload.classes".into(), value }])
    };
    assert!(classes(&["1:10", "1:20"]).is_ok());
    let wrong = classes(&["1:zz"]).unwrap_err().to_string();
    assert!(wrong.contains("\"1:zz\" is wrong") && wrong.contains("a class as 1:2"), "{wrong}");
    let many = classes(&["1:1"; 1000]).unwrap_err().to_string();
    assert!(many.contains("the number of workload.classes is 1000: use 0 to "), "{many}");
    assert!("senders".parse::<Change>().unwrap_err().contains("PATH=VALUE"));
    let nobody = Scenario::open("p9").unwrap_err().to_string();
    assert!(nobody.contains("p0-unpinned, p0-pinned"), "{nobody}");
}
