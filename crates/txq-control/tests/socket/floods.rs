//! Clients that connect and ring without end: what others ask for is done soon all the same.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Bench, frame};
use txq_control::Server;
use txq_control::socket::Client;
use txq_control::tc::Show;

/// The median of so many calls counts.
const CALLS: u32 = 200;
/// Another program may have the CPUs meanwhile, so the best of several rounds counts: of so many, if the first ones are not good enough.
const ROUNDS: usize = 20;
/// How much longer a call may take than beside a flood of the same kind that meets another socket.
const BOUND: u32 = 10;

/// A flood of the socket at a path, until `stop`.
type Flood = fn(&Path, &AtomicBool);

fn connects(path: &Path, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        // A full backlog refuses.
        drop(UnixStream::connect(path));
    }
}

fn rings(path: &Path, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        // A user that connects too often is refused, and tries again.
        let Ok(mut stream) = UnixStream::connect(path) else { continue };
        stream.set_nonblocking(true).expect("a socket");
        let is_there = |written: io::Result<usize>| {
            written.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |n| n > 0)
        };
        while !stop.load(Relaxed) && is_there(stream.write(&[0])) {}
    }
}

/// A socket that has no use: a thread accepts, and reads a little once a millisecond, until `stop`.
fn serve(listener: &UnixListener, stop: &AtomicBool) {
    listener.set_nonblocking(true).expect("a socket");
    let mut streams: Vec<UnixStream> = Vec::new();
    let is_there = |read: io::Result<usize>| {
        read.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |n| n > 0)
    };
    while !stop.load(Relaxed) {
        streams.extend(listener.accept().map(|(stream, _)| stream));
        streams
            .retain_mut(|stream| stream.set_nonblocking(true).is_ok() && is_there(stream.read(&mut [0; 64])));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the median time of a call beside a flood of the socket at `path`.
fn beside(path: &Path, flood: Flood, call: &mut dyn FnMut()) -> Duration {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| flood(path, &stop));
        let mut all: Vec<_> = (0..CALLS)
            .map(|_| {
                let begun = Instant::now();
                call();
                let took = begun.elapsed();
                // The server sleeps again.
                thread::sleep(Duration::from_micros(500));
                took
            })
            .collect();
        stop.store(true, Relaxed);
        all.sort_unstable();
        all[all.len() / 2]
    })
}

/// Asserts that a call takes about as long beside a flood of the socket at `path` as beside one that meets another socket.
#[track_caller]
fn compare(bench: &Bench, path: &Path, flood: Flood, call: &mut dyn FnMut()) {
    let other = bench.folder.path().join("other.sock");
    let (listener, stop) = (UnixListener::bind(&other).expect("a socket"), AtomicBool::new(false));
    let (mut calm, mut flooded) = (Duration::MAX, Duration::MAX);
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &stop));
        for _ in 0..ROUNDS {
            calm = calm.min(beside(&other, flood, call));
            flooded = flooded.min(beside(path, flood, call));
            if flooded < calm * BOUND {
                break;
            }
        }
        stop.store(true, Relaxed);
    });
    println!("{calm:?} beside a flood elsewhere, {flooded:?} beside one here");
    assert!(flooded < calm * BOUND, "{flooded:?}, and {calm:?} beside a flood elsewhere");
}

/// Sends a frame, and waits until it has left.
fn sends<'b>(bench: &'b Bench, client: &'b mut Client) -> impl FnMut() + 'b {
    move || {
        let before = bench.sent();
        client.send(&frame(1, 0, 60), 0).expect("a connection");
        while bench.sent() == before {
            thread::yield_now();
        }
    }
}

#[test]
fn connections_without_end_delay_no_ring() {
    let bench = Bench::new("pfifo limit 1000", |_| {});
    let mut client = Client::connect(bench.path()).expect("a server");
    compare(&bench, &bench.path(), connects, &mut sends(&bench, &mut client));
    drop(client);
    bench.end();
}

#[test]
fn rings_without_end_delay_no_ring() {
    let bench = Bench::new("pfifo limit 1000", |_| {});
    let mut client = Client::connect(bench.path()).expect("a server");
    compare(&bench, &bench.path(), rings, &mut sends(&bench, &mut client));
    drop(client);
    bench.end();
}

#[test]
fn connections_without_end_delay_no_command() {
    let bench = Bench::new("pfifo limit 1000", |_| {});
    let path = bench.folder.path().join("control.sock");
    let server = Server::builder().at(path.as_path()).device(&bench.dev).start().expect("a server");
    let mut client = txq_control::Client::connect(path.as_path()).expect("a server");
    let words = ["qdisc", "show", "dev", "d0"];
    let mut call = || assert_eq!(client.tc(&words, Show::default()).expect("an answer").rc, 0);
    compare(&bench, &path, connects, &mut call);
    drop((client, server));
    bench.end();
}
