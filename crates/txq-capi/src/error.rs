//! Error codes, the text of a thread's last error, and the border that no panic crosses.

use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// A pointer is null that must not be.
pub const TXQ_E_NULL: i32 = -1;
/// A struct's `size` is not the size that this version of the library has for the struct.
pub const TXQ_E_SIZE: i32 = -2;
/// A text is not UTF-8.
pub const TXQ_E_TEXT: i32 = -3;
/// A value is out of range, a key is unknown, or a handle or packet is of another kind, or of another sender.
pub const TXQ_E_INVALID: i32 = -4;
/// tc's error: the text is wrong, or the tree refuses the command.
pub const TXQ_E_TC: i32 = -5;
/// The system has no memory for a pool.
pub const TXQ_E_MEMORY: i32 = -6;
/// The system or the device failed.
pub const TXQ_E_IO: i32 = -7;
/// Another call uses the handle, or the function may not be called in a callback.
pub const TXQ_E_BUSY: i32 = -8;
/// The device is gone.
pub const TXQ_E_GONE: i32 = -9;
/// The handle belongs to the parent process.
pub const TXQ_E_FORKED: i32 = -10;
/// The library panicked, now or in an earlier call with the handle. That is a bug of the library or of a callback.
pub const TXQ_E_PANIC: i32 = -11;
/// The device is down.
pub const TXQ_E_DOWN: i32 = -12;
/// The counters do not add up. That is a bug of the library.
pub const TXQ_E_AUDIT: i32 = -13;
/// The pool has no free buffer.
pub const TXQ_E_NO_BUFFER: i32 = -14;
/// The sender has as many packets on their way as its limit allows.
pub const TXQ_E_LIMIT: i32 = -15;

/// Why a function fails: its code, and its text.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) code: i32,
    pub(crate) text: Cow<'static, str>,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(code: i32, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(TXQ_E_INVALID, text)
    }
}

impl From<txq_sched::tc::ParseError> for Error {
    fn from(error: txq_sched::tc::ParseError) -> Self {
        Self::new(TXQ_E_TC, error.to_string())
    }
}

impl From<txq_sched::tc::BatchError> for Error {
    fn from(error: txq_sched::tc::BatchError) -> Self {
        Self::new(TXQ_E_TC, error.to_string())
    }
}

/// What a function returns for an error.
pub(crate) trait Failed {
    fn failed(code: i32) -> Self;
}

impl Failed for i32 {
    fn failed(code: i32) -> Self {
        code
    }
}

impl Failed for i64 {
    fn failed(code: i32) -> Self {
        code.into()
    }
}

impl<T> Failed for *mut T {
    fn failed(_code: i32) -> Self {
        ptr::null_mut()
    }
}

/// Calls `f` and returns its result. An error or a panic becomes the thread's last error, and its code is returned.
#[inline]
pub(crate) fn border<T: Failed>(f: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => fail(&error),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            // A payload may panic when it is dropped.
            std::mem::forget(panic);
            fail(&Error::new(TXQ_E_PANIC, format!("panic: {text}")))
        }
    }
}

#[cold]
fn fail<T: Failed>(error: &Error) -> T {
    set_last(&error.text);
    T::failed(error.code)
}

const LAST_ERROR_BYTES: usize = 2048;

thread_local! {
    /// The text, with a NUL behind it. Without a destructor, so that it can be read while the thread ends.
    static LAST: UnsafeCell<[u8; LAST_ERROR_BYTES]> = const { UnsafeCell::new([0; LAST_ERROR_BYTES]) };
}

/// Makes `text` the thread's last error. Text beyond 2047 bytes is cut, at a character's end.
pub(crate) fn set_last(text: &str) {
    let mut end = text.len().min(LAST_ERROR_BYTES - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    LAST.with(|last| {
        let last: *mut u8 = last.get().cast();
        // SAFETY: the array belongs to this thread, no reference to it exists, and `end` is less than its length.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), last, end);
            last.add(end).write(0);
        }
    });
}

/// Makes tc's warnings the thread's last error, one a line. Returns what a command returns: 1 with warnings, else 0.
pub(crate) fn warned(warnings: &[String]) -> i32 {
    if warnings.is_empty() {
        return 0;
    }
    set_last(&warnings.join("\n"));
    1
}

/// Returns the text of the last error of a call on this thread; empty before the first one. The text stays until the next
/// error on this thread, or until the thread ends. A successful call does not change it. Never returns NULL.
///
/// Threads: any; each has its own text.
#[unsafe(no_mangle)]
pub extern "C" fn txq_last_error() -> *const c_char {
    LAST.with(|last| last.get().cast_const().cast())
}

/// The version of this header's structs and functions. It changes when a program must be compiled again.
pub const TXQ_ABI: u32 = 2;

/// Returns `TXQ_ABI` of the library that is loaded. A program compares the result with the `TXQ_ABI` of its header, and calls
/// no other function if they differ.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn txq_abi() -> u32 {
    TXQ_ABI
}

/// Returns the version of the library as a text, such as "0.1.0".
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn txq_version() -> *const c_char {
    const { concat!(env!("CARGO_PKG_VERSION"), "\0") }.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: the function returns a text with a NUL.
        unsafe { CStr::from_ptr(txq_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn errors_and_panics_become_codes_with_a_text_of_their_thread() {
        assert_eq!(last(), "");
        assert_eq!(border::<i32>(|| Err(Error::invalid("wrong"))), TXQ_E_INVALID);
        assert_eq!(last(), "wrong");
        assert_eq!(border::<i64>(|| panic!("at {}", 7)), i64::from(TXQ_E_PANIC));
        assert_eq!(last(), "panic: at 7");
        assert_eq!(border(|| Ok(5)), 5);
        assert_eq!(last(), "panic: at 7");
        assert!(std::thread::spawn(last).join().unwrap().is_empty());
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        set_last(&"\u{20ac}".repeat(1000));
        let text = last();
        assert_eq!(text.len(), 2046);
        assert!(text.chars().all(|c| c == '\u{20ac}'));
    }
}
