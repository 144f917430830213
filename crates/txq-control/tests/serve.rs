//! Servers and clients that behave.

mod device;

use std::time::Duration;

use device::{Folder, LONG, Raw, device, wait_for, words};
use txq::stats::contention::Site;
use txq_control::{Client, Error, Interval, Limits, Monitored, Place, Server, State, VERSION, probe, serve};

#[test]
fn a_program_is_reshaped_through_its_socket() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let server = serve(&dev, folder.socket()).unwrap();
    let mut client = Client::connect(folder.socket()).unwrap();
    let answer = client.tc(&words("qdisc replace dev d0 root pfifo limit 7"), Default::default()).unwrap();
    assert_eq!((answer.rc, answer.err.as_str()), (0, ""));
    assert!(txq::tc::show_text(&dev.qdiscs(Default::default()), false).contains("limit 7p"));
    let shown = client.tc(&words("qdisc show dev d0"), Default::default()).unwrap();
    assert!(shown.out.contains("limit 7p"), "{}", shown.out);
    let refused = client.tc(&words("qdisc replace dev d1 root pfifo"), Default::default()).unwrap();
    assert_eq!((refused.rc, refused.err.as_str()), (1, "Cannot find device \"d1\"\ntxq: there are d0\n"));
    let add = client.dev(&words("add d1")).unwrap();
    assert!(add.rc == 2 && add.err.contains("makes its own devices"), "{add:?}");
    let info = client.info().unwrap();
    assert_eq!((info.pid, info.protocol, info.devices.len()), (std::process::id(), VERSION, 1));
    assert_eq!((info.devices[0].name.as_str(), info.devices[0].qdisc.as_str()), ("d0", "pfifo"));
    assert!(info.program.starts_with("serve"), "{info:?}");
    drop(server);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing stays");
    assert!(matches!(client.info(), Err(Error::Lost { .. })));
    assert!(matches!(Client::connect(folder.socket()), Err(Error::NotRunning(_))));
}

/// The commands of a batch run in order, up to the first failure or all, also where the server takes no request that long.
#[test]
fn a_batch_is_executed_up_to_its_first_failure() {
    let dev = device("d0");
    let commands = |limits: &[&str]| -> Vec<Vec<String>> {
        let command = |limit: &&str| words(&format!("qdisc replace dev d0 root pfifo limit {limit}"));
        limits.iter().map(command).collect()
    };
    for request_bytes in [Limits::default().request_bytes, 200] {
        let folder = Folder::new();
        let mut limits = Limits::default();
        limits.request_bytes = request_bytes;
        let _server = Server::builder().at(folder.socket()).device(&dev).limits(limits).start().unwrap();
        let mut client = Client::connect(folder.socket()).unwrap();
        let mut run = |limits: &[&str], force| -> (Vec<u8>, String) {
            let answers = client.batch(&commands(limits), Default::default(), force).unwrap();
            let shown = txq::tc::show_text(&dev.qdiscs(Default::default()), false);
            let limit =
                shown.split("limit ").nth(1).unwrap_or_default().split('p').next().unwrap_or_default();
            (answers.iter().map(|answer| answer.rc).collect(), limit.to_owned())
        };
        assert_eq!(run(&["1", "2", "3"], false), (vec![0, 0, 0], "3".to_owned()));
        assert_eq!(run(&["4", "x", "5"], false), (vec![0, 1], "4".to_owned()));
        assert_eq!(run(&["6", "x", "7", "y"], true), (vec![0, 1, 0, 1], "7".to_owned()));
        assert_eq!(run(&["x", "8"], false), (vec![1], "7".to_owned()));
        assert_eq!(run(&["9"], false), (vec![0], "9".to_owned()));
        assert_eq!(run(&[], false), (vec![], "9".to_owned()));
    }
}

#[test]
fn devices_come_and_go_with_the_program() {
    let (folder, d0, mut d1) = (Folder::new(), device("d0"), device("d1"));
    let server = Server::builder().at(folder.socket()).device(&d0).program("two").start().unwrap();
    server.add(&d1).unwrap();
    server.add(&d1).unwrap();
    assert!(matches!(server.add(&device("d0")), Err(Error::SameDevice(name)) if name == "d0"));
    let mut client = Client::connect(folder.socket()).unwrap();
    let names = |client: &mut Client| {
        let info = client.info().unwrap();
        info.devices.into_iter().map(|dev| dev.name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&mut client), "d0 d1");
    d1.shutdown().unwrap();
    assert_eq!(names(&mut client), "d0");
    drop(d0);
    assert_eq!(names(&mut client), "");
    server.add(&device("gone")).unwrap();
    let d0 = device("d0");
    server.add(&d0).unwrap();
    assert_eq!(names(&mut client), "d0");
}

#[test]
fn commands_make_devices_if_the_program_lets_them() {
    let folder = Folder::new();
    let make = |new: &txq_control::NewDevice| match new.mtu {
        Some(9000) => Err("no jumbo frames".into()),
        _ => Ok(device(&new.name)),
    };
    let (tell, removed) = std::sync::mpsc::channel();
    let on_remove = move |name: &str| tell.send(name.to_owned()).unwrap();
    let builder = Server::builder().at(folder.socket()).make_devices(make).on_remove(on_remove);
    let _server = builder.start().unwrap();
    let mut client = Client::connect(folder.socket()).unwrap();
    let mut dev = |text: &str| client.dev(&words(text)).unwrap();
    assert_eq!(dev("add d0").rc, 0);
    assert_eq!(dev("add d0").err.lines().next(), Some("RTNETLINK answers: File exists"));
    assert!(dev("add d1 mtu 9000").err.contains("no jumbo frames"));
    assert_eq!(dev("show").out, "d0: mtu 1500 numtxqueues 1 qdisc pfifo\n");
    assert_ne!(dev("del d1").rc, 0);
    assert_eq!(dev("del d0").rc, 0);
    assert_eq!(removed.try_iter().collect::<Vec<_>>(), ["d0"]);
    assert_eq!(dev("show").out, "");
}

/// One server for each socket, in a process and by whatever path.
#[test]
fn a_socket_has_one_server() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let server = serve(&dev, folder.socket()).unwrap();
    let other = folder.path().join("../").join(folder.path().file_name().unwrap()).join("control.sock");
    for path in [folder.socket(), other] {
        let error = serve(&dev, path).unwrap_err();
        assert!(matches!(error, Error::InUse { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    }
    assert_eq!(Client::connect(folder.socket()).unwrap().info().unwrap().devices.len(), 1);
    drop(server);
    drop(serve(&dev, folder.socket()).unwrap());
}

#[test]
fn a_recording_ends_with_its_time_and_with_its_client() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut client = Client::connect(folder.socket()).unwrap();
    let found = std::thread::scope(|scope| {
        let recording = scope.spawn(|| client.contention(Some("d0"), Duration::from_millis(300)).unwrap());
        let mut sender = dev.sender("s");
        wait_for("recording", || dev.is_recording_contention());
        while !recording.is_finished() {
            let packet = sender.packet(&[0; 60]).unwrap();
            let _ = sender.xmit(packet);
        }
        recording.join().unwrap()
    });
    assert!(!dev.is_recording_contention());
    assert_eq!((found.len(), found[0].device.as_str()), (1, "d0"));
    assert!(found[0].seconds >= 0.3 && found[0].sent > 0, "{found:?}");
    // At least the server's own reading is recorded.
    assert!(found[0].report.sites.iter().any(|row| row.site == Site::Control), "{found:?}");
    // A client that goes away ends its recording; meanwhile the device belongs to it.
    let mut gone = Raw::new(&folder.socket());
    gone.write(b"{\"contention\":{\"ms\":3600000}}\n").unwrap();
    wait_for("recording", || dev.is_recording_contention());
    let busy = client.contention(None, Duration::ZERO).unwrap_err();
    assert!(busy.to_string().contains("another command records device \"d0\""), "{busy}");
    drop(gone);
    wait_for("end of recording", || !dev.is_recording_contention());
    wait_for("free again", || client.contention(None, Duration::ZERO).is_ok());
    let error = client.contention(Some("d7"), Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("Cannot find device \"d7\""), "{error}");
    let error = client.contention(None, LONG * 1000).unwrap_err();
    assert!(error.to_string().contains("too long a recording"), "{error}");
}

#[test]
fn the_record_of_the_program_itself_goes_on() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    dev.set_contention(true);
    let mut client = Client::connect(folder.socket()).unwrap();
    assert_eq!(client.contention(None, Duration::ZERO).unwrap().len(), 1);
    assert!(dev.is_recording_contention());
}

#[test]
fn times_are_counted_from_the_start_or_for_a_time() {
    let folder = Folder::new();
    let dev = txq::NetDev::builder(txq_driver()).xmit_times(true).start().unwrap();
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut sender = dev.sender("s");
    for _ in 0..5 {
        let packet = sender.packet(&[0; 60]).unwrap();
        let _ = sender.xmit(packet);
    }
    let mut client = Client::connect(folder.socket()).unwrap();
    let all = client.hist(Interval::Xmit, None, Duration::ZERO).unwrap();
    assert_eq!((all.len(), all[0].times.count()), (1, dev.xmit_times().count()));
    assert!(all[0].times.count() > 0);
    let none = client.hist(Interval::Xmit, Some("d9"), Duration::from_millis(1)).unwrap();
    assert_eq!(none[0].times.count(), 0, "nothing was sent meanwhile");
}

fn txq_driver() -> impl txq::driver::Driver {
    device::Sink("d9".to_owned())
}

#[test]
fn other_versions_get_an_answer() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut raw = Raw::new(&folder.socket());
    let answer = raw.ask("{\"v\":2,\"tc\":{\"words\":[]}}").unwrap();
    assert!(answer["rc"] == 2 && answer["err"].as_str().unwrap().contains("version 2"), "{answer}");
    assert_eq!(raw.ask("{\"v\":1,\"info\":{}}").unwrap()["data"]["devices"][0]["name"], "d0");
    // Without a version it is the first one.
    assert_eq!(raw.ask("{\"info\":{}}").unwrap()["rc"], 0);
}

#[test]
fn a_probe_tells_the_living_from_the_dead() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let server = serve(&dev, folder.socket()).unwrap();
    let found = txq_control::list_folder(folder.path(), LONG).unwrap();
    assert_eq!((found.len(), found[0].state, found[0].pid), (1, State::Live, Some(std::process::id())));
    drop(server);
    assert_eq!(txq_control::list_folder(folder.path(), LONG).unwrap().len(), 0);
    drop(std::os::unix::net::UnixListener::bind(folder.socket()).unwrap());
    assert_eq!(probe(&folder.socket(), LONG).state, State::Stale);
    drop(serve(&dev, folder.socket()).unwrap());
    assert!(!folder.socket().exists());
    assert!(matches!(Client::connect(Place::Name("../x".into())), Err(Error::Name(_))));
}

/// The texts are those of tc 6.1 on Linux for the same commands, without the rates that a kernel rounds.
#[test]
fn a_monitor_tells_what_commands_change() {
    let (folder, dev) = (Folder::new(), device("X"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut monitor = Client::connect(folder.socket()).unwrap().monitor().unwrap();
    let mut client = Client::connect(folder.socket()).unwrap();
    for command in [
        "qdisc replace dev X root handle 1: htb default 10",
        "class add dev X parent 1: classid 1:1 htb rate 10mbit",
        "class add dev X parent 1:1 classid 1:11 htb rate 2mbit ceil 5mbit prio 3",
        "class change dev X parent 1:1 classid 1:11 htb rate 2mbit ceil 6mbit prio 3",
        "qdisc add dev X parent 1:11 handle 11: pfifo limit 5",
        "qdisc change dev X parent 1:11 handle 11: pfifo limit 6",
        "qdisc replace dev X parent 1:11 handle 12: bfifo limit 6000",
        "filter add dev X parent 1: protocol ip prio 5 u32 match u32 0 0 flowid 1:1",
        "filter add dev X parent 1: protocol ip prio 5 handle 2: u32 divisor 4",
        "filter change dev X parent 1: protocol ip prio 5 handle 800::800 u32 flowid 1:2",
        "filter add dev X parent 1: protocol ip prio 5 u32 match u32 0 0 flowid 1:1",
        "filter del dev X parent 1: protocol ip prio 5 handle 800::801 u32",
        "filter del dev X parent 1: protocol ip prio 5",
        "qdisc add dev X ingress",
        "filter add dev X ingress protocol all prio 6 u32 match u32 0 0 flowid 1:1",
        "qdisc del dev X parent 1:11",
        "class del dev X classid 1:11",
        "qdisc del dev X root",
    ] {
        let answer = client.tc(&words(command), Default::default()).unwrap();
        assert_eq!((answer.rc, answer.err.as_str()), (0, ""), "{command}");
    }
    monitor.stop();
    let mut told = String::new();
    let end = loop {
        match monitor.next_within(LONG).unwrap() {
            Some(Monitored::Change(change)) => told += &change.text,
            Some(end) => break end,
            None => panic!("silence after {told}"),
        }
    };
    let expected = "\
deleted qdisc pfifo 8001: dev X root limit 10p
qdisc htb 1: dev X root r2q 10 default 0x10 direct_packets_stat 0 direct_qlen 1000
class htb 1:1 dev X root prio 0 rate 10Mbit ceil 10Mbit burst 1600b cburst 1600b 
class htb 1:11 dev X parent 1:1 prio 3 rate 2Mbit ceil 5Mbit burst 1600b cburst 1600b 
class htb 1:11 dev X parent 1:1 prio 3 rate 2Mbit ceil 6Mbit burst 1600b cburst 1599b 
qdisc pfifo 11: dev X parent 1:11 limit 5p
qdisc pfifo 11: dev X parent 1:11 limit 6p
deleted qdisc pfifo 11: dev X parent 1:11 limit 6p
qdisc bfifo 12: dev X parent 1:11 limit 6000b
added chain dev X parent 1: chain 0 
added filter dev X parent 1: protocol ip pref 5 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 1:1 not_in_hw 
  match 00000000/00000000 at 0
added filter dev X parent 1: protocol ip pref 5 u32 chain 0 fh 2: ht divisor 4 
filter dev X parent 1: protocol ip pref 5 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 1:2 not_in_hw 
  match 00000000/00000000 at 0
added filter dev X parent 1: protocol ip pref 5 u32 chain 0 fh 800::801 order 2049 key ht 800 bkt 0 *flowid 1:1 not_in_hw 
  match 00000000/00000000 at 0
deleted filter dev X parent 1: protocol ip pref 5 u32 chain 0 fh 800::801 order 2049 key ht 800 bkt 0 *flowid 1:1 not_in_hw 
  match 00000000/00000000 at 0
deleted filter dev X parent 1: protocol ip pref 5 u32 chain 0 
deleted chain dev X parent 1: chain 0 
qdisc ingress ffff: dev X parent ffff:fff1 ---------------- 
added chain dev X parent ffff: chain 0 
added filter dev X ingress protocol all pref 6 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 1:1 not_in_hw 
  match 00000000/00000000 at 0
deleted qdisc bfifo 12: dev X parent 1:11 limit 6000b
deleted class htb 1:11 dev X parent 1:1 prio 3 rate 2Mbit ceil 6Mbit burst 1600b cburst 1599b 
deleted qdisc htb 1: dev X root r2q 10 default 0x10 direct_packets_stat 0 direct_qlen 1000
";
    let numbers = |text: &str| {
        // The bursts depend on the clock's resolution.
        let is_number = |word: &str| word.ends_with('b') && word.starts_with(|c: char| c.is_ascii_digit());
        let line = |line: &str| line.split(' ').filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ");
        text.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&told), numbers(expected));
    assert_eq!(end, Monitored::End { events: told.matches(" X ").count() as u64, lost: 0 });
    // `-echo` prints the same with the command itself.
    let show = txq_control::tc::Show { echo: true, ..Default::default() };
    let answer = client.tc(&words("qdisc replace dev X root handle 3: pfifo limit 9"), show).unwrap();
    assert!(answer.out.ends_with("qdisc pfifo 3: dev X root limit 9p\n"), "{}", answer.out);
}

/// A monitor whose client reads nothing delays no command; its changes are lost, or its connection.
#[test]
fn a_monitor_that_stalls_delays_no_command() {
    let (folder, dev) = (Folder::new(), device("X"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut stalled = Client::connect(folder.socket()).unwrap().monitor().unwrap();
    let mut client = Client::connect(folder.socket()).unwrap();
    let long = format!("qdisc replace dev X root handle 1: prio priomap {}", "1 ".repeat(16));
    // The socket holds some hundred kilobytes, and a watcher 1000 changes.
    for round in 0..2500 {
        let command = if round % 2 == 0 {
            long.clone()
        } else {
            format!("qdisc replace dev X root handle 2: pfifo limit {round}")
        };
        let answer = client.tc(&words(&command), Default::default()).unwrap();
        assert_eq!((answer.rc, answer.err.as_str()), (0, ""), "{command}");
    }
    stalled.stop();
    let end = loop {
        match stalled.next_within(LONG) {
            Ok(Some(Monitored::Change(_))) => {}
            Ok(Some(Monitored::End { events, lost })) => break Some((events, lost)),
            Ok(None) => panic!("silence"),
            Ok(Some(_)) => {}
            // It did not read for longer than an answer may take.
            Err(Error::Lost { .. }) => break None,
            Err(error) => panic!("{error}"),
        }
    };
    if let Some((events, lost)) = end {
        // Each command deletes one qdisc and makes one.
        assert_eq!(events + lost, 5000);
    }
}
