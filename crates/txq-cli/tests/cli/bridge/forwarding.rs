//! Traffic through the bridge, and changes by tc meanwhile.

use std::time::Duration;

use super::bench::{Bench, FAR, LONG, end};
use crate::support::process::{Running, run, wait_until};

fn file(kind: &str, more: &str) -> String {
    format!(
        "[[device]]\nname = \"near\"\n{kind} = {{ interface = \"m0\" }}\nqdisc = \"fq_codel\"\n\
         [[device]]\nname = \"far\"\n{kind} = {{ interface = \"m1\" }}\nqdisc = \"fq_codel\"\n\
         [[bridge]]\ndevices = [\"near\", \"far\"]\n{more}"
    )
}

/// Ping, TCP in both directions and UDP pass, and the counters explain every packet.
fn talk(test: &str, kind: &str, more: &str, offloads: bool) {
    let Some(bench) = Bench::new(test, kind, offloads) else { return };
    let daemon = bench.daemon(&file(kind, more));
    assert!(bench.answers(LONG));
    bench.ping(50, 1400);
    for words in ["-n 8M", "-n 8M -R"] {
        let tcp = bench.iperf3(words);
        assert!(tcp["end"]["sum_sent"]["bytes"].as_u64() >= Some(8 << 20), "{tcp}");
    }
    let udp = bench.iperf3("-u -b 10M -l 1000 -t 1");
    assert_eq!(udp["end"]["streams"][0]["udp"]["out_of_order"].as_u64(), Some(0), "{udp}");
    assert!(udp["end"]["sum"]["packets"].as_u64() > Some(100), "{udp}");
    for (from, to) in [("near", "far"), ("far", "near")] {
        bench.assert_explained(from, to);
        assert!(bench.counter(from, "rx_packets") > 100, "{}", bench.txq("stat").out);
    }
    let said = end(daemon);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!bench.folder.path().join("control.sock").exists());
}

#[test]
fn programs_talk_over_af_packet() {
    talk("programs_talk_over_af_packet", "af_packet", "", false);
}

/// The kernel hands over packets of many segments, with checksums to complete.
#[test]
fn programs_talk_with_offloads() {
    talk("programs_talk_with_offloads", "af_packet", "", true);
}

#[test]
fn programs_talk_with_whole_segments() {
    talk("programs_talk_with_whole_segments", "af_packet", "segments = \"keep\"\n", true);
}

#[test]
fn programs_talk_over_af_xdp() {
    talk("programs_talk_over_af_xdp", "af_xdp", "", false);
}

/// Whole packets pass as such, and a tbf cuts those that its bucket does not hold.
#[test]
fn segments_are_kept_where_they_may_be() {
    let Some(bench) = Bench::new("segments_are_kept_where_they_may_be", "af_packet", true) else { return };
    let daemon = bench.daemon(&file("af_packet", "segments = \"keep\"\n"));
    assert!(bench.answers(LONG));
    let longest = |bench: &Bench| {
        bench.iperf3("-n 8M");
        bench.assert_explained("near", "far");
        let (bytes, packets) = (bench.counter("far", "tx_bytes"), bench.counter("far", "tx_packets"));
        bytes / packets.max(1)
    };
    // On average; a single segment has 1514 bytes.
    assert!(longest(&bench) > 1600, "{}", bench.txq("stat far").out);
    bench.txq("tc qdisc replace dev far root tbf rate 200mbit burst 20k limit 1m").good();
    let before = (bench.counter("far", "tx_bytes"), bench.counter("far", "tx_packets"));
    bench.iperf3("-n 2M");
    let after = (bench.counter("far", "tx_bytes"), bench.counter("far", "tx_packets"));
    assert!((after.0 - before.0) / (after.1 - before.1) <= 20 << 10, "{}", bench.txq("stat far").out);
    drop(end(daemon));
}

/// The one-line form, and tc under traffic: a shaped direction is never faster than its rate.
#[test]
fn a_change_by_tc_takes_effect_under_traffic() {
    let Some(bench) = Bench::new("a_change_by_tc_takes_effect_under_traffic", "af_packet", true) else {
        return;
    };
    let bridge = bench.start(&["bridge", "m0", "m1", "--up", "tbf rate 40mbit burst 20k latency 50ms"]);
    assert!(bench.answers(LONG));
    let rate = |report: &serde_json::Value| {
        report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_default()
    };
    let first = bench.iperf3("-t 2");
    assert!((1e3..42e6).contains(&rate(&first)), "{first}");
    let mut load = Running::start(bench.far.command("iperf3").args(["-s", "-1", "--forceflush"]));
    load.wait_for_text("Server listening", LONG);
    let client = Running::start(bench.near.command("iperf3").args(["-c", FAR, "-t", "4", "-J"]));
    assert!(wait_until(LONG, || bench.counter("m1", "tx_packets") > 100));
    bench.txq("tc qdisc replace dev m1 root tbf rate 4mbit burst 20k latency 50ms").good();
    // From here on, whatever was queued is dropped, and no second has more than 4 Mbit and a bucket.
    let before = bench.counter("m1", "tx_bytes");
    let start = std::time::Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let (bytes, took) = (bench.counter("m1", "tx_bytes") - before, start.elapsed().as_secs_f64());
    assert!(bytes as f64 <= 4e6 / 8.0 * took + 20e3 + 3000.0, "{bytes} bytes in {took} s");
    assert!(bytes > 0);
    drop((client.finish(LONG), load.finish(LONG)));
    let shown = bench.txq("tc -s qdisc show dev m1").good();
    assert!(shown.contains("rate 4Mbit") && !shown.contains("Sent 0 bytes"), "{shown}");
    let hist = bench.txq("hist --dev m1 --what driver --since-start --quiet").good();
    assert!(hist.contains('@'), "{hist}");
    bench.assert_explained("m0", "m1");
    drop(end(bridge));
}

/// A frame with a VLAN tag arrives with it, also if the kernel takes tags off.
#[test]
fn vlan_tags_pass() {
    let Some(bench) = Bench::new("vlan_tags_pass", "af_packet", true) else { return };
    let daemon = bench.daemon(&file("af_packet", ""));
    assert!(bench.answers(LONG));
    let dump = ["-i", "e0", "-Q", "in", "-e", "-n", "-l", "-c", "2", "vlan 7"];
    let mut dump = Running::start(bench.far.command("tcpdump").args(dump));
    dump.wait_for_text("listening on", LONG);
    // One tag of 802.1Q, and one of 802.1ad around another; priority 5 and VLAN 7 in both.
    bench.near.call(|| {
        send_frame("e0", &[&[0x81, 0, 0xa0, 7, 0x12, 0x34], &[1; 50][..]].concat());
        send_frame("e0", &[&[0x88, 0xa8, 0xa0, 7, 0x81, 0, 0, 9, 0x12, 0x34], &[2; 50][..]].concat());
    });
    let seen = dump.finish(LONG).stdout;
    assert!(seen.contains("802.1Q (0x8100), length 68: vlan 7, p 5, "), "{seen}");
    assert!(
        seen.contains("802.1Q-QinQ (0x88a8), length 72: vlan 7, p 5, ") && seen.contains("vlan 9"),
        "{seen}"
    );
    drop(end(daemon));
}

/// The priority comes from the TOS field: prio's bands see it.
#[test]
fn the_tos_field_sets_the_priority() {
    let Some(bench) = Bench::new("the_tos_field_sets_the_priority", "af_packet", true) else { return };
    let daemon = bench.daemon(&file("af_packet", ""));
    assert!(bench.answers(LONG));
    bench.txq("tc qdisc replace dev far root handle 1: prio").good();
    // 0x10 is interactive, band 0; 0x08 is bulk, band 2.
    for tos in ["0x10", "0x08"] {
        run(bench.near.command("ping").args(["-n", "-c", "5", "-w", "60", "-i", "0.1", "-Q", tos, FAR]));
    }
    let shown = bench.txq("tc -s class show dev far").good();
    let packets = |class: &str| {
        let (_, rest) = shown.split_once(&format!("class prio {class} ")).expect(class);
        let sent = rest.split(" bytes ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        sent.unwrap_or_else(|| panic!("{shown}"))
    };
    assert!(packets("1:1") >= 5 && packets("1:3") >= 5, "{shown}");
    drop(end(daemon));
}

/// After a kill there is nothing left behind, and the next daemon carries traffic at once.
#[test]
fn a_killed_daemon_can_start_again() {
    for kind in ["af_packet", "af_xdp"] {
        let Some(bench) = Bench::new("a_killed_daemon_can_start_again", kind, false) else { return };
        let mut daemon = bench.daemon(&file(kind, ""));
        for _ in 0..3 {
            assert!(bench.answers(LONG));
            daemon.signal(libc::SIGKILL);
            assert!(!daemon.finish(LONG).status.success());
            let links = bench.middle.ip("-o -d link show");
            assert!(!links.contains("xdp"), "{links}");
            daemon = bench.daemon(&file(kind, ""));
        }
        assert!(bench.answers(LONG));
        assert!(end(daemon).contains("listening on"));
        assert_eq!(std::fs::read_dir(bench.folder.path()).expect("a folder").count(), 1);
    }
}

/// Sends a broadcast frame with these bytes behind the addresses, on an interface of the calling thread's namespace.
fn send_frame(interface: &str, rest: &[u8]) {
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], rest].concat();
    let name = std::ffi::CString::new(interface).expect("a name");
    // SAFETY: socket takes integers; the name ends with a zero; all zeros are a valid address, and `sendto` reads the frame and
    // the address, which live through the call; the descriptor is this function's own.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let sent = libc::sendto(socket, frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), size);
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
        libc::close(socket);
    }
}

/// cake has a limit in bytes, and classes of its own without qdiscs. With too few buffers, packets wait in the interface in front of it.
#[test]
fn a_device_with_cake_has_buffers_for_what_cake_may_queue() {
    let Some(bench) = Bench::new("a_device_with_cake_has_buffers_for_what_cake_may_queue", "af_packet", true)
    else {
        return;
    };
    let text = file("af_packet", "").replacen("fq_codel", "cake bandwidth 500mbit", 1).replacen(
        "\"fq_codel\"",
        "\"handle 1: tbf rate 500mbit burst 250k limit 3m\"\ntc = [\"qdisc add parent 1:1 cake\"]",
        1,
    );
    let daemon = bench.daemon(&text);
    // 15 MiB in frames of 1514 bytes.
    for dev in ["near", "far"] {
        assert!(bench.counter(dev, "pool_buffers") > (15 << 20) / 1514, "{}", bench.txq("stat").out);
    }
    drop(end(daemon));
}

#[test]
fn a_bridge_takes_little_memory() {
    takes_little_memory("a_bridge_takes_little_memory", "af_packet");
}

/// The kernel pins the buffers of the rings, and no others.
#[test]
fn a_bridge_of_af_xdp_takes_little_memory() {
    takes_little_memory("a_bridge_of_af_xdp_takes_little_memory", "af_xdp");
}

/// The bridge of a home router has at most 25 MB, at the start and after traffic: 18 MiB, and the pages of the program's file.
fn takes_little_memory(test: &str, kind: &str) {
    // AF_XDP takes frames as they are in the driver.
    let Some(bench) = Bench::new(test, kind, kind != "af_xdp") else { return };
    let [near, far] = ["m0", "m1"].map(|end| format!("{kind}:{end}"));
    let up = "cake bandwidth 50mbit";
    let daemon = bench.start(&["bridge", &near, &far, "--up", up, "--down", "cake bandwidth 100mbit"]);
    assert!(bench.answers(LONG));
    let memory = |daemon: &Running, when: &str| {
        let [all, program] = ["VmRSS:", "RssFile:"].map(|field| daemon.status(field));
        println!("{kind} {when}: {all} KiB, {program} KiB of them the program's file");
        assert!(all - program <= 18 << 10, "{all} - {program} KiB {when}");
        // Without optimization the file is longer.
        assert!(cfg!(debug_assertions) || all <= 25_000_000 >> 10, "{all} KiB {when}");
    };
    memory(&daemon, "at the start");
    for words in ["-P 4 -t 2", "-P 4 -t 2 -R"] {
        bench.iperf3(words);
    }
    memory(&daemon, "after traffic");
    drop(end(daemon));
}
