//! Links to a network outside: that of two namespaces, of which the second one has no route to any link.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use super::*;
use crate::support::netns::Netns;

/// The address of the second namespace, which has a server of HTTP.
const SERVER: &str = "10.99.0.2";

/// A namespace that a shell starts from, and the rest of the network behind it.
struct Network {
    here: Netns,
    _there: Netns,
}

impl Network {
    fn new() -> Self {
        let (here, there) = (Netns::new(), Netns::new());
        here.connect("net0", &there, "net0", 1);
        here.ip("addr add 10.99.0.1/24 dev net0");
        here.ip("route add default via 10.99.0.2");
        there.ip("addr add 10.99.0.2/24 dev net0");
        // It ends with the namespace's last user, the test's process.
        there.spawn(|| {
            let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 80)).expect("a port");
            for stream in listener.incoming().flatten() {
                answer(stream);
            }
        });
        Self { here, _there: there }
    }

    /// Returns a command that runs another one in the first namespace.
    fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", self.here.name()]).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            inside.env(key, value.expect("a value"));
        }
        inside
    }
}

fn answer(mut stream: std::net::TcpStream) {
    let mut request = [0; 4096];
    // The client may go away at any time.
    let _ = stream.read(&mut request);
    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nanswered\n");
}

#[test]
fn root_reaches_the_network_by_forwarding_and_leaves_no_rule() {
    let test = "root_reaches_the_network_by_forwarding_and_leaves_no_rule";
    if !ready(test, &["ip", "ping", "curl"]) {
        return;
    }
    let (network, bench) = (Network::new(), Bench::new());
    let shell = |script: &str| {
        let mut shell = bench.shell(User::Root);
        shell.args(["--up", "netem delay 20ms", "--", "sh", "-c", script]);
        network.inside(&shell)
    };
    let refused = end(&mut shell("true"));
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("net.ipv4.ip_forward=1"), "{}", refused.stderr);
    run(network.here.command("sysctl").args(["-qw", "net.ipv4.ip_forward=1"]));
    let said = printed(&mut shell(&format!("ping -c 2 -i 0.2 {SERVER} && curl -sS http://{SERVER}/")), 0);
    assert!(round_trip(&said) >= 19.9 && said.contains("answered"), "{said}");

    let mut killed = Running::start(&mut shell("exec sleep 7074"));
    assert!(wait_until(LONG, || runs("7074")), "{}", killed.text());
    // Another shell beside it has another link.
    let said = printed(&mut shell(&format!("ping -c 1 {SERVER} && ip -br addr")), 0);
    assert!(said.contains("198.18.1.2"), "{said}");
    killed.wait_for_text("here", LONG);
    let tables = || run(network.here.command("cat").arg("/proc/net/dev"));
    assert!(tables().contains("txq0"));
    killed.signal(libc::SIGKILL);
    assert!(wait_until(LONG, || !runs("7074") && !tables().contains("txq0")), "{}", tables());
    if require_tools(test, &["nft"]) {
        assert_eq!(run(network.here.command("nft").args(["list", "ruleset"])), "");
    }
}

#[test]
fn a_user_reaches_the_network_through_pasta() {
    let test = "a_user_reaches_the_network_through_pasta";
    if !ready(test, &["ip", "pasta", "curl"]) || !ready_for_users(test) {
        return;
    }
    let (network, bench) = (Network::new(), Bench::new());
    let script = format!(
        "curl -sS -w '%{{time_connect}}\\n' http://{SERVER}/; cat /etc/resolv.conf; ip -br addr; id -u"
    );
    let mut shell = bench.shell(User::Nobody);
    shell.args(["--up", "netem delay 100ms", "--", "sh", "-c", &script]);
    let said = printed(&mut network.inside(&shell), 0);
    assert!(said.contains("answered\n") && said.contains("nameserver 198.18.255.53"), "{said}");
    assert!(said.contains("198.18.0.2/30") && said.ends_with("65534\n"), "{said}");
    let connected = said.lines().nth(1).and_then(|time| time.parse::<f64>().ok());
    assert!(connected.is_some_and(|time| time >= 0.0999), "{said}");
    assert!(wait_until(LONG, || !runs("--config-net")), "pasta stays");
}

#[test]
fn shells_in_shells_are_chains() {
    let test = "shells_in_shells_are_chains";
    if !ready(test, &["ip", "ping", "curl"]) {
        return;
    }
    for user in users(test).into_iter().filter(|user| *user == User::Root || require_tools(test, &["pasta"]))
    {
        let (network, bench) = (Network::new(), Bench::new());
        run(network.here.command("sysctl").args(["-qw", "net.ipv4.ip_forward=1"]));
        let txq = if user == User::Root { TXQ } else { "/mnt/txq" };
        let script = format!("curl -sS http://{SERVER}/ && ping -c 2 -i 0.2 198.18.0.1");
        let mut shell = bench.shell(user);
        shell.args(["--up", "netem delay 20ms", "--", txq, "shell", "--up", "netem delay 15ms"]);
        let said = printed(&mut network.inside(shell.args(["--", "sh", "-c", &script])), 0);
        assert!(said.contains("answered") && round_trip(&said) >= 34.9, "{user:?}: {said}");
    }
}

#[test]
fn a_user_without_pasta_is_told_what_to_do() {
    let test = "a_user_without_pasta_is_told_what_to_do";
    if !ready(test, &["unshare", "setpriv"]) {
        return;
    }
    let bench = Bench::new();
    let tools = bench.0.path().join("tools");
    fs::create_dir(&tools).expect("a folder");
    // A PATH without pasta, and with what starts the shell.
    for tool in ["unshare", "sh", "mount", "mknod", "touch", "mkdir", "chown", "setpriv"] {
        let find = run(Command::new("sh").args(["-c", &format!("command -v {tool}")]));
        std::os::unix::fs::symlink(find.trim(), tools.join(tool)).expect("a link");
    }
    let mut shell = bench.shell(User::Nobody);
    let refused = end(shell.env("PATH", format!("{}:/nowhere", tools.display())).args(["--", "true"]));
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("apt install passt") && refused.stderr.contains("--peer"),
        "{}",
        refused.stderr
    );
}
