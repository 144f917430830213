//! Every point runs once, in whichever shard, and the parts join to the whole.

use super::*;
use crate::sim::scenario::setup::Workload;

fn axes(texts: &[&str]) -> Vec<Axis> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Figures that identify their point.
fn figures(setup: &Setup) -> Result<Figures, String> {
    let Workload::UdpStream { senders, .. } = setup.workload else { panic!("another scenario") };
    Ok(Figures::from([("is".to_owned(), f64::from(senders) + setup.device.gbit / 1000.0)]))
}

#[test]
fn values_are_lists_and_ranges() {
    let values =
        |text: &str| text.parse::<Axis>().unwrap().values.iter().map(Value::to_string).collect::<Vec<_>>();
    assert_eq!(values("a.b=1,2,llist"), ["1", "2", "\"llist\""]);
    assert_eq!(values("n=1..480*4"), ["1", "4", "16", "64", "256", "480"]);
    assert_eq!(values("x=0.5..1+0.25,9"), ["0.5", "0.75", "1.0", "9"]);
    for wrong in ["n", "n=", "=1", "n=1..2", "n=0..8*2", "n=5..1+1", "n=1..9*1", "n=a..b*2"] {
        assert!(wrong.parse::<Axis>().is_err(), "{wrong}");
    }
}

#[test]
fn shards_are_the_whole_in_any_order_of_threads() {
    let scenario = Scenario::open("p0-pinned").unwrap();
    let sweep = Sweep::new(
        &scenario,
        "after",
        vec!["warmup=0".parse().unwrap()],
        axes(&["workload.senders=1..16*2", "device.gbit=10,100"]),
    );
    let sweep = sweep.unwrap();
    assert_eq!(sweep.len(), 10);
    let mut parts = Vec::new();
    for shard in 0..3 {
        let mut text = String::new();
        let add = |line: Line| {
            text += &(serde_json::to_string(&line).unwrap() + "\n");
            true
        };
        sweep.run((shard, 3), 2, figures, add);
        parts.push(text);
    }
    let named: Vec<(&str, &str)> = parts.iter().map(|text| ("part", text.as_str())).collect();
    let whole = merge(named.iter().copied()).unwrap();
    let is: Vec<f64> = whole.iter().map(|line| line.figures["is"]).collect();
    assert_eq!(is, [1.01, 1.1, 2.01, 2.1, 4.01, 4.1, 8.01, 8.1, 16.01, 16.1]);
    assert_eq!(whole[3].at.get("workload.senders"), Some(&Value::Integer(2)));
    assert_eq!(whole[3].at.paths().collect::<Vec<_>>(), ["workload.senders", "device.gbit"]);
    let missing = merge(named[1..].iter().copied()).unwrap_err().to_string();
    assert_eq!(missing, "4 of 10 points are missing, the first is 0: run their shards");
    // Equal results of a point are accepted.
    assert_eq!(merge(named.iter().chain(&named).copied()).unwrap(), whole);
    let other = parts[0].replace("1.01", "7.0");
    assert!(matches!(merge([("a", &*parts[0]), ("b", &*other)]), Err(MergeError::Differs { index: 0, .. })));
    let set = parts[0].replace("\"warmup\":0", "\"warmup\":1");
    assert!(matches!(merge([("a", &*parts[0]), ("b", &*set)]), Err(MergeError::Other { line: 1, .. })));
    assert!(matches!(merge([("a", "{}")]), Err(MergeError::Line { .. })));
}

#[test]
fn a_sweep_that_cannot_be_is_refused_before_it_runs() {
    let scenario = Scenario::open("p0-pinned").unwrap();
    let refused = |point: &str, texts: &[&str]| {
        Sweep::new(&scenario, point, Vec::new(), axes(texts)).unwrap_err().to_string()
    };
    assert!(refused("after", &["workload.senders=1,0"]).contains("workload.senders is 0"));
    assert!(refused("after", &["seed=1", "seed=2"]).contains("seed is varied twice"));
    assert!(refused("later", &["seed=1"]).contains("there is no variant \"later\""));
    assert!(refused("after", &["seed=1..1000+1", "warmup=1..1000+1"]).contains("100000 points"));
}

#[test]
fn a_point_that_cannot_be_run_is_a_line_and_the_others_are_run() {
    let scenario = Scenario::open("p0-pinned").unwrap();
    let sweep = Sweep::new(&scenario, "after", Vec::new(), axes(&["seed=1..5+1"])).unwrap();
    let run = |setup: &Setup| if setup.seed == 3 { Err("not this one".to_owned()) } else { figures(setup) };
    let mut lines = Vec::new();
    sweep.run((0, 1), 1, run, |line| {
        lines.push(line);
        true
    });
    let errors: Vec<Option<&str>> = lines.iter().map(|line| line.error.as_deref()).collect();
    assert_eq!(errors, [None, None, Some("not this one"), None, None]);
    assert!(lines[2].figures.is_empty() && !lines[3].figures.is_empty());
    let text: String = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
    assert_eq!(merge([("all", &*text)]).unwrap(), lines);
}

#[test]
fn who_gets_the_lines_ends_it() {
    let scenario = Scenario::open("p0-pinned").unwrap();
    let sweep = Sweep::new(&scenario, "after", Vec::new(), axes(&["seed=1..50+1"])).unwrap();
    let mut lines = 0;
    sweep.run((0, 1), 1, figures, |_| {
        lines += 1;
        lines < 3
    });
    assert_eq!(lines, 3);
}
