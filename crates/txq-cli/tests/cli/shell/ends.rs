//! Links between two ends: `--peer` and `--serve`. No privilege is needed, and nothing is reached but the other end.

use super::*;

#[test]
fn a_link_has_its_delay_and_its_rate_for_root_and_for_users() {
    let test = "a_link_has_its_delay_and_its_rate_for_root_and_for_users";
    if !ready(test, &["ping", "iperf3"]) {
        return;
    }
    let _alone = ALONE.lock();
    for user in users(test) {
        let bench = Bench::new();
        let qdiscs = ["--up", "netem delay 20ms", "--down", "netem delay 10ms"];
        let mut shell = bench.shell(user);
        shell.args(["--peer", "--quiet"]).args(qdiscs).args([
            "--",
            "ping",
            "-c",
            "3",
            "-i",
            "0.2",
            "198.18.0.1",
        ]);
        let ping = printed(&mut shell, 0);
        assert!(ping.contains(" 0% packet loss"), "{user:?}: {ping}");
        // A timer is never early; a clock of the kernel and one of txq may differ by little.
        assert!(round_trip(&ping) >= 29.9, "{user:?}: {ping}");

        let mut shell = bench.shell(user);
        shell.args(["--quiet", "--serve", "iperf3 -s -1", "--up", "tbf rate 4mbit burst 10k latency 50ms"]);
        let iperf = printed(shell.args(["--", "sh", "-c", "iperf3 -J -t 2 -c $TXQ_FAR"]), 0);
        let report: serde_json::Value = serde_json::from_str(&iperf).expect("JSON");
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate");
        // The burst, beside the rate.
        assert!(rate > 0.0 && rate < 4.4e6, "{user:?}: {rate}");
    }
}

#[test]
fn a_program_starts_after_the_far_end_is_prepared() {
    let test = "a_program_starts_after_the_far_end_is_prepared";
    if !ready(test, &["ip"]) {
        return;
    }
    let _alone = ALONE.lock();
    let bench = Bench::new();
    // The far end's first process is stopped as soon as it exists. One that was quicker proves nothing.
    for _ in 0..100 {
        let mut shell = bench.shell(User::Root);
        let shell = Running::start(shell.args(["--peer", "--quiet", "--", "echo", "begun"]));
        let mut far = None;
        assert!(wait_until(LONG, || {
            far = background_stage(shell.status("Pid:"));
            far.is_some()
        }));
        let far = far.expect("a process");
        // SAFETY: kill has no memory preconditions, and the shell ends this process only after the signals.
        let signal = |signal| unsafe { assert_eq!(libc::kill(far, signal), 0) };
        signal(libc::SIGSTOP);
        let addresses = || std::fs::read_to_string(format!("/proc/{far}/net/fib_trie")).unwrap_or_default();
        assert!(wait_until(LONG, || is_stopped(far)));
        let is_early = !addresses().contains("198.18.");
        if is_early {
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(shell.text(), "", "the program does not wait for the far end");
        }
        signal(libc::SIGCONT);
        let ended = shell.finish(LONG);
        assert_eq!((&*ended.stdout, ended.status.code()), ("begun\n", Some(0)), "{}", ended.stderr);
        if is_early {
            return;
        }
    }
    println!("SKIP {test}: the far end was always prepared before it could be stopped");
}

/// Returns the first process of the far end's namespace of a shell, whose output goes where its errors go.
fn background_stage(shell: u64) -> Option<libc::pid_t> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let stage = processes.map(|process| process.path()).find(|process| {
        let file = |number: u8| std::fs::read_link(process.join(format!("fd/{number}"))).ok();
        let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
        status.contains(&format!("\nPPid:\t{shell}\n"))
            && has_word(&process.join("cmdline"), "--stage")
            && file(1).is_some()
            && file(1) == file(2)
    })?;
    stage.file_name()?.to_str()?.parse().ok()
}

fn is_stopped(process: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

#[test]
fn all_protocols_pass_and_each_loss_is_counted() {
    let test = "all_protocols_pass_and_each_loss_is_counted";
    if !ready(test, &["ping"]) {
        return;
    }
    let _alone = ALONE.lock();
    let bench = Bench::new();
    let mut shell = bench.shell(User::Root);
    shell.args(["--peer", "--name", "lossy", "--up", "netem loss 100%"]);
    let script = format!(
        "ping -q -c 5 -i 0.01 -W 1 $TXQ_FAR; {TXQ} tc --name lossy qdisc replace dev up root netem delay 5ms
         ping -6 -q -c 2 -i 0.2 fd74:7871::1 && {TXQ} stat --name lossy up"
    );
    let said = printed(shell.args(["--", "sh", "-c", &script]), 0);
    assert!(said.contains("5 packets transmitted, 0 received"), "{said}");
    assert!(said.contains("2 packets transmitted, 2 received"), "{said}");
    let number = |key: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("{key}: {said}"))
    };
    assert!(number("tx_dropped") >= 5 && number("tx_packets") >= 2, "{said}");
}

#[test]
fn commands_trace_and_the_far_end_reach_a_running_shell() {
    let test = "commands_trace_and_the_far_end_reach_a_running_shell";
    if !ready(test, &["ping"]) {
        return;
    }
    let _alone = ALONE.lock();
    let bench = Bench::new();
    let mut shell = bench.shell(User::Root);
    let mut shell = Running::start(shell.args(["--peer", "--name", "lab", "--", "sleep", "1000"]));
    shell.wait_for_text("198.18.0.2 here", LONG);
    let mut trace = bench.txq();
    trace.args(["trace", "--name", "lab", "-i", "down", "-c", "1", "--event", "net_dev_start_xmit", "icmp"]);
    let trace = Running::start(&mut trace);
    let far = |script: &str| {
        let mut far = bench.txq();
        far.args(["shell", "--far", "lab", "--", "sh", "-c", script]);
        far
    };
    // The trace may begin later than the first packets.
    let mut pings = Running::start(&mut far("ping -i 0.1 $TXQ_NEAR"));
    let traced = trace.finish(LONG);
    assert!(traced.stdout.contains("198.18.0.1 > 198.18.0.2 icmp"), "{}{}", traced.stdout, traced.stderr);
    pings.wait_for_text("bytes from 198.18.0.2", LONG);
    drop(pings);
    printed(
        bench.txq().args([
            "tc", "--name", "lab", "qdisc", "replace", "dev", "down", "root", "netem", "delay", "30ms",
        ]),
        0,
    );
    let ping = printed(&mut far("ping -c 2 -i 0.2 $TXQ_NEAR; cd /; exit 7"), 7);
    assert!(round_trip(&ping) >= 29.9, "{ping}");
    let listed = printed(bench.txq().arg("ls"), 0);
    assert!(listed.contains("lab") && listed.contains("down (netem)"), "{listed}");
}

#[test]
fn nothing_stays_after_kill_9() {
    let test = "nothing_stays_after_kill_9";
    if !ready(test, &["ip"]) {
        return;
    }
    let _alone = ALONE.lock();
    let before = interfaces();
    for user in users(test) {
        let bench = Bench::new();
        let words = ["7071", "7072", "7073"];
        let server = format!("sleep {} & exec sleep {}", words[0], words[1]);
        let script = format!("setsid sleep {} & exec sleep {}", words[2], words[1]);
        let mut shell = bench.shell(user);
        let mut shell =
            Running::start(shell.args(["--name", "k", "--serve", &server, "--", "sh", "-c", &script]));
        shell.wait_for_text("198.18.0.2 here", LONG);
        assert!(wait_until(LONG, || words.iter().all(|word| runs(word))), "{user:?}: {}", shell.text());
        shell.signal(libc::SIGKILL);
        assert!(wait_until(LONG, || !words.iter().any(|word| runs(word))), "{user:?}: processes stay");
        assert!(wait_until(LONG, || !runs("--stage")), "{user:?}: processes of txq stay");
        let socket = bench.0.path().join("txq/k.sock");
        assert!(wait_until(LONG, || !socket.exists()), "{user:?}: the control socket stays");
        assert_eq!(interfaces(), before, "{user:?}");
    }
}

#[test]
fn exit_codes_and_signals_are_those_of_the_program() {
    let test = "exit_codes_and_signals_are_those_of_the_program";
    if !ready(test, &["sh"]) {
        return;
    }
    let _alone = ALONE.lock();
    let bench = Bench::new();
    let shell = |arguments: &[&str]| {
        let mut shell = bench.shell(User::Root);
        shell.args(["--peer", "--quiet"]).args(arguments);
        end(&mut shell)
    };
    assert_eq!(shell(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(shell(&["--", "sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    assert_eq!(shell(&["--", "/no/such/program"]).status.code(), Some(127));
    assert_eq!(shell(&["--", "/"]).status.code(), Some(126));
    let wrong = shell(&["--up", "netem dealy 1ms", "--", "true"]);
    assert_eq!(wrong.status.code(), Some(1), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("dealy"), "{}", wrong.stderr);

    let mut shell = bench.shell(User::Root);
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done";
    let mut shell = Running::start(shell.args(["--peer", "--quiet", "--", "sh", "-c", script]));
    shell.wait_for_text("ready", LONG);
    shell.signal(libc::SIGTERM);
    assert_eq!(shell.finish(LONG).status.code(), Some(9));
}
