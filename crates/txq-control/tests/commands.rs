//! Commands of other people's files. The expected results are those of tc 6.1 with Linux 6.18.

mod device;

use device::Sink;
use txq::NetDev;
use txq::driver::{DeviceInfo, Driver, DriverQueue};
use txq::tc::{Handle, Style, class_json};
use txq_control::tc;

/// A device with two txqs.
struct Two;

impl Driver for Two {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("d0").txqs(2)
    }

    fn open(&mut self, txq: u16) -> std::io::Result<DriverQueue> {
        Sink("d0".to_owned()).open(txq)
    }
}

fn device() -> NetDev {
    NetDev::builder(Sink("d0".to_owned())).qdisc("noqueue").start().expect("a device")
}

fn run(dev: &NetDev, commands: &[&str]) {
    for command in commands {
        tc::apply(dev, command).unwrap_or_else(|error| panic!("{command}: {error}"));
    }
}

fn refused(dev: &NetDev, command: &str) -> String {
    tc::apply(dev, command).expect_err(command).to_string()
}

#[test]
fn words_may_be_abbreviated() {
    let (short, long) = (device(), device());
    run(
        &long,
        &[
            "qdisc add clsact",
            "filter add ingress protocol ip pref 1 u32 match ip dport 53 0xffff",
            "qdisc replace root handle 1: htb default 10",
            "class add parent 1: classid 1:10 htb rate 1mbit overhead 24 prio 3",
            "qdisc add parent 1:10 handle 10: netem delay 10ms reorder 5% gap 3",
        ],
    );
    run(
        &short,
        &[
            "q a clsact",
            "f a ingress proto ip pri 1 u32 ma ip dport 53 0xffff",
            "q r root handle 1: htb def 10",
            "c a parent 1: classid 1:10 htb rate 1mbit over 24 p 3",
            "q a parent 1:10 handle 10: netem del 10ms reord 5% ga 3",
        ],
    );
    assert_eq!(tc::save(&short), tc::save(&long));
    let error = refused(&device(), "qdisc add root tbf ra 1mbit burst 10k lat 5ms");
    assert!(error.contains("tbf: unknown parameter \"ra\""), "{error}");
}

#[test]
fn words_may_be_quoted_and_lines_continued() {
    let dev = device();
    run(
        &dev,
        &[
            "tc qdisc replace dev d0 root handle 1: \\\n   prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 # a comment",
            "qdisc add clsact",
            "filter add egress protocol all prio 2 basic match 'meta(vlan eq 42)' action skbedit priority 2",
            "filter add parent 1: protocol ip prio 1 basic match 'cmp(u16 at 2 layer transport eq 9)' classid 1:1",
        ],
    );
    let saved = tc::save(&dev);
    assert!(saved.contains("prio bands 2 priomap 1") && saved.contains("match meta(vlan eq 42)"), "{saved}");
    assert!(refused(&dev, "qdisc replace root 'pfifo").contains("Unterminated quoted string"));
    assert!(refused(&dev, "qdisc replace root pfifo \\").contains("Missing continuation line"));
}

/// tc has no use for the handle: both hooks have `ffff:`.
#[test]
fn a_hook_takes_a_handle() {
    for hook in ["ingress", "clsact"] {
        let dev = device();
        run(
            &dev,
            &[
                &format!("qdisc add {hook} handle ffff:"),
                "filter add ingress protocol ip prio 0 u32 match u32 0 0 flowid ffff:",
                &format!("qdisc del {hook} handle ffff:"),
                &format!("qdisc add handle ffff: {hook}"),
            ],
        );
        assert_eq!(
            dev.qdiscs(Style::default()).last().map(|info| info.handle),
            Some(Handle::HOOKS),
            "{hook}"
        );
        assert!(refused(&device(), &format!("qdisc add {hook} handle")).contains("is not complete"));
        assert!(refused(&device(), &format!("qdisc add {hook} foo")).contains("What is \"foo\"?"));
    }
}

#[test]
fn the_root_may_have_the_handle_of_the_hooks() {
    let dev = device();
    run(
        &dev,
        &[
            "qdisc replace root handle ffff: htb",
            "class add parent ffff: classid ffff:1 htb rate 1mbit",
            "qdisc add parent ffff:1 handle 2: pfifo",
            "filter add parent ffff: protocol ip pref 1 u32 match u32 0 0 classid ffff:1",
        ],
    );
    assert!(dev.filters(Some(Handle::HOOKS), Style::default()).len() > 1);
    run(&dev, &["qdisc del parent ffff:1", "filter del parent ffff: pref 1"]);
    assert!(dev.filters(Some(Handle::HOOKS), Style::default()).is_empty());
}

#[test]
fn mq_takes_no_options_at_its_change() {
    let dev = NetDev::builder(Two).qdisc("mq").start().expect("a device");
    for root in ["root", "root handle 1:"] {
        run(&dev, &["qdisc replace root handle 1: mq"]);
        let error = refused(&dev, &format!("qdisc replace {root} mq foo"));
        assert!(error.contains("Unknown qdisc \"mq\", hence option \"foo\" is unparsable"), "{error}");
        run(&dev, &[&format!("qdisc replace {root} mq")]);
    }
}

/// A qdisc with one class takes any number for it, and shows the one that was given.
#[test]
fn a_child_is_shown_below_the_parent_that_was_named() {
    for root in ["tbf rate 1mbit burst 10k limit 10k", "netem delay 1ms"] {
        for parent in ["4:", "4:1"] {
            let dev = device();
            run(
                &dev,
                &[
                    &format!("qdisc replace root handle 4: {root}"),
                    &format!("qdisc replace parent {parent} handle 5: pfifo"),
                ],
            );
            let shown = dev.qdiscs(Style::default());
            assert_eq!(shown[1].parent.to_string(), parent, "{root}");
            let saved = tc::save(&dev);
            assert!(saved.contains(&format!("parent {parent} handle 5: pfifo")), "{saved}");
            saved.lines().for_each(|command| run(&dev, &[command]));
            assert_eq!(tc::save(&dev), saved);
        }
    }
}

/// htb ignores another parent, and hfsc refuses it, as in the kernel.
#[test]
fn a_class_keeps_its_parent() {
    for (kind, options) in [("htb", "htb rate 1mbit"), ("drr", "drr quantum 3000")] {
        let dev = device();
        run(
            &dev,
            &[
                &format!("qdisc add root handle 1: {kind}"),
                &format!("class add parent 1: classid 1:5 {options}"),
            ],
        );
        let warnings = dev.tc(&format!("class change parent 1: classid 1:5 {options}")).unwrap();
        assert!(warnings.iter().all(|warning| !warning.contains("stays below")));
        for parent in ["1:77", "1:5"] {
            let warnings =
                dev.tc(&format!("class change parent {parent} classid 1:5 {options}")).unwrap().join("\n");
            assert!(warnings.contains("txq: class 1:5 stays below root"), "{kind} {parent}: {warnings}");
        }
    }
    let dev = device();
    run(
        &dev,
        &[
            "qdisc add root handle 1: hfsc",
            "class add parent 1: classid 1:5 hfsc sc rate 1mbit",
            "class add parent 1:5 classid 1:6 hfsc sc rate 1mbit",
            "class change parent 1:5 classid 1:6 hfsc sc rate 2mbit",
            "class change parent 1: classid 1:5 hfsc sc rate 2mbit",
        ],
    );
    assert!(
        refused(&dev, "class change parent 1: classid 1:6 hfsc sc rate 2mbit").contains("Invalid argument")
    );
}

#[test]
fn root_is_no_parent_of_a_filter() {
    let dev = device();
    run(&dev, &["qdisc add root handle 1: htb"]);
    for command in ["filter add root protocol ip u32 match u8 0 0 classid 1:1", "filter del root"] {
        assert!(refused(&dev, command).contains("Error: Parent Qdisc doesn't exists."), "{command}");
    }
    run(&dev, &["filter add protocol ip u32 match u8 0 0 classid 1:0"]);
}

#[test]
fn classes_have_estimators() {
    let dev = device();
    run(
        &dev,
        &[
            "qdisc add root handle 1: est 1sec 8sec htb default 1",
            "class add parent 1: classid 1:1 est 1sec 8sec htb rate 200mbit mtu 1500 quantum 80000",
            "class add parent 1:1 classid 1:2 estimator 250ms 1s htb rate 1mbit",
            "class add parent 1:1 classid 1:3 htb rate 1mbit",
        ],
    );
    let saved = tc::save(&dev);
    let with: Vec<_> =
        saved.lines().filter(|line| line.starts_with("class") && line.contains(" estimator ")).collect();
    assert_eq!(with.len(), 2, "{saved}");
    saved.lines().for_each(|command| run(&dev, &[command]));
    assert_eq!(tc::save(&dev), saved);
    let json = class_json(&dev.classes(Style::default()), true);
    assert_eq!(json[1]["stats"]["rate"], 0, "{json}");
    assert!(json[2]["stats"].get("rate").is_none() && json[2]["rate"] == 125_000, "{json}");
    assert!(
        refused(&dev, "class add parent 1: classid 1:9 est 1s 8s est 1s 8s htb rate 1mbit")
            .contains("duplicate \"estimator\"")
    );
    run(&dev, &["qdisc replace root handle 2: ets bands 2"]);
    assert!(refused(&dev, "class change classid 2:1 est 1s 8s ets").contains("Operation not supported"));
}
