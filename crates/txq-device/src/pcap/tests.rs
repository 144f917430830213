use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use super::*;
use crate::capture::{Capture, Summary};
use crate::testing::{Bench, ZEROS};
use txq::NetDev;

/// A path in the temporary folder that is removed with this value.
struct Temp(PathBuf);

impl Temp {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("txq-pcap-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn what_is_sent_is_read_back_byte_for_byte() {
    let path = Temp::new();
    let frames: Vec<Vec<u8>> = (0..2000_usize).map(|n| vec![n as u8; n % 1900]).collect();
    let mut bench = Bench::new(&mut Pcap::create(&path.0, 1).unwrap());
    for chunk in frames.chunks(32) {
        let mut batch = bench.packets(chunk.iter().map(Vec::as_slice));
        let sent = bench.xmit(&mut batch);
        assert_eq!((sent.status, sent.done.len()), (Status::Ok, chunk.len()));
    }
    bench.finish().unwrap();
    let capture = Capture::open(&path.0).unwrap();
    let (mut read, mut last) = (capture.frames(), Duration::ZERO);
    for frame in &frames {
        assert!(read.advance().unwrap());
        assert!(read.frame().data == frame && read.frame().at >= last);
        last = read.frame().at;
    }
    assert!(!read.advance().unwrap());
}

#[test]
fn the_link_is_in_the_file() {
    for link in [Link::Ethernet, Link::Ip] {
        let path = Temp::new();
        let mut bench = Bench::new(&mut Pcap::create(&path.0, 1).unwrap().link(link));
        let mut batch = bench.packets([&ZEROS[..60]]);
        let _ = bench.xmit(&mut batch);
        bench.finish().unwrap();
        let capture = Capture::open(&path.0).unwrap();
        let mut frames = capture.frames();
        assert!(frames.advance().unwrap() && frames.frame().link == link && !frames.advance().unwrap());
    }
}

#[test]
fn times_are_wall_times() {
    let path = Temp::new();
    let mut bench = Bench::new(&mut Pcap::create(&path.0, 1).unwrap());
    let mut batch = bench.packets([&ZEROS[..60]]);
    let _ = bench.xmit(&mut batch);
    bench.finish().unwrap();
    let seconds = u32::from_ne_bytes(std::fs::read(&path.0).unwrap()[24..28].try_into().unwrap());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert!(now - u64::from(seconds) < 60);
}

/// All txqs write one file, and its times do not decrease where their packets interleave.
#[test]
fn txqs_share_the_file() {
    let path = Temp::new();
    let mut dev = NetDev::builder(Pcap::create(&path.0, 3).unwrap()).start().unwrap();
    std::thread::scope(|scope| {
        for cpu in 0..3_u8 {
            let mut sender = dev.sender_on("s", cpu.into());
            scope.spawn(move || {
                for n in 0..500_u16 {
                    let mut packet = sender.packet(&ZEROS[..60]).unwrap();
                    packet.data_mut()[0] = cpu;
                    packet.data_mut()[1..3].copy_from_slice(&n.to_be_bytes());
                    packet.set_hash(u32::from(cpu) + 1);
                    let _ = sender.xmit(packet);
                }
            });
        }
    });
    assert!(dev.drain(Duration::from_secs(5)));
    let stats = dev.audit().unwrap();
    dev.shutdown().unwrap();
    let capture = Capture::open(&path.0).unwrap();
    let mut next = [0_u16; 3];
    let mut last = Duration::ZERO;
    let mut frames = capture.frames();
    while frames.advance().unwrap() {
        let frame = frames.frame();
        assert!(frame.at >= last);
        last = frame.at;
        let next = &mut next[usize::from(frame.data[0])];
        let n = u16::from_be_bytes(frame.data[1..3].try_into().unwrap());
        assert!(n >= *next, "order within a sender");
        *next = n + 1;
    }
    assert_eq!(capture.summary().unwrap().frames, stats.sent);
}

/// Returns a device on a full disk.
fn full() -> Pcap {
    Pcap::onto(Path::new("/dev/full"), File::options().write(true).open("/dev/full").unwrap(), 1)
}

#[test]
fn a_full_disk_drops_what_comes_and_is_told_once() {
    let mut bench = Bench::new(&mut full());
    let (mut sent, mut dropped) = (0, 0);
    for _ in 0..100 {
        let mut batch = bench.packets([&ZEROS[..1500]; 8]);
        let xmit = bench.xmit(&mut batch);
        assert_eq!((xmit.status, batch.len()), (Status::Ok, 0));
        sent += xmit.done.len();
        dropped += xmit.dropped.len();
        assert!(xmit.dropped.iter().all(|packet| packet.drop_reason() == DropReason::DevReady));
    }
    assert_eq!(sent + dropped, 800);
    let error = bench.finish().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let text = error.to_string();
    assert!(
        text.contains("\"/dev/full\"") && text.contains(&format!("{sent} packets counted as sent")),
        "{text}"
    );
    bench.finish().unwrap();
}

#[test]
fn a_full_disk_is_found_at_the_end_too() {
    let mut bench = Bench::new(&mut full());
    let mut batch = bench.packets([&ZEROS[..60]; 3]);
    assert_eq!(bench.xmit(&mut batch).done.len(), 3);
    let text = bench.finish().unwrap_err().to_string();
    assert!(text.contains(": 3 packets counted as sent are not in it"), "{text}");
}

/// After a failed write the file ends with a whole packet: here a limit on the file's size stands for the full disk.
#[test]
fn a_file_that_could_not_grow_is_still_readable() {
    let path = Temp::new();
    let mut pcap = Pcap::create(&path.0, 1).unwrap();
    let file = pcap.file.clone();
    let mut bench = Bench::new(&mut pcap);
    let mut xmit = |frames: usize| {
        let mut batch = bench.packets(std::iter::repeat_n(&ZEROS[..1500], frames));
        bench.xmit(&mut batch).done.len()
    };
    assert_eq!(xmit(50), 50, "more than is worth a write");
    // A descriptor that is not writable stands for the full disk.
    let good = std::mem::replace(&mut lock(&file).file, File::open(&path.0).unwrap());
    assert_eq!((xmit(20), xmit(40)), (20, 0));
    drop(good);
    let summary = Capture::open(&path.0).unwrap().summary().unwrap();
    assert_eq!(summary, Summary { frames: 50, bytes: 75_000, longest: 1500, ..summary });
}

#[test]
fn a_folder_that_is_missing_is_told() {
    let error = Pcap::create("/nowhere/out.pcap", 1).err().unwrap().to_string();
    assert!(error.starts_with("pcap file \"/nowhere/out.pcap\" cannot be created"), "{error}");
}

/// A pipe would hold the caller until it has a reader. The file that is found stays as it is.
#[test]
fn only_regular_files_are_written() {
    let (pipe, socket) = (Temp::new(), Temp::new());
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe.0, FileType::Fifo, mode, 0).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket.0).unwrap();
    let told = |path: &Path| Pcap::create(path, 1).err().map(|error| error.to_string()).unwrap_or_default();
    for (path, what) in [
        (&*pipe.0, "it is a pipe"),
        (&*socket.0, "it is a socket"),
        (&*std::env::temp_dir(), "it is a folder"),
        (Path::new("/dev/null"), "it is a device"),
    ] {
        assert!(told(path).contains(what), "{}: {}", path.display(), told(path));
    }
    let link = Temp::new();
    std::os::unix::fs::symlink(&pipe.0, &link.0).unwrap();
    assert!(told(&link.0).contains("it is a pipe"), "{}", told(&link.0));
}
