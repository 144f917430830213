//! System calls that no library takes over, and the library's own `errno`.

use std::ffi::{c_int, c_long, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::next;

/// The result of a system call: a number, or an `errno`.
pub(crate) type Answer<T> = Result<T, c_int>;

/// Returns `errno` of the calling thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is the calling thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno` of the calling thread.
pub(crate) fn set_errno(to: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = to }
}

/// Returns the address of the calling thread's `errno`, which differs from that of every other thread.
pub(crate) fn errno_address() -> usize {
    // SAFETY: the call takes nothing.
    unsafe { libc::__errno_location() }.addr()
}

/// The C library's `syscall`, which this library replaces.
type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;

/// Returns the C library's `syscall`.
fn call() -> Syscall {
    let function = next::function(const { next::number(c"syscall") });
    if function.is_null() {
        // Every C library has it.
        std::process::abort();
    }
    // SAFETY: the C library's function of this name has this type.
    unsafe { mem::transmute::<*mut c_void, Syscall>(function) }
}

/// Returns the result of a system call as `Answer`, and leaves `errno` as it was.
fn answer(call: impl FnOnce() -> c_long) -> Answer<c_long> {
    let before = errno();
    let result = call();
    let error = errno();
    set_errno(before);
    if result < 0 { Err(error) } else { Ok(result) }
}

/// Sends messages without waiting, as `sendmmsg(2)`.
///
/// # Safety
/// Each message's pointers are null or valid for reads of the lengths beside them.
pub(crate) unsafe fn send_messages(fd: c_int, messages: &mut [libc::mmsghdr]) -> Answer<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: the caller answers for the messages.
        let sent = answer(|| unsafe {
            call()(libc::SYS_sendmmsg, fd, messages.as_mut_ptr(), messages.len(), flags)
        });
        match sent {
            Err(libc::EINTR) => {}
            other => return other.map(|sent| sent as usize),
        }
    }
}

/// Receives messages without waiting, as `recvmmsg(2)`.
///
/// # Safety
/// Each message's pointers are valid for writes of the lengths beside them.
pub(crate) unsafe fn receive_messages(fd: c_int, messages: &mut [libc::mmsghdr]) -> Answer<usize> {
    let (flags, none) = (libc::MSG_DONTWAIT, ptr::null_mut::<libc::timespec>());
    // SAFETY: the caller answers for the messages.
    answer(|| unsafe { call()(libc::SYS_recvmmsg, fd, messages.as_mut_ptr(), messages.len(), flags, none) })
        .map(|received| received as usize)
}

/// Types of which any bytes are a value.
pub(crate) trait Plain: Copy + Default {}
impl Plain for c_int {}
impl Plain for u64 {}
/// A `struct timeval`, and a `struct sock_txtime`.
impl Plain for [i64; 2] {}
impl Plain for [c_int; 2] {}

/// Returns an option of a socket.
pub(crate) fn option<T: Plain>(fd: c_int, level: c_int, name: c_int) -> Answer<T> {
    let (mut value, mut len) = (T::default(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes, which `value` has, and any bytes are a value.
    answer(|| unsafe { call()(libc::SYS_getsockopt, fd, level, name, &raw mut value, &raw mut len) })
        .map(|_| value)
}

/// An address of either family, as the kernel writes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Address {
    pub(crate) family: libc::sa_family_t,
    pub(crate) v4: libc::sockaddr_in,
    pub(crate) v6: libc::sockaddr_in6,
}

impl Address {
    pub(crate) const fn empty() -> Self {
        // SAFETY: all zeros are an address of no family: the fields are integers.
        unsafe { mem::zeroed() }
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8; size_of::<Self>()] {
        // SAFETY: `empty` and the kernel initialise all bytes, or those of a family, and the families have no bytes between their fields.
        unsafe { &*ptr::from_ref(self).cast() }
    }

    /// Sets the flow label of an address of IPv6 to 0.
    pub(crate) fn clear_flow_label(&mut self) {
        // SAFETY: each family begins with its number; all fields are integers, of which any value is valid.
        unsafe {
            if c_int::from(self.family) == libc::AF_INET6 {
                self.v6.sin6_flowinfo = 0;
            }
        }
    }
}

/// Returns the socket's own address, or that of its peer.
pub(crate) fn address(fd: c_int, number: c_long) -> Answer<Address> {
    let (mut address, mut len) = (Address::empty(), size_of::<Address>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes, which `address` has.
    answer(|| unsafe { call()(number, fd, &raw mut address, &raw mut len) }).map(|_| address)
}

/// Gives a socket without a port one, as its first datagram does.
pub(crate) fn bind_any(fd: c_int, is_v6: bool) {
    let (mut any, len) = (
        Address::empty(),
        if is_v6 { size_of::<libc::sockaddr_in6>() } else { size_of::<libc::sockaddr_in>() },
    );
    any.family = if is_v6 { libc::AF_INET6 } else { libc::AF_INET } as _;
    // A failure leaves the port 0 in the packet's header; the datagram gets one when it leaves.
    // SAFETY: the kernel reads `len` bytes of `any`.
    let _ = answer(|| unsafe { call()(libc::SYS_bind, fd, &raw const any, len) });
}

/// Duplicates a descriptor to a number that programs hardly use.
pub(crate) fn duplicate(fd: c_int) -> Answer<c_int> {
    const HIGH: c_int = 500;
    let duplicate = |least: c_int| {
        // SAFETY: the call takes integers.
        answer(|| unsafe { call()(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, least) })
    };
    // EINVAL: the process may have only few descriptors.
    let high = duplicate(HIGH).or_else(|error| if error == libc::EINVAL { duplicate(3) } else { Err(error) });
    high.map(|fd| fd as c_int)
}

/// Returns two connected UNIX sockets, of numbers that programs hardly use.
pub(crate) fn pair() -> Answer<[c_int; 2]> {
    let (kind, mut low) = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, [-1; 2]);
    // SAFETY: the kernel writes two integers.
    answer(|| unsafe { call()(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, low.as_mut_ptr()) })?;
    let high = low.map(duplicate);
    low.into_iter().for_each(close);
    if let [Ok(one), Ok(other)] = high {
        return Ok([one, other]);
    }
    high.into_iter().flatten().for_each(close);
    Err(libc::EMFILE)
}

/// Sets an option of a socket.
pub(crate) fn set_option<T: Plain>(fd: c_int, level: c_int, name: c_int, value: T) -> Answer<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, which `value` has.
    answer(|| unsafe { call()(libc::SYS_setsockopt, fd, level, name, &raw const value, len) }).map(|_| ())
}

/// Lets a socket receive no more than it has.
pub(crate) fn end_receiving(fd: c_int) {
    // SAFETY: the call takes integers.
    let _ = answer(|| unsafe { call()(libc::SYS_shutdown, fd, libc::SHUT_RD) });
}

/// Sends as much to the other end of a pair as makes this one not writable, if it has the least send buffer.
pub(crate) fn fill(fd: c_int) {
    const BYTES: [u8; 2048] = [0; 2048];
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let none = ptr::null::<c_void>();
    // SAFETY: the kernel reads the bytes.
    let _ = answer(|| unsafe { call()(libc::SYS_sendto, fd, BYTES.as_ptr(), BYTES.len(), flags, none, 0) });
}

/// Discards what a socket has received.
pub(crate) fn drain(fd: c_int) {
    while discard(fd) {}
}

/// Discards a datagram that a socket has received; returns whether there was one.
pub(crate) fn discard(fd: c_int) -> bool {
    let none = ptr::null_mut::<c_void>();
    let mut byte = 0u8;
    // SAFETY: the kernel writes at most one byte.
    let read = || unsafe { call()(libc::SYS_recvfrom, fd, &raw mut byte, 1, libc::MSG_DONTWAIT, none, none) };
    // A socket that receives no more returns 0 bytes for ever; no datagram here is that short.
    answer(read).is_ok_and(|bytes| bytes > 0)
}

/// Returns a new epoll, of a number that programs hardly use.
pub(crate) fn epoll() -> Answer<c_int> {
    // SAFETY: the call takes an integer.
    let low = answer(|| unsafe { call()(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })? as c_int;
    let high = duplicate(low);
    close(low);
    high
}

/// Waits until a descriptor of an epoll is ready; returns how many events there are.
pub(crate) fn epoll_wait(epoll: c_int, events: &mut [libc::epoll_event]) -> Answer<usize> {
    let (n, forever, none) = (events.len() as c_int, -1, ptr::null::<c_void>());
    // SAFETY: the kernel writes at most `n` events.
    let found = answer(|| unsafe {
        call()(libc::SYS_epoll_pwait, epoll, events.as_mut_ptr(), n, forever, none, Undisturbed::SET)
    });
    found.map(|found| found as usize)
}

/// Changes the registration of a descriptor in an epoll, as `epoll_ctl(2)`.
pub(crate) fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: libc::epoll_event) -> Answer<()> {
    let mut event = event;
    // SAFETY: the kernel reads one event.
    answer(|| unsafe { call()(libc::SYS_epoll_ctl, epoll, op, fd, &raw mut event) }).map(|_| ())
}

/// Returns memory of its own for `bytes` bytes, aligned to a page and zeroed; null if there is none.
pub(crate) fn map(bytes: usize) -> *mut c_void {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses a place where nothing is.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
    if at == libc::MAP_FAILED { ptr::null_mut() } else { at }
}

/// Gives back memory of `map`.
///
/// # Safety
/// Nothing uses the memory any more.
pub(crate) unsafe fn unmap(at: *mut c_void, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(at, bytes) };
}

/// Closes a descriptor of this library: the caller has checked that the number still names it.
pub(crate) fn close(fd: c_int) {
    // SAFETY: the call takes an integer. Rust code owns no descriptor of this number.
    let _ = answer(|| unsafe { call()(libc::SYS_close, fd) });
}

/// Lets a descriptor of this library name something that is no socket.
pub(crate) fn disconnect_number(fd: c_int) {
    // SAFETY: the call takes integers.
    if let Ok(event) = answer(|| unsafe { call()(libc::SYS_eventfd2, 0, libc::O_CLOEXEC) }) {
        // SAFETY: the calls take integers. `fd` is this library's, as its caller has checked, and the new descriptor is this function's.
        let _ = answer(|| unsafe { call()(libc::SYS_dup3, event, fd, libc::O_CLOEXEC) });
        close(event as c_int);
    }
}

/// Returns the process id, also in a child of `vfork`.
pub(crate) fn pid() -> u32 {
    // SAFETY: the call takes nothing.
    answer(|| unsafe { call()(libc::SYS_getpid) }).unwrap_or(0) as u32
}

/// Returns whether calls on a descriptor do not wait.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: the call takes integers.
    let flags = answer(|| unsafe { call()(libc::SYS_fcntl, fd, libc::F_GETFL) });
    flags.is_ok_and(|flags| flags as c_int & libc::O_NONBLOCK != 0)
}

/// Returns whether the page of an address can be read: the kernel copies a set of signals from there before it refuses the call.
pub(crate) fn is_readable(address: usize) -> bool {
    const NO_SUCH_CHANGE: c_int = -1;
    let none = ptr::null_mut::<u64>();
    // SAFETY: the call changes nothing.
    let refused = answer(|| unsafe {
        call()(libc::SYS_rt_sigprocmask, NO_SUCH_CHANGE, address, none, Undisturbed::SET)
    });
    refused != Err(libc::EFAULT)
}

/// Returns whether an integer of the program can be read and written.
pub(crate) fn can_write(word: *mut c_int) -> bool {
    is_readable(word.addr()) && is_writable(word)
}

/// Returns whether an integer of the program, which can be read, can be written. It keeps its value.
pub(crate) fn is_writable(word: *mut c_int) -> bool {
    // SAFETY: the caller has found it readable.
    let before = unsafe { word.read_unaligned() };
    // SAFETY: the kernel writes one integer, the thread's priority, or refuses.
    let written = answer(|| unsafe { call()(libc::SYS_sched_getparam, 0, word) });
    if written.is_ok() {
        // SAFETY: the kernel has just written there.
        unsafe { word.write_unaligned(before) };
    }
    written != Err(libc::EFAULT)
}

/// Returns a word with a value, which is 0 in a child that has a copy of the memory (Linux 4.14; before, it has the value there, too).
pub(crate) fn word_of_this_process(value: u32) -> Option<&'static AtomicU32> {
    let (len, kind) = (size_of::<AtomicU32>(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses a place where nothing is, aligned to a page and zeroed, and nothing unmaps it.
    let word: &'static AtomicU32 = unsafe {
        let page = libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        libc::madvise(page, len, libc::MADV_WIPEONFORK);
        &*page.cast()
    };
    word.store(value, Relaxed);
    Some(word)
}

/// Returns whether a descriptor is open.
pub(crate) fn is_open(fd: c_int) -> bool {
    // SAFETY: the call takes integers.
    answer(|| unsafe { call()(libc::SYS_fcntl, fd, libc::F_GETFD) }).is_ok()
}

/// Gives the calling thread, and threads that it starts, descriptors of their own: none but three of /dev/null. Returns whether the
/// system can do that (Linux 5.9).
pub(crate) fn separate_descriptors() -> bool {
    const CLOSE_RANGE_UNSHARE: c_int = 2;
    // SAFETY: the descriptors of all other threads stay as they are.
    if answer(|| unsafe { call()(libc::SYS_close_range, 0, u32::MAX, CLOSE_RANGE_UNSHARE) }).is_err() {
        return false;
    }
    for _ in 0..3 {
        // SAFETY: the path ends in a NUL. A failure leaves the number free.
        let _ = answer(|| unsafe {
            call()(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC)
        });
    }
    true
}

/// Ends the process at once.
pub(crate) fn exit(code: c_int) -> ! {
    // SAFETY: the call takes integers.
    let _ = answer(|| unsafe { call()(libc::SYS_exit_group, code) });
    std::process::abort();
}

/// Sleeps while a word has a value, for at most `nanos`; returns whether a signal ended the sleep.
pub(crate) fn sleep_while(word: &AtomicU32, is: u32, nanos: u64) -> bool {
    let time = libc::timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time live during the call.
    let slept = answer(|| unsafe { call()(libc::SYS_futex, word.as_ptr(), op, is, &raw const time) });
    slept == Err(libc::EINTR)
}

/// Wakes all threads that sleep on a word.
pub(crate) fn wake_all(word: &AtomicU32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the call reads only the address.
    let _ = answer(|| unsafe { call()(libc::SYS_futex, word.as_ptr(), op, c_int::MAX) });
}

/// Signals of the calling thread that wait until this is dropped: a handler may leave by `longjmp`, or send, and the thread
/// may hold a lock of the device.
pub(crate) struct Undisturbed(u64);

impl Undisturbed {
    /// The kernel's set of signals is 64 bits.
    const SET: usize = 8;

    pub(crate) fn new() -> Self {
        let (all, mut before) = (u64::MAX, 0u64);
        // SAFETY: both sets have the stated size.
        let _ = answer(|| unsafe {
            call()(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, Self::SET)
        });
        Self(before)
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        let none = ptr::null_mut::<u64>();
        // SAFETY: the set has the stated size.
        let _ = answer(|| unsafe {
            call()(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const self.0, none, Self::SET)
        });
    }
}
