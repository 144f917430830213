//! Keeps the stacks that loom would map again.
//!
//! loom maps a stack for each thread of each execution, protects its lowest page, and unmaps it at the end. The small models
//! spent more than half of their time in these three calls, and the threads of a test program waited for one another there,
//! because the kernel changes a process's mappings one at a time. The functions below replace libc's for the test programs:
//! a thread gets back the stacks that it has returned, which are mapped and protected already.

use std::cell::RefCell;
use std::ffi::{c_int, c_long, c_void};
use std::ptr;

use libc::{MAP_STACK, PROT_NONE, PROT_READ, PROT_WRITE, SYS_mmap, SYS_mprotect, SYS_munmap, off_t, size_t};

/// A mapping that this thread has created as a stack.
struct Stack {
    at: *mut c_void,
    size: size_t,
    /// Whether the stack has been returned.
    free: bool,
    /// The number of bytes from its start that are protected.
    guard: size_t,
}

/// The stacks of a thread, in use or free. Its end unmaps those that are free; the others are unmapped when they are returned.
#[derive(Default)]
struct Stacks(Vec<Stack>);

impl Drop for Stacks {
    fn drop(&mut self) {
        for stack in self.0.iter().filter(|stack| stack.free) {
            // SAFETY: the thread that returned the stack does not use it any more.
            unsafe { libc::syscall(SYS_munmap, stack.at, stack.size) };
        }
    }
}

thread_local! {
    static STACKS: RefCell<Stacks> = RefCell::default();
}

/// Calls `f` with the stacks of this thread. Returns `None` if the thread is about to end, or is in this function already.
fn with_stacks<R>(f: impl FnOnce(&mut Vec<Stack>) -> R) -> Option<R> {
    STACKS.try_with(|stacks| Some(f(&mut stacks.try_borrow_mut().ok()?.0))).ok().flatten()
}

/// Calls `then` with the first stack of this thread for which `is` returns true.
fn find<R>(is: impl Fn(&Stack) -> bool, then: impl FnOnce(&mut Stack) -> R) -> Option<R> {
    with_stacks(|stacks| stacks.iter_mut().find(|stack| is(stack)).map(then)).flatten()
}

// SAFETY: the function does what mmap(2) does, except that a stack may hold the bytes of an old one instead of zeros; loom writes
// a stack before it reads it.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    addr: *mut c_void,
    size: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_stack = addr.is_null() && flags & MAP_STACK != 0 && prot == PROT_READ | PROT_WRITE && fd == -1;
    let take = |stack: &mut Stack| {
        stack.free = false;
        stack.at
    };
    if is_stack && let Some(at) = find(|stack| stack.free && stack.size == size, take) {
        return at;
    }
    // SAFETY: the caller guarantees what the system call requires.
    let got: c_long = unsafe { libc::syscall(SYS_mmap, addr, size, prot, flags, fd, offset) };
    let at = ptr::with_exposed_provenance_mut(got as usize);
    if is_stack && got != -1 {
        // A stack of this thread that another thread has returned, and so unmapped, may have been here.
        with_stacks(|stacks| {
            stacks.retain(|stack| stack.at != at);
            stacks.push(Stack { at, size, free: false, guard: 0 });
        });
    }
    at
}

// SAFETY: the function does what mprotect(2) does; it skips a call that would change nothing.
#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(addr: *mut c_void, size: size_t, prot: c_int) -> c_int {
    let own = |stack: &Stack| stack.at == addr && !stack.free;
    if prot == PROT_NONE && find(own, |stack| stack.guard) == Some(size) {
        return 0;
    }
    // SAFETY: the caller guarantees what the system call requires.
    let done = unsafe { libc::syscall(SYS_mprotect, addr, size, prot) } as c_int;
    if done == 0 {
        find(own, |stack| stack.guard = if prot == PROT_NONE { size } else { 0 });
    }
    done
}

// SAFETY: the function does what munmap(2) does, except that a stack stays mapped until the thread that returned it ends.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(addr: *mut c_void, size: size_t) -> c_int {
    match find(|stack| stack.at == addr && stack.size == size && !stack.free, |stack| stack.free = true) {
        Some(()) => 0,
        // SAFETY: the caller guarantees what the system call requires.
        None => unsafe { libc::syscall(SYS_munmap, addr, size) as c_int },
    }
}
