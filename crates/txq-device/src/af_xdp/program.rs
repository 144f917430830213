//! The XDP program that hands received frames to the sockets: five instructions, loaded and attached by bpf(2).
//!
//! In C it would be:
//!
//! ```c
//! struct { __uint(type, BPF_MAP_TYPE_XSKMAP); } sockets;
//! int receive(struct xdp_md *ctx) { return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS); }
//! ```
//!
//! A frame of a queue without a socket goes on to the kernel. The program is attached by a link: when its descriptor is
//! closed, and so when the process ends in any way, the kernel detaches the program.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::Attach;

/// Commands of bpf(2).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE`.
const FLAG_GENERIC: u32 = 2;
const FLAG_DRIVER: u32 = 4;
const XDP_PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const RX_QUEUE_INDEX: i16 = 16;

/// The attached program and its map from rx queues to sockets.
#[derive(Debug)]
pub(super) struct Program {
    // First: detached before the program and the map go.
    _link: OwnedFd,
    map: OwnedFd,
    pub(super) attached: Attach,
}

/// Where in [`Program::attach`] an error came from.
#[derive(Debug)]
pub(super) enum Failed {
    /// The map or the program could not be loaded.
    Load(io::Error),
    /// The program could not be attached.
    Attach(io::Error),
}

impl Program {
    /// Loads the program for `queues` rx queues and attaches it to an interface; `attach` or, without one, in the driver if
    /// that works.
    pub(super) fn attach(ifindex: u32, queues: u32, attach: Option<Attach>) -> Result<Self, Failed> {
        let map = create_map(queues).map_err(Failed::Load)?;
        let program = load(&map).map_err(Failed::Load)?;
        let link = |attach| Ok((link(&program, ifindex, attach)?, attach));
        let (link, attached) = match attach {
            Some(attach) => link(attach),
            None => link(Attach::Driver).or_else(|error: io::Error| match error.raw_os_error() {
                // Another program is attached, or the permission is missing: generic mode would fail, too.
                Some(libc::EBUSY | libc::EEXIST | libc::EPERM) => Err(error),
                _ => link(Attach::Generic),
            }),
        }
        .map_err(Failed::Attach)?;
        Ok(Self { _link: link, map, attached })
    }

    /// Hands the frames of an rx queue to a socket.
    pub(super) fn add(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        self.elem(MAP_UPDATE_ELEM, queue, Some(&value))
    }

    /// Hands the frames of an rx queue to the kernel again.
    pub(super) fn remove(&self, queue: u32) {
        let _ = self.elem(MAP_DELETE_ELEM, queue, None);
    }

    fn elem(&self, command: libc::c_int, key: u32, value: Option<&u32>) -> io::Result<()> {
        #[repr(C)]
        struct Attr {
            map_fd: u32,
            _pad: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let address = |of: &u32| (&raw const *of).expose_provenance() as u64;
        let map_fd = self.map.as_raw_fd() as u32;
        let attr = Attr { map_fd, _pad: 0, key: address(&key), value: value.map_or(0, address), flags: 0 };
        // SAFETY: the attributes of both commands; key and value are integers that live through the call.
        unsafe { bpf(command, &attr) }.map(drop)
    }
}

/// Calls bpf(2); returns its result.
///
/// # Safety
/// `attr` begins with the attributes of the command, and its pointers are valid as the command needs them.
unsafe fn bpf<T>(command: libc::c_int, attr: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads the size of `attr`; the rest is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attr, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// As [`bpf`], for commands that return a descriptor, which closes on exec.
///
/// # Safety
/// As for [`bpf`].
unsafe fn bpf_fd<T>(command: libc::c_int, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise; the descriptor is new and ours.
    unsafe { Ok(OwnedFd::from_raw_fd(bpf(command, attr)? as libc::c_int)) }
}

fn create_map(queues: u32) -> io::Result<OwnedFd> {
    // Type, length of a key, length of a value, entries.
    let attr: [u32; 4] = [MAP_TYPE_XSKMAP, 4, 4, queues];
    // SAFETY: the attributes of the command, without pointers.
    unsafe { bpf_fd(MAP_CREATE, &attr) }
}

/// Returns an instruction (`struct bpf_insn`): the registers share a byte, whose halves are in the machine's bit order.
fn insn(code: u8, to: u8, from: u8, offset: i16, value: i32) -> [u8; 8] {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    let ([o0, o1], [v0, v1, v2, v3]) = (offset.to_ne_bytes(), value.to_ne_bytes());
    [code, registers, o0, o1, v0, v1, v2, v3]
}

fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
    }
    let program = [
        insn(0x61, 2, 1, RX_QUEUE_INDEX, 0),  // r2 = ctx->rx_queue_index
        insn(0x18, 1, 1, 0, map.as_raw_fd()), // r1 = map, an instruction of two slots
        insn(0, 0, 0, 0, 0),                  //
        insn(0xb7, 3, 0, 0, XDP_PASS),        // r3 = XDP_PASS
        insn(0x85, 0, 0, 0, REDIRECT_MAP),    // r0 = bpf_redirect_map(r1, r2, r3)
        insn(0x95, 0, 0, 0, 0),               // return r0
    ];
    let attr = Attr {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr().expose_provenance() as u64,
        license: c"Dual MIT/GPL".as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: *b"txq_receive\0\0\0\0\0",
        prog_ifindex: 0,
        expected_attach_type: ATTACH_TYPE_XDP,
    };
    // SAFETY: the attributes of the command; instructions and license live through the call.
    unsafe { bpf_fd(PROG_LOAD, &attr) }
}

fn link(program: &OwnedFd, ifindex: u32, attach: Attach) -> io::Result<OwnedFd> {
    let flag = match attach {
        Attach::Driver => FLAG_DRIVER,
        Attach::Generic => FLAG_GENERIC,
    };
    let attr: [u32; 4] = [program.as_raw_fd() as u32, ifindex, ATTACH_TYPE_XDP, flag];
    // SAFETY: the attributes of the command, without pointers.
    unsafe { bpf_fd(LINK_CREATE, &attr) }
}
