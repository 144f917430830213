//! Clients send, wait, leave and come back; the counters explain every frame.

use std::thread;
use std::time::Duration;

use crate::common::{Bench, LONG, frame, wait};
use txq::drop::DropReason;
use txq_control::socket::{Client, Error, Reason, Server, ServerConfig};

#[test]
fn frames_arrive_whole_and_in_order() {
    let bench = Bench::new("pfifo limit 10000", |config| config.slots = 8);
    let mut client = Client::connect(bench.path()).unwrap();
    let layout = *client.layout();
    assert_eq!(
        (layout.slots(), layout.frame_min(), layout.frame_max(), layout.priority_max()),
        (8, 14, 1518, 6)
    );
    let lengths = [19, 60, 61, 64, 1500, 1517, 1518];
    let all: Vec<_> = (0..500).map(|n| (frame(1, n, lengths[n as usize % 7]), n % 7)).collect();
    all.iter().for_each(|(frame, priority)| client.send(frame, *priority).unwrap());
    bench.wait_sent(500);
    assert_eq!(*bench.sent.lock().unwrap(), all);
    wait("an empty ring", || client.pending().unwrap() == 0);
    let stats = &bench.stats().clients[0];
    let bytes: usize = all.iter().map(|(frame, _)| frame.len()).sum();
    assert_eq!((stats.name.as_str(), stats.frames, stats.bytes), ("lan.0", 500, bytes as u64));
    assert!(stats.rejected.iter().all(|(_, n)| *n == 0) && client.rejected() == 0);
    let row = |name: &str| bench.dev.stats().senders.into_iter().find(|row| row.name == name).unwrap();
    wait("completions", || row("lan.0").sent == 500);
    for (frame, priority, why) in [
        (frame(1, 0, 1518), 7, "priority 7 is above 6"),
        (vec![0; 13], 0, "13 bytes: use 14 to 1518"),
        (vec![0; 1519], 0, "1519 bytes: use 14 to 1518"),
    ] {
        let error = client.push(&frame, priority).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    drop(client);
    bench.wait_clients(0);
    assert_eq!(bench.stats().gone.frames, 500);
    assert_eq!(row("lan.0").sent, 500);
    bench.end();
}

/// A program that sends and ends at once: what it has published is sent.
#[test]
fn frames_of_a_client_that_ends_are_sent() {
    let bench = Bench::new("pfifo limit 10000", |config| (config.slots, config.credit) = (1024, 4));
    for round in 0..5 {
        let mut client = Client::connect(bench.path()).unwrap();
        (0..1000).for_each(|n| client.push(&frame(round, n, 60), 0).unwrap());
        client.flush();
        // Not published.
        client.push(&frame(round, 1000, 60), 0).unwrap();
        drop(client);
    }
    bench.wait_sent(5000);
    bench.end();
}

/// While the device is slow, a client has its credit in the device and the rest in its ring, and sleeps.
#[test]
fn credit_bounds_what_a_client_has_in_the_device() {
    let bench = Bench::new("tbf rate 8mbit burst 2k limit 100k", |config| {
        (config.slots, config.credit) = (16, 4);
    });
    let mut client = Client::connect(bench.path()).unwrap();
    let mut most = 0;
    for n in 0..200 {
        client.send(&frame(0, n, 600), 0).unwrap();
        let pending = bench.dev.stats().senders.iter().map(|row| row.pending).max().unwrap_or(0);
        most = most.max(pending);
    }
    assert!(most <= 4, "{most} packets on their way");
    bench.wait_sent(200);
    assert!(bench.stats().clients[0].stalls > 0);
    assert_eq!(bench.dev.stats().dropped.total(), 0);
    drop(client);
    bench.end();
}

/// A qdisc with a lower limit than the credits drops: each client's row has its own drops, by reason.
#[test]
fn drops_are_counted_for_the_client_by_reason() {
    let bench = Bench::new("tbf rate 800kbit burst 2k limit 3k", |_| {});
    let mut clients = [60, 10].map(|n| {
        let mut client = Client::connect(bench.path()).unwrap();
        (0..n).for_each(|n| client.send(&frame(0, n, 600), 0).unwrap());
        client
    });
    wait("empty rings", || clients.iter_mut().all(|client| client.pending().unwrap() == 0));
    wait("an idle device", || bench.dev.is_idle());
    let stats = bench.dev.stats();
    let drops = |name: &str| stats.senders.iter().find(|row| row.name == name).unwrap().drops;
    let mut sum = drops("lan.0");
    sum.merge(&drops("lan.1"));
    assert_eq!(sum, stats.dropped);
    assert!(drops("lan.0").get(DropReason::QdiscOverlimit) > 0, "{stats:?}");
    assert_eq!(drops("lan.0").total(), drops("lan.0").get(DropReason::QdiscOverlimit));
    drop(clients);
    bench.end();
}

/// One client's device queue is full for a long time; another client's frames pass on another socket of the same thread.
#[test]
fn a_stalled_device_does_not_hold_up_others() {
    let slow =
        Bench::new("tbf rate 1kbit burst 2k limit 100k", |config| (config.slots, config.credit) = (16, 4));
    let fast = Bench::new("pfifo limit 1000", |_| {});
    let path = fast.folder.path().join("both.sock");
    slow.server.open(ServerConfig::new("both", &path), &fast.dev).unwrap();
    let mut stalled = Client::connect(slow.path()).unwrap();
    while stalled.wait(Some(Duration::from_millis(50))).unwrap() {
        while stalled.push(&frame(0, 0, 600), 0).is_ok() {}
    }
    let mut client = Client::connect(&path).unwrap();
    (0..2000).for_each(|n| client.send(&frame(0, n, 60), 0).unwrap());
    fast.wait_sent(2000);
    assert!(slow.sent() < 10);
    // The socket is closed: the device is free of its clients at once.
    slow.server.close(&path);
    assert!(matches!(client.wait(Some(LONG)), Err(Error::Refused(Reason::Ended))));
    assert!(matches!(client.send(&[0; 60], 0), Ok(()) | Err(Error::Refused(Reason::Ended))));
    assert!(matches!(Client::connect(&path), Err(Error::Connect { .. })));
    fast.end();
    slow.server.close(&slow.path());
    assert!(matches!(stalled.wait(Some(LONG)), Err(Error::Refused(Reason::Ended))));
}

#[test]
fn a_second_server_is_refused_and_a_stale_socket_is_replaced() {
    let bench = Bench::new("pfifo", |_| {});
    let other = Server::start().unwrap();
    let error = other.open(ServerConfig::new("two", bench.path()), &bench.dev).unwrap_err().to_string();
    assert!(error.contains("another program listens there") && !error.contains("--socket"), "{error}");
    let stale = bench.folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    other.open(ServerConfig::new("stale", &stale), &bench.dev).unwrap();
    let mut client = Client::connect(&stale).unwrap();
    client.send(&frame(0, 0, 60), 0).unwrap();
    bench.wait_sent(1);
    drop(other);
    // Either it hears the reason, or the kernel has thrown it away with the connection.
    assert!(matches!(client.wait(Some(LONG)).and_then(|_| client.wait(Some(LONG))), Err(_) | Ok(true)));
    wait("the end", || client.check().is_err());
    bench.end();
}

/// Many threads, each a client: every frame arrives once, in its client's order.
#[test]
fn many_clients_at_a_time() {
    let bench = Bench::new("pfifo limit 100000", |config| (config.slots, config.clients) = (4, 24));
    thread::scope(|scope| {
        for tag in 0..24 {
            let path = bench.path();
            scope.spawn(move || {
                let mut client = Client::connect(path).unwrap();
                (0..300).for_each(|n| client.send(&frame(tag, n, 60 + n as usize), 0).unwrap());
            });
        }
    });
    bench.wait_sent(24 * 300);
    let mut next = [0; 24];
    for (got, _) in bench.sent.lock().unwrap().iter() {
        let n = &mut next[usize::from(got[18])];
        assert_eq!(*got, frame(got[18], *n, 60 + *n as usize));
        *n += 1;
    }
    assert_eq!(bench.stats().connections, 24);
    bench.end();
}
