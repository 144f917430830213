//! `txq check` of `[[replay]]`s: line, column and remedy.

use std::fs;
use std::process::Command;

use super::GAP;
use crate::socket::bench::Bench;
use crate::support::pcap::{ETHERNET, RAW, frames, pcap};

#[test]
fn errors_have_their_place_and_a_remedy() {
    let bench = Bench::new();
    let file = |name: &str, bytes: &[u8]| {
        let path = bench.file(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let whole = pcap(&frames(20), ETHERNET, GAP);
    let good = file("good.pcap", &whole);
    let cut = file("cut.pcap", &whole[..whole.len() - 3]);
    let raw = file("raw.pcap", &pcap(&[vec![0x45; 40]], RAW, GAP));
    let text = file("text.pcap", b"text that is no capture");
    let spaces = file("a b.pcap", &whole);
    let gone = bench.file("gone.pcap").display().to_string();
    let pipe = bench.file("pipe.pcap");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let long = file("long.pcap", &pcap(&[vec![0; 60], vec![0; 9000]], ETHERNET, GAP));
    for (device, keys, line, why) in [
        ("", "name = \"x\"".to_owned(), 3, "missing field `file`"),
        ("", format!("file = \"{good}\"\nlop = 2"), 5, "did you mean \"loop\"?"),
        ("", format!("file = \"{good}\"\nthreads = 0"), 5, "use 1 to"),
        ("", format!("file = \"{good}\"\nrate = \"fast\""), 5, "rate \"fast\" is none"),
        ("", format!("file = \"{good}\"\nspeed = 0.0"), 5, "speed 0: use 0.001 to 1000"),
        (
            "",
            format!("file = \"{good}\"\nrate = \"max\"\nspeed = 2.0"),
            6,
            "speed is for rate = \"recorded\"",
        ),
        ("", format!("file = \"{good}\"\ndevice = \"b\""), 5, "does not exist: use one of a"),
        ("", format!("file = \"{spaces}\""), 3, "\"a b\" cannot name a replay: add a name"),
        (
            "",
            format!("file = \"{good}\"\n[[replay]]\nfile = \"{good}\""),
            5,
            "two replays are called \"good\": give one another name",
        ),
        ("", format!("file = \"{gone}\""), 4, "gone.pcap\" cannot be read"),
        ("", format!("file = \"{}\"", pipe.display()), 4, "pipe.pcap\" is no regular file"),
        (
            "",
            format!("file = \"{long}\""),
            4,
            "packets of 9000 bytes do not fit into the 1920 of device \"a\"",
        ),
        ("", format!("file = \"{cut}\""), 4, "cut.pcap\", frame 20 at byte"),
        ("", format!("file = \"{text}\""), 4, "is not a capture"),
        ("", format!("file = \"{raw}\""), 4, "add link = \"ip\" to the device"),
        ("tun = { interface = \"t0\" }\n", format!("file = \"{good}\""), 5, "use a device of af_packet"),
        ("af_packet = { interface = \"e0\" }\n", format!("file = \"{raw}\""), 5, "use a device of tun"),
        (
            "pool.room = 100\n",
            format!("file = \"{good}\""),
            5,
            "do not fit into the 100 of device \"a\": set its pool.room to",
        ),
        (
            &format!("pcap = {{ file = \"{good}\" }}\n"),
            format!("file = \"{good}\""),
            5,
            "device \"a\" would overwrite the capture",
        ),
    ] {
        let path = bench.write(&format!("[[device]]\nname = \"a\"\n{device}[[replay]]\n{keys}\n"));
        let done = Command::new(env!("CARGO_BIN_EXE_txq")).args(["check", &path]).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!((said.lines().count(), done.status.code()), (1, Some(1)), "{keys}: {said}");
        assert!(said.contains(&format!("{path}:{line}:")) && said.contains(why), "{keys}\n{said}");
    }
    for (device, keys) in [
        ("link = \"ip\"\n", format!("file = \"{raw}\"")),
        ("udp = { remote = \"192.0.2.1:9\" }\n", format!("file = \"{raw}\"")),
        ("udp = { remote = \"192.0.2.1:9\" }\n", format!("file = \"{good}\"")),
        ("pool.room = 9000\n", format!("file = \"{long}\"")),
    ] {
        let path = bench.write(&format!("[[device]]\nname = \"a\"\n{device}[[replay]]\n{keys}\n"));
        let done = Command::new(env!("CARGO_BIN_EXE_txq")).args(["check", &path]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let path = bench.write(&format!("[[device]]\nname = \"a\"\n[[sender]]\n[[replay]]\nfile = \"{good}\"\n"));
    let done = Command::new(env!("CARGO_BIN_EXE_txq")).args(["run", &path]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("a replay is for a daemon: use `txq replay`"), "{said}");
}
