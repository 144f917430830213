//! `txq reload`: replays come and go, and the others play on.

use std::fs;

use super::GAP;
use crate::socket::bench::{Bench, LONG, end};
use crate::support::pcap::{ETHERNET, frames, pcap};
use crate::support::process::wait_until;

#[test]
fn replays_come_and_go() {
    let bench = Bench::new();
    let files = ["one", "two"].map(|name| bench.file(&format!("{name}.pcap")).display().to_string());
    files.iter().for_each(|file| fs::write(file, pcap(&frames(100), ETHERNET, GAP)).unwrap());
    let replay = |at: usize, keys: &str| format!("[[replay]]\nfile = \"{}\"\nloop = 0\n{keys}\n", files[at]);
    let device = "[[device]]\nname = \"a\"\n";
    let daemon = bench.daemon(&format!("{device}{}{}", replay(0, ""), replay(1, "")), None);
    let frames_of = |name: &str| bench.counter("a", &format!("replay_{name}_frames"));
    let plays = |name: &str, after: u64| wait_until(LONG, || frames_of(name) > after);
    assert!(plays("one", 200) && plays("two", 200));
    let accepted = bench.counter("a", "accepted");
    assert_eq!(bench.txq("reload"), ("txq: nothing has changed\n".to_owned(), 0));
    // Another rate: it alone begins anew, and the device keeps its counters.
    let before = frames_of("one");
    bench.write(&format!("{device}{}{}", replay(0, ""), replay(1, "rate = \"1kpps\"")));
    let said = "txq: the replay \"two\" is stopped\ntxq: the replay \"two\" is started\n";
    assert_eq!(bench.txq("reload"), (said.to_owned(), 0));
    assert!(frames_of("one") >= before && bench.counter("a", "accepted") >= accepted);
    assert!(plays("two", 10));
    // More threads than the device was opened for: its pool grows, and it stays open.
    bench.write(&format!("{device}{}{}", replay(0, ""), replay(1, "rate = \"1kpps\"\nthreads = 16")));
    assert_eq!(bench.txq("reload"), (said.to_owned(), 0));
    assert!(bench.counter("a", "accepted") >= accepted && plays("two", 10));
    bench.write(&format!("{device}{}{}", replay(0, ""), replay(1, "rate = \"1kpps\"")));
    assert_eq!(bench.txq("reload"), (said.to_owned(), 0));
    // Other frames in the file.
    fs::write(&files[1], pcap(&frames(50), ETHERNET, GAP)).unwrap();
    assert_eq!(bench.txq("reload"), (said.to_owned(), 0));
    // The file is no capture, and then gone: nothing changes, and the error names it. What plays has the file that was opened.
    let whole = fs::read(&files[0]).unwrap();
    fs::remove_file(&files[0]).unwrap();
    fs::write(&files[0], &whole[..20]).unwrap();
    let (said, rc) = bench.txq("reload");
    assert!(rc != 0 && said.contains(&format!("\"{}\" is not a capture", files[0])), "{said}");
    fs::remove_file(&files[0]).unwrap();
    let (said, rc) = bench.txq("reload");
    assert!(rc != 0 && said.contains(&format!("capture \"{}\" cannot be read", files[0])), "{said}");
    let before = frames_of("one");
    assert!(plays("one", before) && plays("two", 0));
    // One goes; the device goes with the other.
    bench.write(&format!("{device}{}", replay(1, "rate = \"1kpps\"")));
    assert_eq!(bench.txq("reload"), ("txq: the replay \"one\" is stopped\n".to_owned(), 0));
    assert!(bench.counters("a")["replay_one_frames"].is_null());
    bench.write("device = [{ name = \"b\" }]\n");
    let (said, rc) = bench.txq("reload");
    assert!(
        rc == 0 && said.contains("device \"a\" is closed") && said.contains("\"two\" is stopped"),
        "{said}"
    );
    end(daemon);
}
