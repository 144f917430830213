//! System calls that no library takes over, the library's own `errno`, and the functions that this library replaces.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

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
    static NEXT: Next = Next::new(c"syscall");
    let function = NEXT.get();
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

/// Closes a descriptor of this library.
pub(crate) fn close(fd: c_int) {
    // SAFETY: the descriptor belongs to the caller, and nothing uses it any more.
    let _ = answer(|| unsafe { call()(libc::SYS_close, fd) });
}

/// Lets a descriptor of this library name something that is no socket.
pub(crate) fn disconnect_number(fd: c_int) {
    // SAFETY: the call takes integers.
    if let Ok(event) = answer(|| unsafe { call()(libc::SYS_eventfd2, 0, libc::O_CLOEXEC) }) {
        // SAFETY: as above; `fd` belongs to this library.
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

/// Sleeps while a word has a value, for at most `nanos`; returns whether a signal ended the sleep.
pub(crate) fn sleep_while(word: &std::sync::atomic::AtomicU32, is: u32, nanos: u64) -> bool {
    let time = libc::timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time live during the call.
    let slept = answer(|| unsafe { call()(libc::SYS_futex, word.as_ptr(), op, is, &raw const time) });
    slept == Err(libc::EINTR)
}

/// Wakes all threads that sleep on a word.
pub(crate) fn wake_all(word: &std::sync::atomic::AtomicU32) {
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

/// A function of the C library, or of another preloaded library behind this one, that this library replaces.
pub(crate) struct Next {
    name: &'static CStr,
    /// The function; null until the first call. Any thread may set it, to the one value.
    at: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the function; null if no library has it.
    pub(crate) fn get(&self) -> *mut c_void {
        let known = self.at.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        let before = errno();
        let (mut all, mut mask) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // A handler that leaves by `longjmp` would leave the loader's lock taken.
        // SAFETY: both sets are the calling frame's own; `sigfillset` fills the first before it is read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), mask.as_mut_ptr());
        }
        // SAFETY: the name ends in a NUL.
        let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // The C library itself was preloaded, in front of this one.
            const C: &CStr = if cfg!(target_env = "musl") { c"libc.so" } else { c"libc.so.6" };
            // SAFETY: both names end in a NUL; the library is loaded already, and stays.
            found = unsafe {
                let library = libc::dlopen(C.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if library.is_null() { found } else { libc::dlsym(library, self.name.as_ptr()) }
            };
        }
        // SAFETY: the call above has filled the set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), ptr::null_mut()) };
        set_errno(before);
        self.at.store(found, Relaxed);
        found
    }
}
