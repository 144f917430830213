//! Stacks of the library's own: the program's threads and signal handlers may have little room on theirs.
//!
//! A call of the program takes a stack, works there, and puts it back. Signals wait meanwhile (`sys::Undisturbed`), so no handler runs
//! on such a stack, and none leaves one by `longjmp`.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::*};

/// The length of a stack, in bytes. Only pages that were used take memory.
const STACK_BYTES: usize = 256 << 10;
/// Bytes below a stack that nothing can access, so that an overflow overwrites nothing; a multiple of every page size.
const GUARD: usize = 64 << 10;
/// Bytes of zeros above the first frame: a backtrace ends there.
const ABOVE: usize = 4096;
/// Stacks that are kept. More threads inside at a time make and unmap theirs.
const MAX_FREE_STACKS: usize = 64;

/// Mappings of `GUARD + STACK_BYTES` bytes that no thread uses; null for none. Any thread swaps one out, and puts it back by a release that pairs with the
/// acquire of the swap.
static FREE_STACKS: [AtomicPtr<c_void>; MAX_FREE_STACKS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_FREE_STACKS];

/// A stack that the calling thread alone uses.
struct Stack(*mut c_void);

impl Stack {
    /// Returns a stack; `None` if the system has no memory.
    fn take() -> Option<Self> {
        for slot in &FREE_STACKS {
            if !slot.load(Relaxed).is_null() {
                let stack = slot.swap(ptr::null_mut(), Acquire);
                if !stack.is_null() {
                    return Some(Self(stack));
                }
            }
        }
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses a place where nothing is. The lowest part of the new mapping is then protected.
        unsafe {
            let stack =
                libc::mmap(ptr::null_mut(), GUARD + STACK_BYTES, access, kind | libc::MAP_NORESERVE, -1, 0);
            if stack == libc::MAP_FAILED {
                return None;
            }
            libc::mprotect(stack, GUARD, libc::PROT_NONE);
            Some(Self(stack))
        }
    }

    /// Returns where the first frame begins, aligned as every machine requires.
    fn top(&self) -> *mut c_void {
        self.0.wrapping_byte_add(GUARD + STACK_BYTES - ABOVE)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        for slot in &FREE_STACKS {
            if slot.compare_exchange(ptr::null_mut(), self.0, Release, Relaxed).is_ok() {
                return;
            }
        }
        // SAFETY: the mapping is this stack's, and no frame is left on it.
        unsafe { libc::munmap(self.0, GUARD + STACK_BYTES) };
    }
}

/// The work of one call, and its result.
struct Job<F, R> {
    work: Option<F>,
    result: Option<std::thread::Result<R>>,
}

/// Does the work of a job. No panic leaves it.
///
/// # Safety
/// `job` points at a `Job<F, R>` that nothing else uses.
unsafe extern "C" fn work<F: FnOnce() -> R, R>(job: *mut c_void) {
    // SAFETY: the caller's promise.
    let job = unsafe { &mut *job.cast::<Job<F, R>>() };
    job.result = job.work.take().map(|work| catch_unwind(AssertUnwindSafe(work)));
}

/// Calls `f` on a stack of the library's own, and returns its result or its panic. `errno` may change. Signals must be blocked.
///
/// Without memory for a stack, or on a machine for which this has no instructions, `f` runs on the caller's stack.
pub(crate) fn on_own_stack<F: FnOnce() -> R, R>(f: F) -> std::thread::Result<R> {
    let mut job = Job { work: Some(f), result: None };
    let at = (&raw mut job).cast::<c_void>();
    match Stack::take() {
        // SAFETY: the stack is this thread's until it is dropped, after the call. The job lives as long.
        Some(stack) => unsafe { switch(stack.top(), work::<F, R>, at) },
        // SAFETY: nothing else uses the job.
        None => unsafe { work::<F, R>(at) },
    }
    job.result.unwrap_or_else(|| Err(Box::new("no result")))
}

/// Calls `f(arg)` with the stack that ends at `top`.
///
/// # Safety
/// `top` is aligned to 16 bytes, and the bytes below it are a stack that nothing else uses. `f` does not unwind.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn switch(top: *mut c_void, f: unsafe extern "C" fn(*mut c_void), arg: *mut c_void) {
    // SAFETY: r12 is preserved by the callee, so the stack pointer returns. The clobbers are those of a C call.
    unsafe {
        std::arch::asm!(
            "xchg r12, rsp",
            "call r13",
            "mov rsp, r12",
            inout("r12") top => _,
            in("r13") f,
            inout("rdi") arg => _,
            clobber_abi("C"),
        );
    }
}

/// Calls `f(arg)` with the stack that ends at `top`.
///
/// # Safety
/// `top` is aligned to 16 bytes, and the bytes below it are a stack that nothing else uses. `f` does not unwind.
#[cfg(target_arch = "aarch64")]
#[inline(never)]
unsafe fn switch(top: *mut c_void, f: unsafe extern "C" fn(*mut c_void), arg: *mut c_void) {
    // SAFETY: x20 is preserved by the callee, so the stack pointer returns. The clobbers are those of a C call.
    unsafe {
        std::arch::asm!(
            "mov x20, sp",
            "mov sp, x21",
            "blr x22",
            "mov sp, x20",
            out("x20") _,
            in("x21") top,
            in("x22") f,
            inout("x0") arg => _,
            clobber_abi("C"),
        );
    }
}

/// Calls `f(arg)` on the caller's stack.
///
/// # Safety
/// That of `f`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn switch(_top: *mut c_void, f: unsafe extern "C" fn(*mut c_void), arg: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { f(arg) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_a_stack_of_its_own_and_its_panic_stays_inside() {
        let address = || std::hint::black_box(&mut [0u8; 100_000]).as_ptr().addr();
        let (here, there) = (address(), on_own_stack(address).unwrap());
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert!(there.abs_diff(here) > STACK_BYTES);
        }
        let panic = on_own_stack(|| -> u32 { std::panic::resume_unwind(Box::new(7u32)) }).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&7u32));
        // The stack is used again.
        assert_eq!(on_own_stack(|| 5).unwrap(), 5);
    }
}
