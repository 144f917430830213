//! The shell blocks of the documents: what each needs and must print.

use crate::shell::{BLOCK, Block};
use crate::{DOCUMENTS, documents, fenced, read};

const DAEMON: Block = Block { document: "docs/daemon.md", ..BLOCK };
const EXEC: Block = Block {
    document: "docs/exec.md",
    tools: &["iperf3", "dig", "ss"],
    before: "other_host; program server 'iperf3 -u -c 192.0.2.1 -b 1M -t 5'; program resolver 'dig @192.0.2.1 example.org'",
    ..BLOCK
};
/// A device with four txqs, of which the document speaks.
const RATE: Block = Block {
    document: "docs/rate.md",
    before: "(txq daemon &); until txq dev add up numtxqueues 4 2> /dev/null; do sleep 0.05; done",
    after: "txq tc qdisc show dev up",
    ..BLOCK
};
const LINK: Block = Block { document: "docs/bad-link.md", tools: &["ping"], needs_tun: true, ..BLOCK };
/// Blocks that measure or compile.
const LONG: Block = Block { builds: true, ..BLOCK };

/// Makes a test of each block.
macro_rules! blocks {
    ($($(#[$attribute:meta])* $test:ident = $block:expr;)*) => {
        const BLOCKS: &[Block] = &[$($block),*];
        $(
            #[test]
            $(#[$attribute])*
            fn $test() {
                $block.run(stringify!($test));
            }
        )*
    };
}

blocks! {
    the_daemon_has_a_device_and_its_queues = Block {
        part: "txq dev add d0",
        check: |said| assert!(said.contains("qdisc tbf 1: root refcnt 5 rate 10Mbit"), "{said}"),
        ..BLOCK
    };
    a_script_of_tc_runs_unchanged = Block {
        document: "docs/from-tc.md",
        part: "tc qdisc add dev m-far root handle 1: netem delay 40ms",
        tools: &["ping"],
        check: |said| {
            assert!(said.contains("qdisc tbf 10: parent 1:1 rate 5Mbit burst 10Kb"), "{said}");
            assert!(said.contains("3 received, 0% packet loss") && fastest(said)[0] >= 40.0, "{said}");
            assert!(said.contains("m-far root handle 1: netem"), "{said}");
        },
        ..BLOCK
    };
    a_site_has_its_customers = Block {
        document: "docs/from-libreqos.md",
        part: "site.tc",
        tools: &["ping"],
        check: |said| {
            assert!(said.contains("3 received, 0% packet loss"), "{said}");
            // The filter leads the pings to the customer's class.
            let class = said.split("class htb_mq 1:2 ").nth(1).unwrap_or_else(|| panic!("{said}"));
            let sent = class.lines().nth(1).unwrap_or_default();
            assert!(sent.contains(" 3 pkt "), "{said}");
        },
        ..BLOCK
    };
    a_pod_has_its_rates = Block {
        document: "docs/from-cni.md",
        part: "pod.toml",
        tools: &["ping"],
        needs_tun: true,
        check: |said| {
            assert!(said.contains("3 received, 0% packet loss"), "{said}");
            assert!(said.contains("rate 8Mbit") && said.contains("rate 4Mbit"), "{said}");
        },
        ..BLOCK
    };
    a_capture_is_replayed_into_an_interface = Block {
        document: "docs/replay.md",
        part: "txq replay real.pcap",
        tools: &["iperf3", "tcpdump", "ethtool", "sysctl"],
        check: |said| assert!(said.contains("w1") && said.contains("RX:"), "{said}"),
        ..BLOCK
    };
    a_bridge_is_tried_and_changed = Block {
        part: "txq bridge m-near m-far --up",
        tools: &["ping"],
        check: |said| {
            assert_eq!(said.matches("3 received, 0% packet loss").count(), 2, "{said}");
            // The second ping goes through netem.
            assert!(fastest(said)[1] >= 50.0, "{said}");
            assert!(said.contains("qdisc netem") && said.contains("tx_packets: "), "{said}");
        },
        ..DAEMON
    };
    a_namespace_is_shaped = Block {
        part: "txq daemon --config /tmp/blue.toml",
        tools: &["ping"],
        needs_tun: true,
        check: |said| assert!(said.contains("3 received, 0% packet loss"), "{said}"),
        ..DAEMON
    };
    a_packet_is_followed = Block {
        part: "txq trace --name try",
        tools: &["ping"],
        check: |said| {
            let line = |event: &str| {
                let begin = format!(" m-far:0 1: {event} len 98 10.9.0.1 > 10.9.0.2 icmp");
                said.lines().find(|line| line.contains(&begin))
            };
            assert!(line("qdisc_enqueue").is_some() && said.contains("txq: 8 events, 0 lost"), "{said}");
            // Each of the first three packets has an event at least, and the last of eight comes when one has left or is
            // dropped.
            let end = line("kfree_skb").or(line("qdisc_dequeue")).unwrap_or_else(|| panic!("{said}"));
            assert!(end.contains(" reason QDISC_OVERLIMIT") || end.contains(" sojourn "), "{said}");
        },
        ..DAEMON
    };
    #[cfg(feature = "watch")]
    a_program_is_watched = Block {
        document: "docs/watch.md",
        part: "txq web --name served",
        tools: &["curl"],
        check: |said| {
            assert!(said.contains("\ntxq_device_sent_packets_total{dev=\"null0\"} "), "{said}");
            assert!(said.contains("{\"program\":") && said.contains("\"null0\""), "{said}");
        },
        ..BLOCK
    };
    the_kernels_own_device_is_examined = Block {
        document: "docs/watch.md",
        part: "txq xps auto eth0 --dry-run",
        before: "ip link add eth0 numtxqueues 2 type veth peer name peer; ip link set eth0 up; ip link set peer up",
        check: |said| assert!(said.contains("eth0") && said.contains("xps_cpus"), "{said}"),
        ..BLOCK
    };
    a_served_program_is_changed_and_recorded = Block {
        document: "docs/control.md",
        part: "txq contention --name served",
        check: |said| {
            assert!(said.contains("serving on ") && said.contains("qdisc tbf"), "{said}");
            assert!(said.contains("rate 1Mbit burst 10Kb"), "{said}");
        },
        ..BLOCK
    };
    programs_in_three_languages_send = Block {
        document: "docs/socket.md",
        part: "socket_send.go",
        tools: &["cc", "go"],
        check: |said| assert!(said.contains("socket_socket_frames: 3000\n"), "{said}"),
        ..BLOCK
    };
    unchanged_programs_are_shaped = Block {
        part: "txq exec --qdisc 'fq maxrate 20mbit'",
        check: |said| {
            assert!(said.contains("qdisc fq ") && said.contains("maxrate 20Mbit"), "{said}");
            assert!(said.contains("ANSWER: 1") && said.contains("received\nqdisc netem "), "{said}");
        },
        ..EXEC
    };
    an_unchanged_program_is_changed = Block {
        part: "txq exec --name web",
        check: |said| assert!(said.contains("web") && said.contains("qdisc fq "), "{said}"),
        ..EXEC
    };
    an_unchanged_program_has_classes = Block {
        part: "cat > classes.tc",
        check: |said| assert!(said.contains("ANSWER: 1") && said.contains("qdisc prio 1:"), "{said}"),
        ..EXEC
    };
    the_library_is_loaded_by_hand = Block {
        part: "LD_PRELOAD=",
        check: |said| assert!(said.contains("192.0.2.1 port 5201"), "{said}"),
        ..EXEC
    };
    txqs_share_one_rate = Block {
        part: "parent 1:1 fq_codel",
        check: |said| {
            assert!(said.contains("qdisc tbf_mq 1: root refcnt 5 rate 10Gbit burst "), "{said}");
            assert!(said.contains("parent 1:1 limit 10240p flows 1024"), "{said}");
        },
        ..RATE
    };
    txqs_share_classes = Block {
        part: "root handle 1: htb_mq",
        check: |said| {
            assert!(said.contains("qdisc htb_mq 1: root") && said.contains("parent 1:10 limit 10240p"), "{said}");
        },
        ..RATE
    };
    txqs_have_a_cake_each = Block {
        part: "root cake_mq",
        check: |said| assert!(said.matches("bandwidth 10Gbit diffserv4").count() >= 4, "{said}"),
        ..RATE
    };
    cakes_share_one_rate = Block {
        part: "cake unlimited",
        check: |said| assert!(said.contains("parent 1:1 bandwidth unlimited"), "{said}"),
        ..RATE
    };

    #[ignore = "cargo xtask check operator"]
    the_main_job_runs = Block { part: "cargo run --release -- run", ..LONG };
    #[ignore = "cargo xtask check operator"]
    waits_are_recorded =
        Block { document: "docs/programs.md", part: "contention --discipline spinlock", ..LONG };
    #[ignore = "cargo xtask check operator"]
    five_systems_are_shown = Block { document: "docs/systems.md", part: "bench xps", ..LONG };
    #[ignore = "cargo xtask check operator"]
    clients_are_killed_for_long = Block { document: "docs/socket.md", part: "TXQ_SOCKET_SECONDS=600", ..LONG };
    a_ping_has_the_delay_of_its_link = Block {
        part: "--down 'netem delay 30ms' -- ping",
        check: |said| {
            assert!(said.contains("3 received, 0% packet loss"), "{said}");
            assert!(fastest(said)[0] >= 49.9, "{said}");
        },
        ..LINK
    };
    a_server_is_behind_the_link = Block {
        part: "iperf3 -s -1",
        tools: &["iperf3"],
        check: |said| assert!(said.contains("receiver") && said.contains("iperf Done"), "{said}"),
        ..LINK
    };
    a_link_is_changed_while_it_runs = Block {
        part: "delay 100ms loss 10%",
        check: |said| {
            assert!(fastest(said)[1] >= 99.9, "{said}");
            assert!(said.contains("qdisc netem") && said.contains("20 packets transmitted"), "{said}");
        },
        ..LINK
    };
    a_link_follows_a_recording = Block {
        part: "train.csv <<",
        check: |said| assert!(said.contains("8 packets transmitted") && fastest(said)[0] >= 19.9, "{said}"),
        ..LINK
    };
    a_link_is_a_file = Block {
        part: "dsl.tc <<",
        check: |said| assert!(fastest(said)[0] >= 23.9, "{said}"),
        ..LINK
    };
    links_are_chained = Block {
        part: "-- txq shell --quiet --up",
        check: |said| assert!(fastest(said)[0] >= 28.9, "{said}"),
        ..LINK
    };
    #[ignore = "cargo xtask check operator"]
    quic_is_fetched_over_a_link = Block {
        check: |said| {
            assert!(said.contains("4000000 bytes in ") && said.contains("\n1000000 bytes in "), "{said}");
        },
        before: "cargo build --release; PATH=$PWD/target/release:$PATH",
        ..Block { document: "docs/bad-link.md", part: "--example fetch", needs_tun: true, ..LONG }
    };
    #[ignore = "cargo xtask check operator"]
    txq_is_installed = Block { document: "docs/install.md", part: "cargo install --path", ..LONG };
    #[ignore = "cargo xtask check operator"]
    a_program_sends_its_first_packet = Block {
        document: "docs/install.md",
        part: "cargo new",
        before: "rm -rf /tmp/first",
        after: "rm -rf /tmp/first",
        check: |said| assert!(said.contains("Sent 60 bytes 1 pkt"), "{said}"),
        ..LONG
    };
    #[ignore = "cargo xtask check operator"]
    exec_is_measured = Block { document: "docs/exec.md", part: "--example exec_overhead", ..LONG };
    #[ignore = "cargo xtask check operator"]
    the_ping_through_bridges_is_measured =
        Block { document: "docs/daemon.md", part: "--example bridge_latency", ..LONG };
    #[ignore = "cargo xtask check operator"]
    the_goodput_of_bridges_is_measured =
        Block { document: "docs/daemon.md", part: "--example bridge_goodput", ..LONG };
    #[ignore = "cargo xtask check operator"]
    flows_of_many_txqs_are_compared =
        Block { document: "docs/rate.md", part: "--lib flows_are_as_equal", ..LONG };
    #[ignore = "cargo xtask check operator"]
    the_packets_of_bridges_are_measured =
        Block { document: "docs/daemon.md", part: "--example bridge_packets", ..LONG };
}

/// Returns the smallest round trip of each ping, in milliseconds.
fn fastest(said: &str) -> Vec<f64> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
    lines.map(|times| times.split('/').next().expect("a time").parse().expect("a time")).collect()
}

/// What a line of a block begins with that is a command to type.
const COMMANDS: [&str; 12] =
    ["$ ", "sudo ", "txq ", "cargo ", "tc ", "ip ", "curl ", "unshare ", "make ", "cc ", "wg ", "tcpdump "];

/// The line in front of a block that no test runs, around the reason.
const MARK: (&str, &str) = ("<!-- not run: ", " -->");

/// Returns each fenced block with commands to type, and why no test runs it, if the document says so.
fn commands(document: &str) -> Vec<(String, Option<String>)> {
    let text = read(document);
    let (mut found, mut lines, mut before) = (Vec::new(), text.lines(), "");
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block: String =
                lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
            let has = block.lines().any(|line| COMMANDS.iter().any(|command| line.starts_with(command)));
            if has && ["", "sh", "text"].contains(&language) {
                let reason = before.strip_prefix(MARK.0).and_then(|rest| rest.strip_suffix(MARK.1));
                found.push((block, reason.map(str::to_owned)));
            }
        }
        before = line;
    }
    found
}

/// Each block with commands, in any document, has a test or says why it has none.
#[test]
fn each_block_of_the_documents_has_its_test() {
    for document in documents() {
        let tests: Vec<_> = BLOCKS.iter().filter(|block| block.document == document).collect();
        for (block, reason) in commands(&document) {
            let tests: Vec<_> =
                tests.iter().filter(|test| block.contains(test.part)).map(|test| test.part).collect();
            let expected = usize::from(reason.is_none());
            assert_eq!(
                tests.len(),
                expected,
                "{document}: {tests:?} are the tests of a block; one without a test has the line {MARK:?}\n{block}"
            );
        }
    }
    for document in DOCUMENTS {
        assert!(!fenced(document, "sh").is_empty(), "{document} has no shell block");
    }
}
