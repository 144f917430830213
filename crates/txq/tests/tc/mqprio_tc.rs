//! mqprio compared with the real tc: the texts that tc refuses, and its output for the messages of a kernel that has mqprio.
//!
//! Few kernels have mqprio, so no qdisc is created: tc refuses a text before it asks the kernel, and `tc monitor file`
//! prints kernel messages that the test has written.

use std::process::Command;

use txq::NetDev;
use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::netdev::BuildError;
use txq::packet::PacketList;
use txq::tc::Style;

/// A device with this many txqs, through which nothing is sent.
struct Still(u16);

impl Driver for Still {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("still").txqs(self.0)
    }

    fn open(&mut self, _: u16) -> std::io::Result<DriverQueue> {
        Ok(DriverQueue::new(Still(1), NoCompletions))
    }
}

impl Transmit for Still {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        cx.sent_all(batch);
        Status::Ok
    }
}

fn builder(text: &str) -> Result<NetDev, BuildError> {
    NetDev::builder(Still(8)).qdisc(text).build()
}

fn error(text: &str) -> String {
    let text = format!("mqprio {text}");
    let error = builder(&text).err().unwrap_or_else(|| panic!("{text}: accepted"));
    error.to_string().strip_prefix(&format!("qdisc \"{text}\": ")).unwrap().to_owned()
}

/// Runs tc; returns its output, or prints a SKIP line and returns `None`.
fn tc(args: &[&str]) -> Option<String> {
    let Ok(output) = Command::new("tc").args(args).output() else {
        println!("SKIP mqprio_tc: needs tc (iproute2)");
        return None;
    };
    let text = if output.status.success() { output.stdout } else { output.stderr };
    Some(String::from_utf8(text).unwrap())
}

#[test]
fn texts_are_refused_in_tcs_words() {
    for text in [
        "num_tc",
        "num_tc x",
        "num_tc 256",
        "num_tc 0x3",
        "num_tc -1",
        "num_tc 2 map 0 x",
        "num_tc 2 map 0 300",
        "num_tc 2 map 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0",
        "num_tc 2 queues 1",
        "num_tc 2 queues 1@0 1@x",
        "num_tc 2 queues 0@70000",
        "num_tc 2 queues 1@0 1@1 1@2",
        "num_tc 1 queues 1@0 queues 1@1",
        "num_tc 20 queues 1@0 1@0 1@0 1@0 1@0 1@0 1@0 1@0 1@0 1@0 1@0 1@0 1@0 1@0 1@0 1@0 1@0",
        "hw",
        "hw 3x",
        "mode",
        "mode foo",
        "hw 0 mode channel",
        "shaper foo",
        "shaper bw_rlimit",
        "hw 0 shaper dcb",
        "min_rate 1mbit",
        "shaper dcb min_rate 1mbit",
        "num_tc 2 shaper bw_rlimit min_rate 1mbit",
        "num_tc 2 shaper bw_rlimit min_rate 1mbit 2mbit min_rate 3mbit",
        "num_tc 2 shaper bw_rlimit min_rate max_rate 1mbit",
        "num_tc 1 queues 1@0 1@1 shaper bw_rlimit min_rate",
        "num_tc 1 shaper bw_rlimit min_rate foo",
        "foo",
    ] {
        let ours = error(text);
        let args = ["qdisc", "add", "dev", "txq-none", "root", "mqprio"];
        let words: Vec<&str> = args.into_iter().chain(text.split_whitespace()).collect();
        let Some(theirs) = tc(&words) else { return };
        assert!(ours.starts_with(theirs.trim_end()), "{text}:\n{theirs}{ours}");
    }
}

/// Refused by the kernel, after tc has accepted it.
#[test]
fn what_no_device_could_do_is_refused() {
    let invalid = "RTNETLINK answers: Invalid argument";
    for (text, message, why) in [
        ("", "RTNETLINK answers: Operation not supported", "say hw 0"),
        ("num_tc 2 map 0 1 queues 1@0 1@1 hw 1", "RTNETLINK answers: Operation not supported", "say hw 0"),
        ("num_tc 0 map 0 hw 0", invalid, "0 traffic classes"),
        ("num_tc 17 map 0 hw 0", invalid, "17 traffic classes"),
        ("num_tc 2 hw 0", invalid, "priority 2 is mapped to traffic class 2"),
        ("num_tc 2 map 0 1 hw 0", invalid, "traffic class 0 has no queues"),
        ("num_tc 2 map 0 1 queues 1@0 hw 0", invalid, "traffic class 1 has no queues"),
        ("num_tc 2 map 0 1 queues 2@0 2@1 hw 0", invalid, "traffic classes 0 and 1 overlap"),
        ("num_tc 2 map 0 1 queues 2@0 7@2 hw 0", invalid, "queues 7@2 of traffic class 1 exceed the 8"),
    ] {
        let error = error(text);
        assert!(error.starts_with(message) && error.contains(why), "{text}: {error}");
    }
    let one = NetDev::builder(Still(1)).qdisc("mqprio num_tc 1 map 0 queues 1@0 hw 0").build();
    assert!(one.err().unwrap().to_string().contains("at least 2 txqs"));
}

/// A text, and the kernel's message for it (`tc_mqprio_qopt`, `TCA_MQPRIO_*`).
struct Case {
    text: &'static str,
    map: &'static [u8],
    queues: &'static [(u16, u16)],
    mode: Option<u16>,
    shaper: Option<u16>,
    min_rate: &'static [u64],
    max_rate: &'static [u64],
    json: &'static str,
}

const CASES: [Case; 3] = [
    Case {
        text: "num_tc 2 map 0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 queues 2@0 3@4 hw 0",
        map: &[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
        queues: &[(2, 0), (3, 4)],
        mode: None,
        shaper: None,
        min_rate: &[],
        max_rate: &[],
        json: r#"{"tc":2,"map":[0,0,0,0,0,0,0,0,1,1,1,1,1,1,1,1],"queues":[[0,1],[4,6]]}"#,
    },
    Case {
        text: "num_tc 3 map 2 1 0 queues 1@0 1@1 2@2 mode channel hw 0",
        map: &[2, 1],
        queues: &[(1, 0), (1, 1), (2, 2)],
        mode: Some(1),
        shaper: None,
        min_rate: &[],
        max_rate: &[],
        json: r#"{"tc":3,"map":[2,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"queues":[[0,0],[1,1],[2,3]],"mode":"channel","shaper":"dcb"}"#,
    },
    Case {
        text: "num_tc 2 map 0 1 queues 4@0 4@4 shaper bw_rlimit hw 0 min_rate 1mbit 2mbit 3mbit max_rate 10mbit 0",
        map: &[0, 1],
        queues: &[(4, 0), (4, 4)],
        mode: None,
        shaper: Some(1),
        min_rate: &[125_000, 250_000, 375_000],
        max_rate: &[1_250_000, 0],
        json: r#"{"tc":2,"map":[0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"queues":[[0,3],[4,7]],"mode":"dcb","shaper":"bw_rlimit","min_rate":[125000,250000],"max_rate":[1250000,0]}"#,
    },
];

#[test]
fn shown_as_tc_shows_it() {
    let file = std::env::temp_dir().join(format!("txq-mqprio-{}", std::process::id()));
    for case in &CASES {
        for iec in [false, true] {
            let dev = builder(&format!("handle 1: mqprio {}", case.text)).unwrap();
            let style = Style { iec, ..Style::default() };
            let shown = dev.qdiscs(style);
            assert_eq!(shown[0].options.json().to_string(), case.json, "as `tc -j qdisc show` printed it");
            std::fs::write(&file, message(case)).unwrap();
            let flag = if iec { &["-iec"][..] } else { &[] };
            let theirs = tc(&[flag, &["monitor", "file", file.to_str().unwrap()]].concat());
            let _ = std::fs::remove_file(&file);
            let Some(theirs) = theirs else { return };
            let (_, theirs) = theirs.split_once(" root ").unwrap_or_else(|| panic!("tc says {theirs}"));
            assert_eq!(format!("{}\n", shown[0].options.text()), theirs, "{}", case.text);
        }
    }
}

/// Returns a `RTM_NEWQDISC` message.
fn message(case: &Case) -> Vec<u8> {
    let mut options = vec![case.queues.len() as u8];
    options.extend((0..16).map(|priority| case.map.get(priority).copied().unwrap_or(0)));
    options.push(0);
    let queue = |n| case.queues.get(n).copied().unwrap_or((0, 0));
    options.extend((0..16).flat_map(|n| queue(n).0.to_ne_bytes()));
    options.extend((0..16).flat_map(|n| queue(n).1.to_ne_bytes()));
    pad(&mut options);
    for (kind, value) in [(1, case.mode), (2, case.shaper)] {
        if let Some(value) = value {
            attribute(&mut options, kind, &value.to_ne_bytes());
        }
    }
    for (kind, rates) in [(3, case.min_rate), (4, case.max_rate)] {
        if !rates.is_empty() {
            let mut nested = Vec::new();
            rates.iter().for_each(|rate| attribute(&mut nested, kind, &rate.to_ne_bytes()));
            attribute(&mut options, kind, &nested);
        }
    }
    // tcmsg: family, interface 1, handle, parent, references.
    let mut body: Vec<u8> =
        [0u32, 1, 0x1_0000, u32::MAX, 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
    attribute(&mut body, 1, b"mqprio\0");
    attribute(&mut body, 2, &options);
    let mut message = (body.len() as u32 + 16).to_ne_bytes().to_vec();
    message.extend(36u16.to_ne_bytes());
    message.extend([0; 10]);
    message.extend(body);
    message
}

fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend((value.len() as u16 + 4).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    pad(to);
}

fn pad(to: &mut Vec<u8>) {
    to.resize(to.len().next_multiple_of(4), 0);
}
