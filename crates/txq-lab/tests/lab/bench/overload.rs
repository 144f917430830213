//! `txq bench overload` from outside: its grids of loads and of finite links.

use serde_json::Value;

use super::{LONG, bench, rows, run, set, values, well_formed};
use crate::support::process::Running;
use crate::support::tempdir::TempDir;

#[test]
fn overload_measures_the_peak_and_then_multiples_of_it() {
    let options = "overload --threads 1,2 --flows 1,32 --load 0.5,10 --work-ns 50 --json --quiet";
    // A busy machine may not let a sender send in a short time.
    let measure = |ms: u64| rows(&run(&format!("{options} --duration {ms}ms")));
    let offered = |rows: &Vec<Value>| rows.iter().any(|row| row["offered_mpps"].as_f64() > Some(0.0));
    let rows =
        [3, 30, 300].into_iter().map(measure).find(offered).expect("a row in which packets are offered");
    let disciplines = txq::Discipline::ALL.iter().map(|discipline| discipline.name());
    assert_eq!(rows.len(), disciplines.len() * (1 + 2 * 2 * 2));
    for (rows, discipline) in rows.chunks(9).zip(disciplines) {
        assert!(rows.iter().all(|row| row["discipline"] == discipline && row["qdisc"] == "aqm"), "{rows:?}");
        let key = |row: &Value| ["flows", "threads", "load"].map(|key| row[key].as_f64());
        let peak = [Some(1.0), Some(1.0), None];
        let at = |flows, threads, load| [Some(flows), Some(threads), Some(load)];
        assert_eq!(key(&rows[0]), peak);
        assert_eq!((key(&rows[1]), key(&rows[8])), (at(1.0, 1.0, 0.5), at(32.0, 2.0, 10.0)));
    }
}

#[test]
fn overload_tells_the_worst_cell_of_each_discipline() {
    let folder = TempDir::new();
    let file = folder.path().join("curves.svg");
    let options =
        "overload --discipline llist,combine --duration 3ms --threads 1,2 --flows 8 --load 1,40 --work-ns 50";
    let ended = run(&format!("{options} --svg {}", file.display()));
    for part in [
        "overload, aqm: packets sent while",
        "llist: peak ",
        "combine: peak ",
        "flows  threads",
        "40x",
        "worst cell",
        "Below half of the peak",
    ] {
        assert!(ended.stdout.contains(part), "no {part:?} in {}", ended.stdout);
    }
    assert!(
        ended.stderr.starts_with("1/10 overload: llist aqm, 8 flows, the peak, 1 thread"),
        "{:?}",
        ended.stderr
    );
    let svg = std::fs::read_to_string(&file).expect("the drawing");
    well_formed(&svg);
    assert!(svg.contains("overload, aqm, 8 flows, 40x"), "{svg}");
}

#[test]
fn overload_fills_finite_links() {
    let options = "overload --rate 100mbit --discipline combine,llist --threads 1,4 --txqs 1,2 --root one,mq \
                   --completions inline,per-queue --qdisc pfifo --qdisc tbf --ring 64 --limit 100";
    let rows = rows(&run(&format!("{options} --duration 20ms --json --quiet")));
    // One txq has one root.
    assert_eq!(rows.len(), 2 * 2 * (1 + 2) * 2 * 2);
    for row in &rows {
        let share = row["share"].as_f64().expect("a share");
        // The share may exceed 1: packets on the ring may be counted before the link has sent them, and a preempted
        // measurement may count for longer than the time it reports.
        assert!(share >= 0.0, "{row}");
        assert_eq!((&row["link_bps"], &row["ring"]), (&100_000_000.into(), &64.into()), "{row}");
    }
    let all = ["root", "completions", "txqs", "threads"].map(|key| values(&rows, "overload", key));
    let expected = [["one", "mq"], ["inline", "per-queue"], ["1", "2"], ["1", "4"]];
    assert_eq!(all, expected.map(|words| set(&words)));
    assert!(rows.iter().any(|row| row["share"].as_f64() > Some(0.0)), "no link has sent: {rows:?}");
    // The grid without further options, shortened.
    let ended = run("overload --rate 100mbit --discipline combine --threads 2 --duration 10ms");
    for part in [
        "overload: share of the links",
        "combine, 100Mbit/s, ring 256",
        "pfifo limit 1000, 1 txq ",
        "fq_codel, 1 txq ",
        "tbf, 1 txq ",
        "pfifo limit 1000, 8 txqs under mq ",
        "pfifo limit 1000, 2 txqs under one qdisc ",
        "pfifo limit 1000, 1 txq, completions worker ",
        "pfifo limit 1000, 1 txq, completions worker-only ",
        "* the worst cell of a table.",
    ] {
        assert!(ended.stdout.contains(part), "no {part:?} in {}", ended.stdout);
    }
    assert!(ended.stdout.contains("*\n"), "no cell is marked in {}", ended.stdout);
}

#[test]
fn links_can_belong_to_cpus_and_be_shared_as_dpdk_does() {
    let options = "overload --rate 100mbit --discipline combine --threads 1,2 --txqs 1,2 --steering hash,cpu --qdisc pfifo --dpdk";
    let ended = run(&format!("{options} --duration 20ms --json --quiet"));
    let (peers, own): (Vec<_>, Vec<_>) = rows(&ended).into_iter().partition(|row| !row["peer"].is_null());
    // One txq needs no steering.
    assert_eq!(own.len(), 2 * (1 + 2));
    assert_eq!(values(&own, "overload", "steering"), set(&["hash", "cpu"]));
    if ended.stderr.contains("SKIP dpdk: ") {
        return assert!(peers.is_empty(), "{peers:?}");
    }
    assert_eq!(peers.len(), 2 * 2 * 2);
    assert_eq!(values(&peers, "overload", "peer"), set(&["dpdk, tx locks", "dpdk, yielding tx locks"]));
    assert!(peers.iter().all(|row| row["share"].is_number() && row["discipline"].is_null()), "{peers:?}");
    assert!(peers.iter().any(|row| row["share"].as_f64() > Some(0.0)), "no link has sent: {peers:?}");
    let table = run(&format!("{options} --duration 20ms")).stdout;
    for part in ["dpdk, tx locks, 100Mbit/s, ring 256", "pfifo, 2 txqs under one qdisc, by CPU", "\n2 txqs "]
    {
        assert!(table.contains(part), "no {part:?} in {table}");
    }
}

#[test]
fn options_of_finite_links_need_a_rate() {
    for options in [
        "--steering cpu",
        "--dpdk",
        "--txqs 2",
        "--root mq",
        "--completions worker",
        "--ring 64",
        "--limit 9",
    ] {
        let ended = Running::start(&mut bench(&format!("overload {options}"))).finish(LONG);
        assert!(!ended.status.success() && ended.stderr.contains("--rate"), "{options}: {}", ended.stderr);
    }
}
