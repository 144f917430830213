//! The path between server and client, and one run over it.

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use crate::MEGABITS;
use crate::support::netns::Netns;
use crate::support::process::Running;

/// Longer than any run that does not hang.
const LONG: Duration = Duration::from_secs(60);
/// Five packets of Ethernet.
const FIVE: u32 = 5 * 1514;

/// Two namespaces, and a veth between them. The kernel's tbf is its qdisc on the server's side, if it is limited.
pub(crate) struct Link {
    server: Netns,
    client: Netns,
    is_limited: bool,
}

/// What one run has measured.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// Payload that has arrived, in Mbit/s.
    pub(crate) megabits: f64,
    /// The share of packets that tbf has dropped.
    pub(crate) lost: f64,
    /// CPU time of the server's process, in seconds a megabyte that has arrived.
    pub(crate) cpu: f64,
}

impl Link {
    pub(crate) fn new(is_limited: bool) -> Self {
        let (server, client) = (Netns::new(), Netns::new());
        server.ip(&format!("link add name s0 type veth peer name c0 netns {}", client.name()));
        for (namespace, interface, address) in
            [(&server, "s0", "10.9.8.1/24"), (&client, "c0", "10.9.8.2/24")]
        {
            namespace.ip(&format!("addr add {address} dev {interface}"));
            namespace.ip(&format!("link set {interface} up"));
        }
        server.wait_carrier("s0");
        client.wait_carrier("c0");
        Self { server, client, is_limited }
    }

    /// Sends for some seconds.
    pub(crate) fn run(&self, way: &str, seconds: f64) -> Result<Row, Box<dyn Error>> {
        if self.is_limited {
            let tbf = format!("tbf rate {MEGABITS}mbit burst {FIVE} limit {FIVE}");
            // Anew, so that its counters are those of this run.
            self.server.tc(&format!("qdisc replace dev s0 root {tbf}"));
        }
        let before = self.dropped_and_sent();
        let (program, seconds) = (std::env::current_exe()?, seconds.to_string());
        let program = program.to_str().ok_or("the program's path is not UTF-8")?;
        let start = |namespace: &Netns, args: [&str; 3]| {
            let mut command: Command = namespace.command(program);
            Running::start(command.args(args))
        };
        let is_quic = way.starts_with("quinn");
        let delay = if self.is_limited { "20ms" } else { "0" };
        // The one that answers is there first.
        let (sender, receiver) = if is_quic {
            let mut sender = start(&self.server, ["send", way, &seconds]);
            sender.wait_for_text("ready", LONG);
            (sender, start(&self.client, ["receive", way, delay]))
        } else {
            let mut receiver = start(&self.client, ["receive", way, delay]);
            receiver.wait_for_text("ready", LONG);
            (start(&self.server, ["send", way, &seconds]), receiver)
        };
        let [sent, received] = [sender.finish(LONG), receiver.finish(LONG)];
        for end in [&sent, &received] {
            if !end.status.success() {
                return Err(format!("{way}: {}{}", end.stdout, end.stderr).into());
            }
        }
        let [cpu] = numbers(&sent.stdout)?;
        let [bytes, time] = numbers(&received.stdout)?;
        let after = self.dropped_and_sent();
        let (dropped, passed) = (after.0 - before.0, after.1 - before.1);
        Ok(Row {
            megabits: bytes * 8e-6 / time,
            lost: if dropped + passed > 0.0 { dropped / (dropped + passed) } else { 0.0 },
            cpu: cpu / (bytes * 1e-6),
        })
    }

    /// Returns the packets that the server's qdisc has dropped and sent.
    fn dropped_and_sent(&self) -> (f64, f64) {
        let qdisc = self.server.root_qdisc("s0");
        let count = |key: &str| qdisc[key].as_f64().unwrap_or(0.0);
        (count("drops"), count("packets"))
    }
}

impl Row {
    /// Returns the median of each column.
    pub(crate) fn median(rows: &[Self]) -> Self {
        let of = |column: fn(&Self) -> f64| {
            let mut values: Vec<f64> = rows.iter().map(column).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self { megabits: of(|row| row.megabits), lost: of(|row| row.lost), cpu: of(|row| row.cpu) }
    }
}

/// Returns the numbers of the last line.
fn numbers<const N: usize>(text: &str) -> Result<[f64; N], Box<dyn Error>> {
    let line = text.lines().last().unwrap_or_default();
    let numbers: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|_| format!("not {N} numbers: {line:?}").into())
}
