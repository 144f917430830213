//! Two clients attack a daemon at once, one by its ring and one by the control socket: the server goes on, an honest client's frames
//! leave, and the counters add up.
#![no_main]

use std::cell::RefCell;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use txq::NetDev;
use txq::pool::{Backing, PoolConfig};
use txq_control::socket::{Client, Error, Reason, ServerConfig};
use txq_control::{Limits, Server, socket};
use txq_device::Null;

/// The offsets of the producer's cursor and of the descriptors.
const PRODUCER: u64 = 128;
const DESCRIPTORS: u64 = 512;
const SLOTS: u64 = 8;
/// After so many inputs an honest client sends, and the counters are checked.
const PERIOD: u32 = 16;
/// Requests that are valid, for a client that also sends any bytes.
const REQUESTS: [&str; 16] = [
    r#"{"v":1,"tc":{"words":["qdisc","replace","dev","d0","root","handle","1:","prio"]}}"#,
    r#"{"v":1,"tc":{"words":["qdisc","replace","dev","d0","root","fq_codel"]}}"#,
    r#"{"v":1,"tc":{"words":["qdisc","replace","dev","d0","root","tbf","rate","1gbit","burst","10k","latency","1ms"]}}"#,
    r#"{"v":1,"tc":{"words":["qdisc","del","dev","d0","root"]}}"#,
    r#"{"v":1,"tc":{"words":["qdisc","add","dev","d0","parent","1:1","netem","loss","10%"]}}"#,
    r#"{"v":1,"tc":{"words":["qdisc","add","dev","d0","clsact"]}}"#,
    r#"{"v":1,"tc":{"words":["qdisc","del","dev","d0","clsact"]}}"#,
    r#"{"v":1,"tc":{"words":["filter","add","dev","d0","egress","protocol","all","u32","match","u8","0","1","at","0","action","drop"]}}"#,
    r#"{"v":1,"tc":{"words":["filter","del","dev","d0","parent","1:"]}}"#,
    r#"{"v":1,"tc":{"words":["-s","class","show","dev","d0"],"show":{"stats":true,"json":true}}}"#,
    r#"{"v":1,"stat":{"dev":"d0"}}"#,
    r#"{"v":1,"save":{"dev":"d0"}}"#,
    r#"{"v":1,"trace":{"dev":"d0","expr":"","count":3,"ms":1}}"#,
    r#"{"v":1,"contention":{"dev":"d0","ms":1}}"#,
    r#"{"v":1,"hist":{"what":"xmit","dev":"d0","ms":1}}"#,
    r#"{"v":1,"dev":{"words":["show","d0"]}}"#,
];

/// A daemon, until the process ends.
struct Daemon {
    dev: NetDev,
    _control: Server,
    _rings: socket::Server,
    control: PathBuf,
    ring: PathBuf,
}

fn daemon() -> &'static Daemon {
    static DAEMON: OnceLock<Daemon> = OnceLock::new();
    DAEMON.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("txq-fuzz-{}", std::process::id()));
        let (control, ring) = (folder.join("control"), folder.join("ring"));
        // Each client of the ring needs buffers of its own.
        let pool = PoolConfig { buffers: 2048, room: 256, backing: Backing::Heap, ..PoolConfig::default() };
        let null = Null { name: "d0".to_owned(), ..Null::new(1) };
        let dev = NetDev::builder(null).pool_config(pool).start().expect("a device");
        let mut limits = Limits::default();
        limits.recording_time = Duration::from_millis(1);
        let server =
            Server::builder().at(control.as_path()).device(&dev).limits(limits).start().expect("a server");
        let rings = socket::Server::start().expect("a server of rings");
        let mut config = ServerConfig::new("ring", &ring);
        (config.slots, config.clients, config.credit) = (SLOTS as u32, 4, 8);
        rings.open(config, &dev).expect("a socket");
        Daemon { dev, _control: server, _rings: rings, control, ring }
    })
}

/// A client's end of a ring, which it may fill with anything.
struct Ring {
    stream: UnixStream,
    memory: OwnedFd,
    size: u64,
}

impl Ring {
    /// Connects; `None` if the server refuses, as it does a user that connects too often.
    fn connect() -> Option<Self> {
        let stream = UnixStream::connect(&daemon().ring).expect("the server listens");
        let (mut welcome, mut space) = ([0; 16], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got =
            recvmsg(&stream, &mut [IoSliceMut::new(&mut welcome)], &mut control, RecvFlags::CMSG_CLOEXEC);
        assert_eq!(got.expect("a welcome").bytes, 16);
        let memory = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })?;
        stream.set_nonblocking(true).expect("a socket");
        let size = u32::from_ne_bytes(welcome[12..].try_into().expect("four bytes"));
        Some(Self { stream, memory, size: size.into() })
    }

    /// Writes what a round says; returns false when the server has ended the connection.
    fn round(&mut self, round: [u8; 24], cursor: &mut u32) -> bool {
        let at = u64::from(u16::from_ne_bytes([round[0], round[1]]));
        let at = if round[2] & 1 == 0 { DESCRIPTORS + at % SLOTS * 16 } else { at % (self.size - 16) };
        self.write(&round[8..], at);
        *cursor = match round[2] >> 4 {
            0 => u32::from_ne_bytes(round[4..8].try_into().expect("four bytes")),
            step => cursor.wrapping_add(u32::from(step) % 9),
        };
        self.write(&cursor.to_ne_bytes(), PRODUCER);
        let byte = if round[3] == 255 { round[4] } else { 0 };
        let mut heard = [0; 64];
        let is_gone = |result: std::io::Result<usize>, nothing| match result {
            Ok(n) => n == nothing,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        };
        !is_gone(self.stream.write(&[byte]), 0) && !is_gone(self.stream.read(&mut heard), 0)
    }

    fn write(&self, bytes: &[u8], at: u64) {
        assert_eq!(rustix::io::pwrite(&self.memory, bytes, at).expect("in the memory"), bytes.len());
    }
}

/// Attacks the ring, by the connection of earlier inputs if it still is one.
fn attack_ring(ring: &mut Option<Ring>, bytes: &[u8]) {
    let mut cursor = 0;
    for round in bytes.as_chunks::<24>().0 {
        if ring.is_none() {
            *ring = Ring::connect();
            cursor = 0;
        }
        let Some(connected) = ring else { return };
        if !connected.round(*round, &mut cursor) {
            *ring = None;
        }
    }
}

/// Sends requests of which some are valid and some are any bytes; the answers are objects of JSON.
fn attack_control(bytes: &[u8]) {
    let mut client = UnixStream::connect(&daemon().control).expect("the server listens");
    for request in bytes.chunks(8) {
        // The server may have closed the connection already.
        let _ = match REQUESTS.get(usize::from(request[0])) {
            Some(known) => client.write_all(known.as_bytes()),
            None => client.write_all(request),
        };
        let _ = client.write_all(b"\n");
    }
    let _ = client.shutdown(Shutdown::Write);
    let mut said = String::new();
    let _ = client.read_to_string(&mut said);
    for line in said.lines() {
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
    }
}

/// Sends as an honest client, and checks that the frames leave and that the counters add up.
fn check() {
    let dev = &daemon().dev;
    for words in ["qdisc del clsact", "qdisc replace root pfifo"] {
        let _ = dev.tc(words);
    }
    let before = dev.stats().sent;
    let mut client = loop {
        match Client::connect(&daemon().ring) {
            Ok(client) => break client,
            Err(Error::Refused(Reason::TooOften | Reason::Full)) => thread::sleep(Duration::from_millis(20)),
            Err(error) => panic!("{error}"),
        }
    };
    for _ in 0..20 {
        client.send(&[2; 60], 0).expect("a connection");
    }
    while dev.stats().sent < before + 20 {
        thread::sleep(Duration::from_millis(1));
    }
    dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
}

thread_local! {
    static RING: RefCell<(Option<Ring>, u32)> = const { RefCell::new((None, 0)) };
}

fuzz_target!(|bytes: &[u8]| {
    daemon();
    let (first, second) = bytes.split_at(bytes.len() * 2 / 3);
    RING.with_borrow_mut(|(ring, inputs)| {
        thread::scope(|scope| {
            scope.spawn(|| attack_control(second));
            attack_ring(ring, first);
        });
        *inputs += 1;
        if *inputs % PERIOD == 0 {
            // Without the attacker, whose frames would count.
            *ring = None;
            check();
        }
    });
});
