//! Clients that write nonsense, stall, or die: they harm themselves only.

#[path = "../../../../tests/support/skip.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod skip;

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Bench, frame, wait};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use skip::require_root;
use txq_control::Access;
use txq_control::socket::{Client, Error, Reason, Rejection, SocketStats};

/// A client that may write anything anywhere, by the numbers of docs/socket.md.
struct Raw {
    socket: UnixStream,
    fd: OwnedFd,
    memory: *mut u8,
    size: usize,
}

// SAFETY: the memory is shared with another side anyway; all accesses are volatile.
unsafe impl Send for Raw {}

impl Raw {
    fn connect(bench: &Bench) -> Self {
        let socket = UnixStream::connect(bench.path()).unwrap();
        let mut welcome = [0; 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got =
            recvmsg(&socket, &mut [IoSliceMut::new(&mut welcome)], &mut control, RecvFlags::empty()).unwrap();
        assert_eq!(got.bytes, 16);
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let (fd, size) =
            (fd.expect("memory"), u32::from_ne_bytes(welcome[12..].try_into().unwrap()) as usize);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            mmap(ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0).unwrap()
        };
        Self { socket, fd, memory: memory.cast(), size }
    }

    fn write(&self, at: usize, value: u32) {
        assert!(at + 4 <= self.size);
        // SAFETY: in the mapping, and aligned in all uses.
        unsafe { self.memory.add(at).cast::<u32>().write_volatile(value) }
    }

    fn read(&self, at: usize) -> u32 {
        // SAFETY: as in `write`.
        unsafe { self.memory.add(at).cast::<u32>().read_volatile() }
    }

    fn descriptor(&self, slot: u32, words: [u32; 4]) {
        let at = 512 + 16 * slot as usize;
        words.into_iter().enumerate().for_each(|(n, word)| self.write(at + 4 * n, word));
    }

    fn publish(&mut self, cursor: u32) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.write(128, cursor);
        let _ = self.socket.write(&[0]);
    }

    /// Returns the last byte that the server has written before it ended the connection.
    fn last_byte(&mut self) -> Option<u8> {
        let mut all = Vec::new();
        let _ = self.socket.read_to_end(&mut all);
        all.last().copied()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nothing uses it any more.
        unsafe { rustix::mm::munmap(self.memory.cast(), self.size).unwrap() };
    }
}

fn rejected(stats: &SocketStats, why: Rejection) -> u64 {
    let of = |all: &[(Rejection, u64)]| all.iter().find(|(of, _)| *of == why).map_or(0, |(_, n)| *n);
    of(&stats.gone.rejected) + stats.clients.iter().map(|client| of(&client.rejected)).sum::<u64>()
}

fn ended(stats: &SocketStats, why: Reason) -> u64 {
    stats.ended.iter().find(|(of, _)| *of == why).unwrap().1
}

/// Sends frames beside the culprit, and checks that they arrive.
#[track_caller]
fn works(bench: &Bench) {
    let before = bench.sent();
    let mut client = Client::connect(bench.path()).unwrap();
    (0..100).for_each(|n| client.send(&frame(9, n, 60), 0).unwrap());
    wait("the others' frames", || bench.sent() >= before + 100);
}

#[test]
fn wrong_descriptors_are_counted_and_skipped() {
    let bench = Bench::new("pfifo limit 10000", |config| config.slots = 8);
    let mut raw = Raw::connect(&bench);
    let end = raw.read(20);
    let words = [
        [end, 60, 0, 0],
        [3, 60, 0, 0],
        [0, 0, 0, 0],
        [0, u32::MAX, 0, 0],
        [0, 60, 7, 0],
        [0, 60, 0, 8],
        [0, 60, 6, 0],
    ];
    (0..).zip(words).for_each(|(slot, words)| raw.descriptor(slot, words));
    raw.publish(7);
    bench.wait_sent(1);
    let stats = bench.stats();
    let counts = Rejection::ALL.map(|why| rejected(&stats, why));
    assert_eq!(counts, [2, 2, 1, 1]);
    wait("the cursor", || (raw.read(256), raw.read(264)) == (7, 6));
    works(&bench);
    drop(raw);
    bench.end();
}

#[test]
fn a_cursor_that_jumps_ends_the_connection() {
    let bench = Bench::new("pfifo limit 10000", |config| config.slots = 8);
    for cursor in [9, 1 << 31, u32::MAX] {
        let mut raw = Raw::connect(&bench);
        raw.publish(cursor);
        assert_eq!(raw.last_byte(), Some(Reason::BadCursor as u8));
        works(&bench);
    }
    // Forwards, and back.
    let mut raw = Raw::connect(&bench);
    (0..8).for_each(|slot| raw.descriptor(slot, [0, 60, 0, 0]));
    raw.publish(8);
    wait("the cursor", || raw.read(256) == 8);
    raw.publish(7);
    assert_eq!(raw.last_byte(), Some(Reason::BadCursor as u8));
    wait("the end", || ended(&bench.stats(), Reason::BadCursor) == 4);
    bench.end();
}

/// A thread writes nonsense over header, cursors and descriptors as fast as it can, while the server reads them.
#[test]
fn nonsense_while_it_is_read() {
    let bench = Bench::new("pfifo limit 100000", |config| (config.slots, config.clients) = (8, 64));
    let end = Instant::now() + Duration::from_millis(600);
    thread::scope(|scope| {
        for seed in 1..4_u32 {
            let bench = &bench;
            scope.spawn(move || {
                let mut state = seed;
                let mut random = || {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    state.rotate_left(16)
                };
                while Instant::now() < end {
                    let mut raw = Raw::connect(bench);
                    let mut cursor = 0_u32;
                    for _ in 0..random() % 4000 {
                        let (value, slot) = (random(), random() % 8);
                        match value % 16 {
                            0 => raw.write((random() % 128) as usize & !3, value),
                            1..8 => raw.descriptor(
                                slot,
                                [random() % 16384, random() % 1600, value % 9, value >> 31],
                            ),
                            8 => raw.write(132, value),
                            9 => raw.write(256 + 4 * (random() % 3) as usize, value),
                            10 if value >> 28 == 0 => raw.publish(value),
                            _ => {
                                // A right step, most of the time.
                                if cursor.wrapping_sub(raw.read(256)) < 8 {
                                    cursor += 1;
                                }
                                raw.publish(cursor);
                            }
                        }
                    }
                }
            });
        }
        let bench = &bench;
        scope.spawn(move || {
            while Instant::now() < end {
                works(bench)
            }
        });
    });
    let stats = bench.stats();
    assert!(Rejection::ALL.iter().all(|&why| rejected(&stats, why) > 0), "{stats:?}");
    works(&bench);
    bench.end();
}

/// The memory keeps its size and its seals, so the server has a page wherever it reads.
#[test]
fn the_memory_cannot_change_its_size() {
    use rustix::fs::{FallocateFlags, SealFlags, fallocate, fchmod, fcntl_add_seals, ftruncate};
    let bench = Bench::new("pfifo limit 10000", |_| {});
    let raw = Raw::connect(&bench);
    let full = raw.size as u64;
    for size in [0, full / 2, full * 2] {
        assert!(ftruncate(&raw.fd, size).is_err(), "{size}");
    }
    for flags in [FallocateFlags::empty(), FallocateFlags::ZERO_RANGE, FallocateFlags::COLLAPSE_RANGE] {
        assert!(fallocate(&raw.fd, flags, full, 4096).is_err(), "{flags:?}");
    }
    assert!(rustix::io::pwrite(&raw.fd, &[1; 8], full).is_err());
    assert!(fcntl_add_seals(&raw.fd, SealFlags::WRITE).is_err());
    // A kernel from 6.3 on.
    if rustix::fs::fcntl_get_seals(&raw.fd).unwrap().bits() & 0x20 != 0 {
        assert!(fchmod(&raw.fd, rustix::fs::Mode::RWXU).is_err());
    }
    works(&bench);
    drop(raw);
    bench.end();
}

/// A client punches holes into the memory, by both calls that do, while the server reads its frames. A hole reads as zeros: a
/// descriptor of zeros has no length. The server gets no more pages back than the ring has.
#[test]
fn holes_read_as_zeros() {
    use rustix::fs::{FallocateFlags, fallocate, fstat};
    let bench = Bench::new("pfifo limit 100000", |config| config.slots = 8);
    let mut raw = Raw::connect(&bench);
    let full = raw.size as u64;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for round in 0..600_usize {
        (0..8).for_each(|slot| raw.descriptor(slot, [slot * 8, 60, 0, 0]));
        // The frames; all; and the page of header, cursors and descriptors.
        let (start, len) = [(4096, full - 4096), (0, full), (0, 4096)][round % 3];
        if round % 2 == 0 {
            fallocate(&raw.fd, hole, start, len).unwrap();
        } else {
            // SAFETY: the range lies in the mapping, whose accesses are all volatile.
            let done = unsafe {
                let at = raw.memory.add(start as usize);
                libc::madvise(at.cast(), len as usize, libc::MADV_REMOVE)
            };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        }
        match round % 3 {
            0 => {
                raw.publish(8);
                wait("the cursor", || raw.read(256) == 8);
            }
            1 => {
                // From 8 back to 1.
                raw.publish(1);
                assert_eq!(raw.last_byte(), Some(Reason::BadCursor as u8));
                raw = Raw::connect(&bench);
            }
            _ => {
                // A new client's cursor was 0 anyway.
                raw.publish(1);
                wait("the cursor", || raw.read(256) == 1);
                raw = Raw::connect(&bench);
            }
        }
        assert!(fstat(&raw.fd).unwrap().st_blocks as u64 * 512 <= full);
    }
    let stats = bench.stats();
    assert_eq!(
        (rejected(&stats, Rejection::Length), ended(&stats, Reason::BadCursor)),
        (200, 200),
        "{stats:?}"
    );
    works(&bench);
    drop(raw);
    bench.end();
}

#[test]
fn silent_clients_and_too_many() {
    let bench = Bench::new("pfifo limit 10000", |config| config.clients = 3);
    // They connect, and read and say nothing.
    let silent: Vec<_> = (0..2).map(|_| UnixStream::connect(bench.path()).unwrap()).collect();
    works(&bench);
    bench.wait_clients(2);
    let third = Client::connect(bench.path()).unwrap();
    for _ in 0..3 {
        assert!(matches!(Client::connect(bench.path()), Err(Error::Refused(Reason::Full))));
    }
    assert_eq!(ended(&bench.stats(), Reason::Full), 3);
    drop((silent, third));
    bench.wait_clients(0);
    works(&bench);
    bench.end();
}

/// A client that rings without end and never reads has turns like any other.
#[test]
fn a_flood_of_rings() {
    let bench = Bench::new("pfifo limit 10000", |_| {});
    let mut raw = Raw::connect(&bench);
    let end = Instant::now() + Duration::from_millis(300);
    thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < end {
                raw.write(132, 1);
                raw.descriptor(raw.read(256) % 8, [0, 60, 0, 0]);
                raw.socket.write_all(&[0; 4096]).unwrap();
            }
        });
        works(&bench);
    });
    drop(raw);
    bench.end();
}

/// The pages of a client that left are free, although it keeps the memory. What it touches from then on is its own.
#[test]
fn a_client_that_left_holds_no_memory_of_the_server() {
    let bench = Bench::new("pfifo limit 10000", |_| {});
    let raw = Raw::connect(&bench);
    bench.wait_clients(1);
    let pages = |raw: &Raw| rustix::fs::fstat(&raw.fd).unwrap().st_blocks;
    assert!(pages(&raw) * 512 >= raw.size as i64, "{} of {} bytes", pages(&raw) * 512, raw.size);
    raw.socket.shutdown(std::net::Shutdown::Both).unwrap();
    bench.wait_clients(0);
    wait("memory that is given back", || pages(&raw) == 0);
    // One that the server ends keeps the header alone.
    let raw = Raw::connect(&bench);
    raw.write(128, 1 << 20);
    (&raw.socket).write_all(&[0]).unwrap();
    bench.wait_clients(0);
    wait("memory that is given back", || pages(&raw) * 512 <= 4096);
    works(&bench);
    bench.end();
}

/// A user that connects without end gets a burst of rings, then some each second. The others do not wait for it.
#[test]
fn a_user_connects_so_often() {
    let bench = Bench::new("pfifo limit 10000", |config| config.clients = 1000);
    let (start, mut open) = (Instant::now(), Vec::new());
    // The kernel lets a client wait for a server with many connections, and the server answers all in time.
    while ended(&bench.stats(), Reason::TooOften) == 0 {
        open.push(UnixStream::connect(bench.path()).unwrap());
    }
    let (welcomed, elapsed) = (bench.stats().connections, start.elapsed());
    assert!(u128::from(welcomed) <= 66 + elapsed.as_millis() / 10, "{welcomed} in {elapsed:?}");
    drop(open);
    let mut client = loop {
        match Client::connect(bench.path()) {
            Ok(client) => break client,
            Err(Error::Refused(Reason::TooOften) | Error::Connect { .. }) => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    };
    client.send(&frame(7, 0, 60), 0).unwrap();
    drop(client);
    bench.end();
}

/// A client that rings without frames is heard a thousand times a second at most.
#[test]
fn rings_without_frames_are_heard_seldom() {
    let bench = Bench::new("pfifo limit 10000", |_| {});
    let raw = Raw::connect(&bench);
    bench.wait_clients(1);
    raw.socket.set_nonblocking(true).unwrap();
    let (start, mut rung) = (Instant::now(), 0u128);
    while start.elapsed() < Duration::from_millis(500) {
        rung += u128::from((&raw.socket).write(&[0; 64]).is_ok());
    }
    // Those that are heard, those before, and those that the kernel keeps: 212992 bytes at 320 a message, unless it was told otherwise.
    let bound = start.elapsed().as_millis() + 33 + 1 + 1000;
    assert!(rung <= bound, "{rung} rings, {bound} are heard");
    works(&bench);
    drop(raw);
    bench.end();
}

/// Bytes that the protocol does not have end the connection.
#[test]
fn other_bytes_end_the_connection() {
    let bench = Bench::new("pfifo limit 10000", |_| {});
    let mut raw = Raw::connect(&bench);
    raw.socket.write_all(b"GET / HTTP/1.0\r\n").unwrap();
    bench.wait_clients(0);
    works(&bench);
    bench.end();
}

#[test]
fn other_users_are_refused() {
    if !require_root("other_users_are_refused") {
        return;
    }
    let bench = Bench::new("pfifo limit 10000", |config| config.access = Access::Owner);
    std::fs::set_permissions(bench.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = bench.folder.path().join("as-another-user");
    // A copy, which another user can execute. Another process writes it: a child of another test would inherit this one's file, and
    // the copy could not be executed meanwhile.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let run = || {
        let mut command = Command::new(&program);
        command.uid(65534).gid(65534).env("TXQ_SOCKET_PATH", bench.path());
        let done =
            command.args(["--exact", "hostile::connects_for_another_test", "--nocapture"]).output().unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let said = run();
    assert!(said.contains("Permission denied"), "{said}");
    // The file's permissions are wrong, and the peer's user is not.
    std::fs::set_permissions(bench.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let said = run();
    assert!(said.contains("it does not serve this user"), "{said}");
    assert_eq!(ended(&bench.stats(), Reason::Denied), 1);
    works(&bench);
    bench.end();
}

/// The other user of the test above; nothing without its variable.
#[test]
fn connects_for_another_test() {
    if let Some(path) = std::env::var_os("TXQ_SOCKET_PATH") {
        match Client::connect(path) {
            Ok(_) => println!("connected"),
            Err(error) => println!("{error}"),
        }
    }
}
