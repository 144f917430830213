//! Calls of a program under `txq exec`, with any arguments: each has the kernel's result, no memory is read that is not there, and the
//! numbers of the library's descriptors stay the program's.
#![no_main]

use std::ffi::{c_int, c_long, c_void};
use std::mem::zeroed;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
// Its functions take the place of the C library's.
use txq_preload as _;

/// The variable that the library reads when it is loaded.
const QDISC: &str = "TXQ_EXEC_QDISC";
/// The program's memory, and as much behind it that it must not access.
const ARENA: usize = 1 << 17;
/// The first number of the library's descriptors.
const OWN: c_int = 500;
const NUMBERS: usize = 8;
/// Lengths at the edges of the types and of what the kernel takes.
const LENGTHS: [usize; 16] = [
    0,
    1,
    8,
    63,
    64,
    1023,
    1024,
    1025,
    1472,
    65_507,
    65_508,
    1 << 31,
    1 << 60,
    1 << 63,
    usize::MAX - 7,
    usize::MAX,
];

/// A system call past the library; returns its result or `-errno`.
fn bare(number: c_long, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel checks the arguments, and writes to the arena alone.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c, in("x3") d,
            in("x4") e, in("x5") f);
    }
    result
}

/// Returns the result of a call of the C library as `bare` does.
fn answer(result: isize) -> isize {
    if result == -1 {
        -(std::io::Error::last_os_error().raw_os_error().unwrap_or(0) as isize)
    } else {
        result
    }
}

/// A socket of the program, and one that is used in the same way past the library.
struct Twins {
    domain: c_int,
    is_connected: bool,
    carried: c_int,
    bare: c_int,
}

impl Twins {
    fn new(domain: c_int, is_connected: bool) -> Self {
        // SAFETY: the calls take numbers, and an address that is the frame's own.
        unsafe {
            let make = || libc::socket(domain, libc::SOCK_DGRAM, 0);
            let twins = Self { domain, is_connected, carried: make(), bare: make() };
            assert!(twins.carried >= 0 && twins.bare >= 0);
            if is_connected {
                let (name, len) = address(domain, bench().port);
                let name = (&raw const name).cast();
                assert_eq!(libc::connect(twins.carried, name, len), 0);
                assert_eq!(
                    bare(libc::SYS_connect, [twins.bare as usize, name.addr(), len as usize, 0, 0, 0]),
                    0
                );
            }
            twins
        }
    }

    /// Asserts that a call has the same result on both.
    fn same(&self, what: &str, carried: isize, bare: isize) {
        // The library's limit in datagrams is not the kernel's in bytes, and a refusal of an earlier datagram comes at any time.
        let differs = [libc::EAGAIN, libc::ENOBUFS, libc::ECONNREFUSED];
        let may_differ = |result| differs.iter().any(|&error| result == -error as isize);
        if may_differ(carried) || may_differ(bare) || carried == bare {
            return;
        }
        // The worker may have sent the datagram: then its error is one of the socket.
        let waits = carried >= 0 && bare < 0;
        assert!(
            waits && (!self.is_connected || self.meets(bare)),
            "{what}: {carried}, and {bare} without txq"
        );
    }

    /// Returns whether the socket has an error or gets it soon.
    fn meets(&self, error: isize) -> bool {
        (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.take_error() as isize == -error
        })
    }

    fn take_error(&self) -> c_int {
        let (mut error, mut len) = (0, 4);
        // SAFETY: both values are the frame's own.
        unsafe {
            libc::getsockopt(
                self.carried,
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut error).cast::<c_void>(),
                &raw mut len,
            )
        };
        error
    }
}

impl Drop for Twins {
    fn drop(&mut self) {
        // SAFETY: both descriptors are this value's own.
        unsafe {
            assert_eq!(libc::close(self.carried), 0);
            assert_eq!(libc::close(self.bare), 0);
        }
    }
}

/// Returns the loopback address with a port.
fn address(domain: c_int, port: u16) -> (libc::sockaddr_in6, libc::socklen_t) {
    // SAFETY: all zeros are an address of either family.
    let mut name: libc::sockaddr_in6 = unsafe { zeroed() };
    name.sin6_family = domain as _;
    name.sin6_port = port.to_be();
    if domain == libc::AF_INET {
        // Where an IPv4 address lies.
        name.sin6_flowinfo = u32::from_ne_bytes([127, 0, 0, 1]);
        return (name, size_of::<libc::sockaddr_in>() as _);
    }
    name.sin6_addr.s6_addr[15] = 1;
    (name, size_of::<libc::sockaddr_in6>() as _)
}

/// What lives as long as the process.
struct Bench {
    arena: usize,
    port: u16,
    _receivers: [UdpSocket; 2],
}

/// Returns the bench, after the process has begun again with the library on.
fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| {
        if std::env::var_os(QDISC).is_none() {
            let mut args = std::env::args_os();
            let mut command = Command::new(args.next().expect("a name"));
            panic!("{}", command.args(args).env(QDISC, "pfifo_fast").exec());
        }
        let v4 = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let port = v4.local_addr().expect("an address").port();
        let v6 = UdpSocket::bind(("::1", port)).expect("a socket of IPv6");
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, of which the second half is protected.
        let arena = unsafe {
            let arena = libc::mmap(ptr::null_mut(), 2 * ARENA, access, kind, -1, 0);
            assert_eq!(libc::mprotect(arena.byte_add(ARENA), ARENA, libc::PROT_NONE), 0);
            arena.addr()
        };
        Bench { arena, port, _receivers: [v4, v6] }
    })
}

/// Values from the fuzzer's bytes.
struct Input<'b>(&'b [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8
    }

    fn length(&mut self) -> usize {
        match self.byte() {
            n @ ..16 => LENGTHS[usize::from(n)],
            n @ 16..128 => usize::from(n - 16),
            _ => self.word(),
        }
    }

    /// Returns a pointer: into the program's memory, to its end, or to none.
    fn pointer(&mut self) -> usize {
        let arena = bench().arena;
        match self.byte() % 12 {
            0 => 0,
            1 => 16,
            2 => usize::MAX - self.word(),
            3 => arena + ARENA + self.word(),
            4..7 => arena + ARENA - usize::from(self.byte()),
            _ => arena + self.word(),
        }
    }

    /// Writes `bytes` at a place that may lie at the end of the memory, and returns the place.
    fn place(&mut self, bytes: &[u8]) -> usize {
        let at = bench().arena + if self.byte() & 1 == 0 { ARENA - bytes.len() } else { self.word() & !7 };
        // SAFETY: in the arena, which nothing else uses meanwhile.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), ptr::with_exposed_provenance_mut(at), bytes.len())
        };
        at
    }

    /// Writes an address of this machine, and returns its place and length.
    fn name(&mut self) -> (usize, usize) {
        let how = self.byte();
        let domain = if how & 1 == 0 { libc::AF_INET } else { libc::AF_INET6 };
        let (mut name, mut len) = address(domain, if how & 6 == 6 { 0 } else { bench().port });
        if how & 0x38 == 0x38 {
            name.sin6_family = u16::from(self.byte());
        }
        if domain == libc::AF_INET6 && how & 0xc0 == 0xc0 {
            (name.sin6_flowinfo, name.sin6_scope_id) = (self.byte().into(), self.byte().into());
        }
        if self.byte() < 32 {
            len = self.length() as _;
        }
        // SAFETY: an address has no padding.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const name).cast::<u8>(), size_of_val(&name)) };
        if self.byte() < 16 { (self.pointer(), len as usize) } else { (self.place(bytes), len as usize) }
    }

    /// Writes parts, and returns their place and number.
    fn parts(&mut self) -> (usize, usize) {
        let n = if self.byte() < 32 { self.length() } else { usize::from(self.byte() % 5) };
        let all: Vec<_> = (0..n.min(1030)).flat_map(|_| [self.pointer(), self.length()]).collect();
        let bytes: Vec<_> = all.iter().flat_map(|word| word.to_ne_bytes()).collect();
        if self.byte() < 16 { (self.pointer(), n) } else { (self.place(&bytes), n) }
    }

    fn message(&mut self) -> libc::msghdr {
        // SAFETY: all zeros are a message.
        let mut message: libc::msghdr = unsafe { zeroed() };
        if self.byte() < 96 {
            let (name, len) = self.name();
            (message.msg_name, message.msg_namelen) = (ptr::without_provenance_mut(name), len as _);
        }
        let (parts, n) = self.parts();
        (message.msg_iov, message.msg_iovlen) = (ptr::without_provenance_mut(parts), n as _);
        if self.byte() < 128 {
            let (control, len) = self.control();
            (message.msg_control, message.msg_controllen) = (ptr::without_provenance_mut(control), len as _);
        }
        message
    }

    /// Writes control messages.
    fn control(&mut self) -> (usize, usize) {
        const KINDS: [(c_int, c_int); 8] = [
            (libc::IPPROTO_IP, libc::IP_TOS),
            (libc::IPPROTO_IP, libc::IP_TTL),
            (libc::IPPROTO_IP, libc::IP_PKTINFO),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO),
            (libc::SOL_UDP, 103),
            (libc::SOL_SOCKET, 61),
            (libc::SOL_SOCKET, libc::SCM_RIGHTS),
        ];
        let mut bytes = Vec::new();
        for _ in 0..self.byte() % 4 {
            let (level, kind) = KINDS[usize::from(self.byte() % 8)];
            let data: Vec<_> = (0..self.byte() % 33).map(|_| self.byte()).collect();
            let len = if self.byte() < 32 { self.length() } else { 16 + data.len() };
            bytes.extend(len.to_ne_bytes());
            bytes.extend(level.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(data);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        let len = if self.byte() < 32 { self.length() } else { bytes.len() };
        if self.byte() < 16 { (self.pointer(), len) } else { (self.place(&bytes), len) }
    }

    /// Returns flags without MSG_MORE: an error of an earlier datagram discards, at any time, the bytes that wait for more.
    fn flags(&mut self) -> c_int {
        let flags = match self.byte() {
            ..128 => 0,
            n @ 128..160 => {
                c_int::from(n & 1) * libc::MSG_DONTWAIT | c_int::from(n >> 1 & 1) * libc::MSG_NOSIGNAL
            }
            n @ 160..192 => 1 << (n & 31),
            _ => (self.word() | self.word() << 16) as c_int,
        };
        flags & !libc::MSG_MORE
    }
}

/// The numbers from which on the library has its descriptors, as the program has used them.
struct Numbers {
    /// A stream, of which the program writes bytes to the first end.
    stream: [c_int; 2],
    open: [bool; NUMBERS],
    written: usize,
}

impl Numbers {
    fn new() -> Self {
        let mut stream = [0; 2];
        // SAFETY: two numbers of the frame.
        let made = unsafe {
            libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0, stream.as_mut_ptr())
        };
        assert_eq!(made, 0);
        Self { stream, open: [false; NUMBERS], written: 0 }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let at = usize::from(input.byte()) % NUMBERS;
        let (fd, is_open) = (OWN + at as c_int, self.open[at]);
        let closed = -libc::EBADF as isize;
        // SAFETY: the calls take numbers, and bytes that are there.
        unsafe {
            match input.byte() % 6 {
                0 => {
                    assert_eq!(answer(libc::dup2(self.stream[0], fd) as isize), fd as isize);
                    self.open[at] = true;
                }
                1 => {
                    assert_eq!(answer(libc::dup3(self.stream[0], fd, libc::O_CLOEXEC) as isize), fd as isize);
                    self.open[at] = true;
                }
                2 => {
                    assert_eq!(answer(libc::close(fd) as isize), if is_open { 0 } else { closed });
                    self.open[at] = false;
                }
                3 => {
                    let result = answer(libc::write(fd, c"s".as_ptr().cast(), 1));
                    assert_eq!(result, if is_open { 1 } else { closed });
                    self.written += usize::from(is_open);
                }
                4 => {
                    let copy = answer(libc::dup(fd) as isize);
                    assert_eq!(copy >= 0, is_open, "{copy}");
                    if copy >= 0 {
                        assert_eq!(libc::close(copy as c_int), 0);
                    }
                }
                _ => {
                    let last = OWN + (NUMBERS - 1) as c_int;
                    assert_eq!(libc::syscall(libc::SYS_close_range, fd, last, 0), 0);
                    self.open[at..].fill(false);
                }
            }
        }
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        let mut bytes = [0; 4096];
        // SAFETY: the descriptors are this value's own, and the bytes the frame's.
        unsafe {
            for at in (0..NUMBERS).filter(|&at| self.open[at]) {
                assert_eq!(libc::close(OWN + at as c_int), 0);
            }
            // No datagram went into the stream.
            let got = libc::read(self.stream[1], bytes.as_mut_ptr().cast(), bytes.len());
            assert_eq!(got.max(0) as usize, self.written.min(bytes.len()));
            self.stream.iter().for_each(|&fd| assert_eq!(libc::close(fd), 0));
        }
    }
}

/// Executes one call on both sockets.
fn call(twins: &Twins, input: &mut Input<'_>) {
    let (fd, other) = (twins.carried, twins.bare as usize);
    // SAFETY: the kernel and the library check the arguments: that is what is tried.
    unsafe {
        match input.byte() % 9 {
            0 => {
                let (at, len, flags) = (input.pointer(), input.length(), input.flags());
                let carried = answer(libc::send(fd, ptr::without_provenance(at), len, flags));
                twins.same("send", carried, bare(libc::SYS_sendto, [other, at, len, flags as usize, 0, 0]));
            }
            1 => {
                let ((name, name_len), at, len, flags) =
                    (input.name(), input.pointer(), input.length(), input.flags());
                let to = ptr::without_provenance(name);
                let carried = answer(libc::sendto(
                    fd,
                    ptr::without_provenance(at),
                    len,
                    flags,
                    to,
                    name_len as libc::socklen_t,
                ));
                twins.same(
                    "sendto",
                    carried,
                    bare(libc::SYS_sendto, [other, at, len, flags as usize, name, name_len]),
                );
            }
            2..4 => {
                let (message, flags) = (input.message(), input.flags());
                let at = &raw const message;
                let carried = answer(libc::sendmsg(fd, at, flags));
                twins.same(
                    "sendmsg",
                    carried,
                    bare(libc::SYS_sendmsg, [other, at.addr(), flags as usize, 0, 0, 0]),
                );
            }
            4 => {
                let mut all: Vec<_> = (0..input.byte() % 4)
                    .map(|_| libc::mmsghdr { msg_hdr: input.message(), msg_len: 0 })
                    .collect();
                let (n, flags) = (all.len(), input.flags());
                // Not in the arena, to which both calls would write lengths.
                let bad =
                    Some(input.pointer()).filter(|at| !(bench().arena..bench().arena + ARENA).contains(at));
                let bad = bad.filter(|_| input.byte() < 16);
                let at = bad.map_or(all.as_mut_ptr(), ptr::without_provenance_mut);
                let carried = answer(libc::sendmmsg(fd, at, n as u32, flags) as isize);
                let bare = bare(libc::SYS_sendmmsg, [other, at.addr(), n, flags as usize, 0, 0]);
                // A message that the library does not carry ends the call behind the one before.
                if carried <= 0 || bare <= 0 {
                    twins.same("sendmmsg", carried, bare);
                }
            }
            5 => {
                let (at, len) = (input.pointer(), input.length());
                let carried = answer(libc::write(fd, ptr::without_provenance(at), len));
                twins.same("write", carried, bare(libc::SYS_write, [other, at, len, 0, 0, 0]));
            }
            6 => {
                let (parts, n) = input.parts();
                let carried = answer(libc::writev(fd, ptr::without_provenance(parts), n as c_int));
                twins.same(
                    "writev",
                    carried,
                    bare(libc::SYS_writev, [other, parts, n as c_int as usize, 0, 0, 0]),
                );
            }
            7 => {
                const OPTIONS: [(c_int, c_int); 8] = [
                    (libc::SOL_UDP, 103),
                    (libc::IPPROTO_IP, libc::IP_TOS),
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
                    (libc::SOL_SOCKET, libc::SO_PRIORITY),
                    (libc::SOL_SOCKET, libc::SO_SNDBUF),
                    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
                    (libc::SOL_SOCKET, 61),
                    (libc::SOL_SOCKET, libc::SO_BROADCAST),
                ];
                let (level, name) = OPTIONS[usize::from(input.byte() % 8)];
                let value = (input.word() as u64).to_ne_bytes();
                let at = if input.byte() < 16 { input.pointer() } else { input.place(&value) };
                let len = if input.byte() < 32 { input.length() } else { if name == 61 { 8 } else { 4 } };
                let carried = answer(libc::setsockopt(
                    fd,
                    level,
                    name,
                    ptr::without_provenance(at),
                    len as libc::socklen_t,
                ) as isize);
                let args = [other, level as usize, name as usize, at, len as u32 as usize, 0];
                twins.same("setsockopt", carried, bare(libc::SYS_setsockopt, args));
            }
            _ => {
                let (name, len) = input.name();
                let carried =
                    answer(libc::connect(fd, ptr::without_provenance(name), len as libc::socklen_t) as isize);
                twins.same(
                    "connect",
                    carried,
                    bare(libc::SYS_connect, [other, name, len as u32 as usize, 0, 0, 0]),
                );
            }
        }
    }
    twins.take_error();
}

fuzz_target!(|bytes: &[u8]| {
    let bench = bench();
    let mut input = Input(bytes);
    let domains =
        [(libc::AF_INET, true), (libc::AF_INET, false), (libc::AF_INET6, true), (libc::AF_INET6, false)];
    let mut sockets: Vec<_> = domains.map(|(domain, is_connected)| Twins::new(domain, is_connected)).into();
    static IS_CARRIED: OnceLock<()> = OnceLock::new();
    IS_CARRIED.get_or_init(|| {
        // SAFETY: the bytes are there.
        let sent = unsafe { libc::send(sockets[0].carried, c"first".as_ptr().cast(), 5, 0) };
        // The library has a second descriptor of a socket that sends.
        let own = bare(libc::SYS_fcntl, [OWN as usize, libc::F_GETFD as usize, 0, 0, 0, 0]);
        assert!(sent == 5 && own >= 0, "the library is not on: {sent}, {own}");
    });
    assert!(bench._receivers.iter().all(|socket| socket.as_raw_fd() >= 0));
    let mut numbers = Numbers::new();
    while !input.0.is_empty() {
        let which = input.byte();
        match which % 16 {
            0..2 => numbers.step(&mut input),
            2 => {
                let at = usize::from(which >> 4) % sockets.len();
                let Twins { domain, is_connected, .. } = sockets[at];
                sockets[at] = Twins::new(domain, is_connected);
            }
            _ => call(&sockets[usize::from(which >> 4) % sockets.len()], &mut input),
        }
    }
});
