//! `txq reload` and SIGHUP: the difference of two files, under traffic.

use std::time::Duration;

use super::bench::{Bench, FAR, LONG, end};
use crate::support::process::{Running, wait_until};

const HTB: &str = "\
qdisc = \"handle 1: htb default 20\"
tc = [
    \"class add parent 1: classid 1:10 htb rate 10mbit\",
    \"class add parent 1: classid 1:20 htb rate 90mbit\",
    \"qdisc add parent 1:20 handle 20: fq_codel\",
    \"filter add parent 1: protocol ip pref 1 handle 1 flower ip_proto udp classid 1:10\",
]
";

fn file(far: &str) -> String {
    format!(
        "[[device]]\nname = \"near\"\naf_packet = {{ interface = \"m0\" }}\nqdisc = \"fq_codel\"\n\
         [[device]]\nname = \"far\"\naf_packet = {{ interface = \"m1\" }}\n{far}\
         [[bridge]]\ndevices = [\"near\", \"far\"]\n"
    )
}

/// Returns how many packets the qdisc or class has sent, in tc's text.
fn sent(text: &str, of: &str) -> u64 {
    let (_, rest) = text.split_once(of).unwrap_or_else(|| panic!("no {of} in {text}"));
    let sent = rest.split(" bytes ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    sent.unwrap_or_else(|| panic!("{text}"))
}

/// Of an htb, one class changes: the others keep their counters, and no packet is lost.
#[test]
fn untouched_queues_keep_packets_and_counters() {
    let Some(bench) = Bench::new("untouched_queues_keep_packets_and_counters", "af_packet", true) else {
        return;
    };
    let daemon = bench.daemon(&file(HTB));
    assert!(bench.answers(LONG));
    let count = "200";
    let ping = ["-n", "-c", count, "-w", "120", "-i", "0.01", FAR];
    let ping = Running::start(bench.near.command("ping").args(ping));
    assert!(wait_until(LONG, || sent(&bench.txq("tc -s class show dev far").good(), "class htb 1:20 ") > 20));
    let before = bench.txq("tc -s class show dev far").good();
    bench.write(&file(
        &HTB.replace("rate 10mbit", "rate 12mbit")
            .replace("handle 20: fq_codel", "handle 20: fq_codel limit 500"),
    ));
    let said = bench.txq("reload").good();
    assert_eq!(
        said,
        "txq: device \"far\": class replace parent 1: classid 1:10 htb rate 12mbit\n\
         txq: device \"far\": qdisc replace parent 1:20 handle 20: fq_codel limit 500\n"
    );
    let after = bench.txq("tc -s class show dev far").good();
    assert!(after.contains("rate 12Mbit") && !after.contains("rate 10Mbit"), "{after}");
    assert!(sent(&after, "class htb 1:20 ") >= sent(&before, "class htb 1:20 "), "{before}{after}");
    assert!(bench.txq("tc qdisc show dev far").good().contains("fq_codel 20: parent 1:20 limit 500p"));
    // A filter and a class go; the class of the traffic stays.
    bench.write(&file(
        "qdisc = \"handle 1: htb default 20\"\ntc = [\"class add parent 1: classid 1:20 htb rate 90mbit\", \
         \"qdisc add parent 1:20 handle 20: fq_codel limit 500\"]\n",
    ));
    let said = bench.txq("reload").good();
    assert_eq!(
        said,
        "txq: device \"far\": filter del parent 1:\ntxq: device \"far\": class del classid 1:10\n"
    );
    let last = bench.txq("tc -s class show dev far").good();
    assert!(
        !last.contains("1:10") && sent(&last, "class htb 1:20 ") >= sent(&after, "class htb 1:20 "),
        "{last}"
    );
    let ended = ping.finish(LONG);
    assert!(ended.stdout.contains(&format!("{count} received")), "{}", ended.stdout);
    assert_eq!(bench.txq("reload").good(), "txq: nothing has changed\n");
    bench.assert_explained("near", "far");
    drop(end(daemon));
}

/// A wrong file changes nothing, and says why to the caller, or on stderr after SIGHUP.
#[test]
fn a_wrong_file_changes_nothing() {
    let Some(bench) = Bench::new("a_wrong_file_changes_nothing", "af_packet", true) else { return };
    let daemon = bench.daemon(&file(HTB));
    assert!(bench.answers(LONG));
    let shown = || (bench.txq("tc qdisc show").good(), bench.txq("tc class show dev far").good());
    let before = shown();
    let path = bench.folder.path().join("txq.toml").display().to_string();
    for (far, why) in [
        (
            "qdiscs = \"fq_codel\"\n",
            format!("{path}:8:1: there is no key \"qdiscs\" here: did you mean \"qdisc\"?"),
        ),
        ("qdisc = \"htb rate 5\"\n", format!("{path}:8:1: ")),
        (&HTB.replace("parent 1: classid 1:20", "parent 7: classid 7:20"), format!("{path}:11:5: ")),
        (
            "txqs = 4\naf_xdp = { interface = \"m1\" }\n",
            format!("{path}:9:1: a device is both af_packet and af_xdp"),
        ),
    ] {
        bench.write(&file(far));
        let said = bench.txq("reload");
        assert!(said.rc == 2 && said.err.starts_with(&format!("txq: {why}")), "{far}: {said:?}");
        // The daemon may have said the same about the file before.
        let complaints = || daemon.text().matches(&format!("txq: {why}")).count();
        let earlier = complaints();
        daemon.signal(libc::SIGHUP);
        assert!(wait_until(LONG, || complaints() > earlier), "{why}: {}", daemon.text());
        assert_eq!(shown(), before);
    }
    bench.write(&file(HTB).replace("interface = \"m1\"", "interface = \"m9\""));
    let said = bench.txq("reload");
    assert!(said.rc == 2 && said.err.starts_with("txq: there is no interface \"m9\""), "{said:?}");
    assert_eq!(shown(), before);
    assert!(bench.answers(LONG));
    drop(end(daemon));
}

/// Devices, bridges and senders come and go.
#[test]
fn devices_and_bridges_come_and_go() {
    let Some(bench) = Bench::new("devices_and_bridges_come_and_go", "af_packet", true) else { return };
    let mut daemon = bench.daemon("device = [{ name = \"idle\" }]\n");
    assert!(bench.txq("dev show").good().starts_with("idle: "));
    bench.write(&file(""));
    daemon.signal(libc::SIGHUP);
    daemon.wait_for_text("txq: the bridge of \"near\" and \"far\" is started", LONG);
    assert!(bench.answers(LONG));
    // Another driver for one end: the device is opened anew, and the other one keeps its counters.
    let before = bench.counter("near", "tx_packets");
    bench.write(&file("").replace(
        "af_packet = { interface = \"m1\" }",
        "af_packet = { interface = \"m1\", kernel_qdisc = true }",
    ));
    let said = bench.txq("reload").good();
    assert_eq!(
        said,
        "txq: device \"far\" is opened anew\ntxq: the bridge of \"near\" and \"far\" is started\n"
    );
    assert!(bench.answers(LONG));
    assert!(bench.counter("near", "tx_packets") > before);
    let senders = "[[device]]\nname = \"test\"\nnull = {}\n[[sender]]\ndevice = \"test\"\nrate = \"1kpps\"\n";
    bench.write(&format!("{}{senders}", file("")));
    assert!(bench.txq("reload").good().contains("txq: the senders are started anew\n"));
    assert!(wait_until(LONG, || bench.counter("test", "tx_packets") > 10));
    bench.write("device = [{ name = \"idle\" }]\n");
    let said = bench.txq("reload").good();
    for line in ["device \"near\" is closed", "device \"idle\" is opened", "is stopped"] {
        assert!(said.contains(line), "{said}");
    }
    assert!(!bench.answers(Duration::from_secs(1)));
    drop(end(daemon));
}

/// Many reloads cost neither memory nor descriptors. `TXQ_RELOADS` sets their number.
#[test]
fn reloads_leave_nothing_behind() {
    let Some(bench) = Bench::new("reloads_leave_nothing_behind", "af_packet", true) else { return };
    let reloads: u64 = std::env::var("TXQ_RELOADS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    // Without it the allocator keeps buffers that were freed: none, or 16 or 32 MiB, as the threads happen to free them.
    let returns_what_is_freed = ("MALLOC_MMAP_THRESHOLD_", "131072");
    let daemon =
        bench.start_with(&["daemon", "--config", &bench.write(&file(HTB))], &[returns_what_is_freed]);
    assert!(bench.answers(LONG));
    let files = [
        file(HTB),
        file(&HTB.replace("rate 10mbit", "rate 12mbit")),
        file("qdisc = \"cake bandwidth 50mbit\"\n"),
        file(HTB).replace("interface = \"m0\"", "interface = \"m0\", kernel_qdisc = true"),
    ];
    let ping = ["-n", "-i", "0.01", "-w", "600", FAR];
    let ping = Running::start(bench.near.command("ping").args(ping));
    let once = |n: u64| {
        bench.write(&files[n as usize % files.len()]);
        bench.txq("reload").good();
    };
    let measured = || {
        let descriptors = daemon.status("FDSize:");
        (daemon.status("VmRSS:"), daemon.status("Threads:"), descriptors)
    };
    (0..reloads / 4).for_each(once);
    let before = measured();
    (0..reloads).for_each(once);
    // What ends is gone before the reload answers, except for threads that the kernel has not reaped yet.
    assert!(wait_until(LONG, || measured().1 <= before.1 + 1), "{before:?} {:?}", measured());
    let after = measured();
    assert_eq!(after.2, before.2, "{before:?} {after:?}");
    // A device that leaked would leave 32 MiB of buffers behind, each time.
    let allowed = 8 << 10;
    assert!(after.0 <= before.0 + allowed, "{before:?} {after:?} KiB after {reloads} reloads");
    assert!(bench.answers(LONG));
    drop(ping);
    drop(end(daemon));
}
