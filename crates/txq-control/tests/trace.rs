//! Traces through the control socket: the events, the end, and clients that misbehave.

mod device;

use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use device::{Folder, LONG, Raw, device, wait_for};
use txq::NetDev;
use txq_control::{Client, Error, Limits, Server, TraceEvent, TraceOptions, Traced, Tracing, serve};

/// An IPv4 packet with UDP ports, behind an Ethernet header.
fn frame(src_port: u16, dst_port: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([src_port.to_be_bytes(), dst_port.to_be_bytes(), [0, 8], [0, 0]].concat());
    frame
}

fn send(dev: &NetDev, dst_port: u16, packets: u64) {
    let mut sender = dev.sender("test");
    for _ in 0..packets {
        let packet = loop {
            if let Ok(packet) = sender.packet(&frame(4000, dst_port)) {
                break packet;
            }
            thread::yield_now();
        };
        let _ = sender.xmit(packet);
    }
}

fn options(change: impl FnOnce(&mut TraceOptions)) -> TraceOptions {
    let mut options = TraceOptions::default();
    change(&mut options);
    options
}

/// Returns the events up to the end, the number of events and of losses that the server reports.
fn rest(tracing: &mut Tracing) -> (Vec<TraceEvent>, u64, u64) {
    let mut all = Vec::new();
    loop {
        match tracing.next_within(LONG).unwrap().expect("a line") {
            Traced::Event(event) => all.push(*event),
            Traced::End { events, lost } => return (all, events, lost),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn each_step_is_a_line_until_the_client_stops() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let client = || Client::connect_within(folder.socket(), LONG).unwrap();
    let mut all = client().trace(&options(|o| o.data = true)).unwrap();
    let mut dns = client().trace(&options(|o| o.expr = Some("udp dst port 53".into()))).unwrap();
    let mut two = client().trace(&options(|o| o.count = Some(2))).unwrap();
    assert_eq!((all.devices().len(), all.devices()[0].name.as_str()), (1, "d0"));
    send(&dev, 53, 1);
    send(&dev, 80, 1);
    let (events, count, lost) = rest(&mut two);
    assert_eq!((events.len(), count, lost), (2, 2, 0));
    // An event that happened before the stop is sent, even if the server has not read it yet.
    wait_for("both packets", || dev.stats().sent == 2);
    all.stop();
    dns.stop();
    let (events, count, lost) = rest(&mut all);
    assert_eq!((events.len(), count, lost), (6, 6, 0));
    assert_eq!(events[1].event, "qdisc_dequeue");
    assert!(events[1].sojourn_ns.is_some() && events[0].sojourn_ns.is_none());
    assert_eq!(events[0].bytes(), frame(4000, 53));
    assert!(events.iter().all(|event| event.handle.as_deref() == Some("8001:")), "{events:?}");
    assert!(events.iter().all(|event| event.parent.as_deref() == Some("root")));
    let (events, ..) = rest(&mut dns);
    assert_eq!(events.len(), 3, "{events:?}");
    for event in events {
        assert_eq!((event.proto.as_deref(), event.src.as_deref()), (Some("udp"), Some("10.0.0.1")));
        assert_eq!((event.sport, event.dport, event.data), (Some(4000), Some(53), None));
    }
}

#[test]
fn a_trace_ends_with_its_time_and_with_its_device() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let client = || Client::connect_within(folder.socket(), LONG).unwrap();
    let mut timed = client().trace(&options(|o| o.ms = Some(50))).unwrap();
    assert_eq!(rest(&mut timed).1, 0);
    let mut endless = client().trace(&options(|_| {})).unwrap();
    assert_eq!(endless.next_within(Duration::from_millis(20)).unwrap(), None);
    drop(dev);
    assert_eq!(rest(&mut endless).1, 0);
}

#[test]
fn wrong_options_and_too_many_traces_are_refused() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let mut limits = Limits::default();
    limits.recordings = 1;
    let server = Server::builder().at(folder.socket()).device(&dev).limits(limits).start().unwrap();
    let client = || Client::connect_within(folder.socket(), LONG).unwrap();
    let refused = |change: &dyn Fn(&mut TraceOptions)| match client().trace(&options(change)) {
        Err(Error::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(&|o| o.dev = Some("d7".into())).contains("Cannot find device \"d7\""));
    assert!(refused(&|o| o.expr = Some("udp port".into())).contains("its end"));
    assert!(refused(&|o| o.events = vec!["x".into()]).contains("use qdisc_enqueue"));
    assert!(refused(&|o| o.ms = Some(u64::MAX)).contains("too long"));
    let open = client().trace(&options(|_| {})).unwrap();
    assert!(refused(&|_| {}).contains("too many recordings"));
    // A client that is gone makes room.
    drop(open);
    wait_for("room", || client().trace(&options(|o| o.ms = Some(0))).is_ok());
    // A server that ends does not wait for its traces.
    let mut open = loop {
        match client().trace(&options(|_| {})) {
            Ok(open) => break open,
            Err(error) => assert!(error.to_string().contains("too many"), "{error}"),
        }
    };
    drop(server);
    assert!(matches!(open.next_within(LONG), Ok(Some(Traced::End { .. })) | Err(Error::Lost { .. })));
}

/// A client that reads nothing loses events, then its connection; the device sends on, and the server serves others.
#[test]
fn a_client_that_never_reads_stops_nothing() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let mut limits = Limits::default();
    (limits.recordings, limits.answer_time) = (1, Duration::from_millis(200));
    let _server = Server::builder().at(folder.socket()).device(&dev).limits(limits).start().unwrap();
    let mut stalled = Raw::new(&folder.socket());
    let begun = stalled.ask("{\"trace\":{\"data\":true}}").unwrap();
    assert_eq!(begun["tracing"][0]["name"], "d0", "{begun}");
    let mut packets = 0;
    let client = || Client::connect_within(folder.socket(), LONG).unwrap();
    wait_for("the end of the stalled trace", || {
        send(&dev, 53, 1000);
        packets += 1000;
        client().trace(&options(|o| o.ms = Some(0))).is_ok()
    });
    let stats = dev.audit().unwrap();
    assert_eq!(stats.accepted, packets);
    // The bytes that were sent are whole lines, but the last one; no answer follows a part of a line.
    let _ = stalled.stream().shutdown(Shutdown::Write);
    let mut text = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stalled.stream(), &mut text);
    let text = String::from_utf8(text).unwrap();
    let cut = text.rfind('\n').map_or(0, |at| at + 1);
    // The first line that this reads may have begun before.
    for line in text[..cut].lines().skip(1) {
        assert!(line.starts_with("{\"event\":{"), "{line:.60}");
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn a_client_that_dies_in_the_middle_makes_room() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let mut limits = Limits::default();
    limits.recordings = 1;
    let _server = Server::builder().at(folder.socket()).device(&dev).limits(limits).start().unwrap();
    for request in ["{\"trace\":{}}", "{\"trace\":{\"data\":true,\"count\":1000000}}"] {
        wait_for("a trace", || {
            let mut raw = Raw::new(&folder.socket());
            let begun = raw.ask(request).unwrap();
            send(&dev, 53, 200);
            !begun["tracing"].is_null()
        });
    }
    let client = || Client::connect_within(folder.socket(), LONG).unwrap();
    wait_for("room", || client().trace(&options(|o| o.ms = Some(0))).is_ok());
    let mut raw = Raw::new(&folder.socket());
    for request in
        ["{\"trace\":{\"txq\":-1}}", "{\"trace\":{\"x\":1}}", "{\"trace\":5}", "{\"trace\":{\"txq\":70000}}"]
    {
        let answer = raw.ask(request).unwrap();
        assert!(answer["rc"] == 1 && answer["err"].as_str().unwrap().contains("not a request"), "{answer}");
    }
}
