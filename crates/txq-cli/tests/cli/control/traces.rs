//! `txq trace` of a program that sends.

use serde_json::Value;

use super::{LONG, Place, wait_for};
use crate::support::process::Running;

/// Starts a trace; waits until it has begun.
fn start(place: &Place, words: &str) -> Running {
    let mut running = Running::start(&mut place.command(&format!("trace --name shaper {words}")));
    running.wait_for_text("txq: tracing null0", LONG);
    running
}

/// Returns the output of a trace that ends by itself without losses.
#[track_caller]
fn whole(place: &Place, words: &str) -> String {
    let ended = place.txq(&format!("trace --name shaper {words}"));
    assert!(ended.status.success(), "{words}: {}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.lines().last().is_some_and(|line| line.contains(" events, ")), "{}", ended.stderr);
    ended.stdout
}

#[test]
fn each_step_is_a_line() {
    let place = Place::new();
    let _program = place.example("shaper", 600);
    let text = whole(&place, "-c 30");
    assert_eq!(text.lines().count(), 30, "{text}");
    let packet = " len 1000 00:00:00:00:00:00 > 00:00:00:00:00:00 0x0004";
    for line in text.lines() {
        assert!(line.contains(" null0:0 8001: ") && line.contains(packet), "{line}");
    }
    for (event, end) in [("qdisc_enqueue", packet), ("qdisc_dequeue", "s"), ("net_dev_start_xmit", packet)] {
        let text = whole(&place, &format!("-c 5 --event {event}"));
        assert_eq!(
            text.lines().filter(|line| line.contains(event) && line.ends_with(end)).count(),
            5,
            "{text}"
        );
    }
    assert!(whole(&place, "-c 5 --event qdisc:qdisc_dequeue").lines().all(|line| line.contains(" sojourn ")));
    // The program's frames are zeros.
    for (words, lines) in [("-c 3 greater 1000", 3), ("--duration 50ms udp", 0)] {
        assert_eq!(whole(&place, words).lines().count(), lines, "{words}");
    }
    assert_eq!(whole(&place, "-c 3 --handle 8001:").lines().count(), 3);
    assert_eq!(whole(&place, "-c 3 --handle root -i null0").lines().count(), 3);
    assert_eq!(whole(&place, "--duration 50ms --handle 9:"), "");
}

#[test]
fn drops_have_their_reason_in_json() {
    let place = Place::new();
    let _program = place.example("shaper", 600);
    place.good("tc --name shaper qdisc replace dev null0 root handle 5: pfifo limit 0");
    for words in ["--event kfree_skb", "--reason qdisc_overlimit"] {
        let text = whole(&place, &format!("-c 4 --json {words}"));
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let (end, events) = lines.split_last().expect("lines");
        assert_eq!(
            (events.len(), end["events"].as_u64(), end["lost"].is_u64()),
            (4, Some(4), true),
            "{text}"
        );
        for event in events {
            assert_eq!((event["event"].as_str(), event["dev"].as_str()), (Some("kfree_skb"), Some("null0")));
            assert_eq!(
                (event["reason"].as_str(), event["handle"].as_str()),
                (Some("QDISC_OVERLIMIT"), Some("5:"))
            );
            assert_eq!((event["txq"].as_u64(), event["len"].as_u64()), (Some(0), Some(1000)), "{event}");
            assert!(event["time_ns"].as_u64() > Some(1_600_000_000_000_000_000), "{event}");
        }
    }
}

#[test]
fn a_signal_ends_a_trace_with_its_losses() {
    let place = Place::new();
    let _program = place.example("shaper", 600);
    let running = start(&place, "");
    running.signal(libc::SIGINT);
    let ended = running.finish(LONG);
    let last = ended.stderr.lines().last().unwrap_or_default().to_owned();
    assert!(ended.status.success() && last.ends_with(" lost"), "{}", ended.stderr);
    let events: u64 = last["txq: ".len()..].split(' ').next().unwrap().parse().unwrap();
    assert_eq!(ended.stdout.lines().count() as u64, events);
    // A trace that is killed leaves no trace: as many as may run can begin again and again.
    for _ in 0..6 {
        let killed = start(&place, "--json");
        killed.signal(libc::SIGKILL);
        drop(killed);
        wait_for("room for a trace", || place.txq("trace --name shaper -c 1").status.success());
    }
}

#[test]
fn a_capture_has_a_comment_for_each_packet() {
    let place = Place::new();
    let _program = place.example("shaper", 600);
    let file = place.0.path().join("trace.pcapng");
    let said = whole(&place, &format!("-c 9 -w {}", file.display()));
    assert_eq!(said, "");
    let bytes = std::fs::read(&file).expect("a file");
    let comments = comments(&bytes);
    assert_eq!(comments.len(), 9, "{comments:?}");
    assert!(comments.iter().all(|comment| comment.contains(" dev null0 txq 0 queue 8001:")), "{comments:?}");
    // To a pipe, too.
    let piped = place.command("trace --name shaper -c 3 -w -").output().expect("a trace");
    assert_eq!(self::comments(&piped.stdout).len(), 3);
    let refused = place.txq("trace --name shaper -w /nonexistent/file -c 1");
    assert!(
        refused.status.code() == Some(2) && refused.stderr.contains("cannot be written"),
        "{}",
        refused.stderr
    );
}

/// Returns the comments of the packets, each of which has 128 bytes of 1000.
fn comments(bytes: &[u8]) -> Vec<String> {
    use pcap_file::pcapng::{Block, PcapNgReader, blocks::enhanced_packet::EnhancedPacketOption};
    let mut reader = PcapNgReader::new(bytes).expect("a header");
    let mut comments = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.expect("a block") {
            assert_eq!((packet.data.len(), packet.original_len), (128, 1000));
            let comment = packet.options.iter().find_map(|option| match option {
                EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                _ => None,
            });
            comments.push(comment.expect("a comment"));
        }
    }
    comments
}

#[test]
fn wrong_words_are_bad_input() {
    let place = Place::new();
    let _program = place.example("shaper", 600);
    for (words, says) in [
        ("udp port", "at its end"),
        ("host example.com", "an IPv4 or IPv6 address"),
        ("((((", "at its end"),
        ("\u{7f}garbage", "use host, net, port"),
        ("--event enqueue", "use qdisc_enqueue"),
        ("--reason QDISC_OVERLIMT", "did you mean \"QDISC_OVERLIMIT\""),
        ("--handle x:", "no handle"),
        ("--txq 70000", "70000"),
        ("--txq 7", "there are 1 txqs at most: use 0 to 0"),
        ("-c 0", "0"),
        ("-c -1", "-1"),
        ("--duration 5", "has no unit"),
        ("--json -w x", "cannot be used with"),
    ] {
        let ended = place.txq(&format!("trace --name shaper {words}"));
        let code = ended.status.code();
        assert!(code == Some(1) && ended.stderr.contains(says), "{words}: {code:?} {}", ended.stderr);
    }
    let refused = place.refused("trace --name shaper -i d7");
    assert!(refused.contains("Cannot find device \"d7\""), "{refused}");
    let refused = place.refused("trace --name other");
    assert!(refused.contains("no txq listens"), "{refused}");
}

/// The reader of the output is gone, as with `| head`.
#[test]
fn a_closed_pipe_ends_a_trace_quietly() {
    let place = Place::new();
    let _program = place.example("shaper", 600);
    let mut command = place.command("trace --name shaper");
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(String::from_utf8_lossy(&ended.stderr).lines().count(), 1);
}

#[test]
fn runs_and_daemons_are_traced_too() {
    let place = Place::new();
    let file = place.0.path().join("run.toml").display().to_string();
    std::fs::write(&file, "[[device]]\nname = \"d0\"\n[[sender]]\nrate = \"10kpps\"\n").expect("a file");
    let run = Running::start(&mut place.command(&format!("run {file} --name mine --quiet --duration 600s")));
    wait_for("the run", || place.txq("tc --name mine qdisc").status.success());
    let traced = place.txq("trace --name mine -c 6 udp and greater 60");
    assert!(traced.status.success() && traced.stdout.lines().count() == 6, "{}", traced.stderr);
    assert!(
        traced.stdout.lines().all(|line| line.contains(" d0:") && line.contains(" udp")),
        "{}",
        traced.stdout
    );
    drop(run);
    // A device that comes with a command is traced, and its end ends the trace.
    let _daemon = place.daemon("");
    let refused = place.refused("trace");
    assert!(refused.contains("there is no device"), "{refused}");
    place.good("dev add d1");
    let mut running = Running::start(&mut place.command("trace"));
    running.wait_for_text("txq: tracing d1", LONG);
    place.good("dev del d1");
    let ended = running.finish(LONG);
    assert!(ended.status.success() && ended.stderr.contains("0 events, 0 lost"), "{}", ended.stderr);
}
