//! Texts, structs and arrays of the caller, checked before they are read or written.

use std::ffi::{CStr, c_char};
use std::slice;

use crate::error::{Error, Result, TXQ_E_NULL, TXQ_E_SIZE, TXQ_E_TEXT};

/// Returns the text at `text`; `what` names the text in errors.
///
/// # Safety
/// `text` is null, or a text with a NUL that stays unchanged for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(text, what) }?.ok_or_else(|| null(what))
}

/// Returns the text at `text`; `None` if it is null.
///
/// # Safety
/// As that of [`text`].
pub(crate) unsafe fn optional_text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some).map_err(|error| Error::new(TXQ_E_TEXT, format!("{what} is not UTF-8: {error}")))
}

#[cold]
pub(crate) fn null(what: &str) -> Error {
    Error::new(TXQ_E_NULL, format!("{what} is NULL"))
}

/// A struct of the border. Its first field is its size in bytes.
///
/// # Safety
/// The type is `repr(C)`, every bit pattern is a value of it, and its first field is a `u32`.
pub(crate) unsafe trait Sized32: Copy {
    /// The name of the type in C.
    const NAME: &'static str;
    const SIZE: u32 = size_of::<Self>() as u32;
}

#[cold]
pub(crate) fn size_error<T: Sized32>(size: u32) -> Error {
    let text = format!(
        "the size of a {} is {size}, not {}: set it to sizeof, and compile with this library's header",
        T::NAME,
        T::SIZE
    );
    Error::new(TXQ_E_SIZE, text)
}

/// Checks the `size` of the struct at `it`.
///
/// # Safety
/// `it` is null, or its `size` is initialised.
pub(crate) unsafe fn check_size<T: Sized32>(it: *const T, what: &str) -> Result<()> {
    if it.is_null() {
        return Err(null(what));
    }
    if !it.is_aligned() {
        return Err(Error::invalid(format!("{what} is not aligned")));
    }
    // SAFETY: the first field is a `u32`, and initialised by the caller's promise.
    match unsafe { it.cast::<u32>().read() } {
        size if size == T::SIZE => Ok(()),
        size => Err(size_error::<T>(size)),
    }
}

/// Returns an array of the caller's as a slice, whose elements' sizes are not checked yet.
///
/// # Safety
/// `array` is null, or points to `n` initialised elements that stay unchanged for `'a`.
#[inline]
pub(crate) unsafe fn array<'a, T>(array: *const T, n: usize, what: &str) -> Result<&'a [T]> {
    check_array(array, n, what)?;
    if n == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null, aligned, not too long, and the caller's promise.
    Ok(unsafe { slice::from_raw_parts(array, n) })
}

/// Checks an array of `n` elements that is written, not read: null only with 0 elements, aligned, and not too long.
#[inline]
pub(crate) fn check_array<T>(array: *const T, n: usize, what: &str) -> Result<()> {
    if n == 0 {
        return Ok(());
    }
    if array.is_null() {
        return Err(null(what));
    }
    if !array.is_aligned() {
        return Err(Error::invalid(format!("{what} is not aligned")));
    }
    if n > isize::MAX as usize / size_of::<T>() {
        return Err(Error::invalid(format!("{what} cannot have {n} elements")));
    }
    Ok(())
}

/// Writes `text` and a NUL to a buffer of `n` bytes, cut if it is too long. Returns the length of the whole text, as snprintf
/// does.
///
/// # Safety
/// `buffer` is null, or `n` bytes there may be written.
pub(crate) unsafe fn write_text(text: &str, buffer: *mut c_char, n: usize) -> Result<i64> {
    if n > 0 {
        if buffer.is_null() {
            return Err(null("the buffer"));
        }
        let mut cut = text.len().min(n - 1);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let buffer: *mut u8 = buffer.cast();
        // SAFETY: `cut` is less than `n`, and the caller's promise.
        unsafe {
            buffer.copy_from(text.as_ptr(), cut);
            buffer.add(cut).write(0);
        }
    }
    Ok(text.len() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn texts_are_written_as_snprintf_does() {
        let mut buffer = [b'x' as c_char; 5];
        for (n, expected) in [(0, &b"xxxxx"[..]), (1, b"\0xxxx"), (4, b"a\0xxx"), (5, b"a\xe2\x82\xac\0")] {
            buffer.fill(b'x' as c_char);
            // SAFETY: the buffer has 5 bytes.
            assert_eq!(unsafe { write_text("a\u{20ac}b", buffer.as_mut_ptr(), n) }.unwrap(), 5);
            assert_eq!(buffer.map(|c| c as u8), expected, "{n}");
        }
        // SAFETY: no byte is written.
        assert_eq!(unsafe { write_text("abc", ptr::null_mut(), 0) }.unwrap(), 3);
        // SAFETY: a null pointer is refused.
        assert_eq!(unsafe { write_text("abc", ptr::null_mut(), 1) }.unwrap_err().code, TXQ_E_NULL);
    }

    #[test]
    fn arrays_that_cannot_be_are_refused() {
        let one = [0_u64];
        // SAFETY: refused before it is read, or of the length given.
        unsafe {
            assert!(array(ptr::null::<u64>(), 0, "it").unwrap().is_empty());
            assert_eq!(array(ptr::null::<u64>(), 1, "it").unwrap_err().code, TXQ_E_NULL);
            assert!(array(one.as_ptr(), usize::MAX / 8, "it").is_err());
            assert!(array(one.as_ptr().cast::<u8>().wrapping_add(1).cast::<u64>(), 1, "it").is_err());
            assert_eq!(array(one.as_ptr(), 1, "it").unwrap(), one);
        }
    }
}
