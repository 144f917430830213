//! Opaque handles: a tag that names the type, and the state of use, before the value itself.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering::*};

use crate::error::{Error, Result, TXQ_E_BUSY, TXQ_E_FORKED, TXQ_E_INVALID, TXQ_E_NULL, TXQ_E_PANIC};
use crate::fork::{count_forks, forks};

/// A value behind a handle, which may move between threads.
pub(crate) trait Value: Send {
    /// The tag of the type. All differ.
    const TAG: u32;
    /// The name of the type in C.
    const NAME: &'static str;
    /// Whether it has threads or locks, and so belongs to the process that made it.
    const OF_PROCESS: bool;
}

const FREE: u32 = 0;
const IN_USE: u32 = 1;
/// A call panicked; the value may be inconsistent.
const BROKEN: u32 = 2;
/// The tag of a handle that was freed. Memory of freed handles is used again, so only most such uses are found.
const FREED_TAG: u32 = 0xdead_7890;

/// A value that one thread at a time uses. The tag is first, so that it can be read whatever handle a caller passes.
#[repr(C)]
pub(crate) struct Handle<T> {
    tag: AtomicU32,
    /// `FREE`, `IN_USE` or `BROKEN`. A call acquires it in `with` and releases it at its end, so each call sees the writes of
    /// the call before it, whichever threads make the calls.
    state: AtomicU32,
    forks: u32,
    value: UnsafeCell<T>,
}

impl<T: Value> Handle<T> {
    /// Moves a value to the heap; returns the handle.
    pub(crate) fn create(value: T) -> *mut Self {
        if T::OF_PROCESS {
            count_forks();
        }
        let (tag, state) = (AtomicU32::new(T::TAG), AtomicU32::new(FREE));
        Box::into_raw(Box::new(Self { tag, state, forks: forks(), value: UnsafeCell::new(value) }))
    }

    /// Checks that `handle` is one of this type and this process.
    #[inline]
    fn check<'a>(handle: *const Self) -> Result<&'a Self> {
        if handle.is_null() {
            return Err(Error::new(TXQ_E_NULL, format!("the {} is NULL", T::NAME)));
        }
        if !handle.is_aligned() {
            return Err(Error::new(TXQ_E_INVALID, format!("the pointer is no {}", T::NAME)));
        }
        // SAFETY: not null and aligned; the caller of the library passes only handles that it has not freed, and each has its tag here.
        let tag = unsafe { &*handle.cast::<AtomicU32>() };
        if tag.load(Relaxed) != T::TAG {
            return Err(Error::new(TXQ_E_INVALID, format!("the pointer is no {}, or it was freed", T::NAME)));
        }
        // SAFETY: as above, and it is a handle of this type.
        let handle = unsafe { &*handle };
        if T::OF_PROCESS && handle.forks != forks() {
            let text = format!("the {} belongs to the parent process: create one after fork", T::NAME);
            return Err(Error::new(TXQ_E_FORKED, text));
        }
        Ok(handle)
    }

    /// Calls `f` with the value.
    ///
    /// # Errors
    /// A handle that is null, of another type, of the parent process, in use, or broken by a panic, and those of `f`.
    #[inline]
    pub(crate) fn with<R>(handle: *const Self, f: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let handle = Self::check(handle)?;
        // Acquire: pairs with the release at the end of the call before.
        if let Err(state) = handle.state.compare_exchange(FREE, IN_USE, Acquire, Relaxed) {
            return Err(refused(state, T::NAME));
        }
        let call = CallUse(&handle.state);
        // SAFETY: `IN_USE` is this call's until `call` ends, so there is no other reference.
        let result = f(unsafe { &mut *handle.value.get() });
        call.end();
        result
    }

    /// Calls `f` with the value, which several threads may use at a time.
    ///
    /// # Errors
    /// A handle that is null, of another type, of the parent process, or being freed, and those of `f`.
    pub(crate) fn share<R>(handle: *const Self, f: impl FnOnce(&T) -> Result<R>) -> Result<R>
    where
        T: Sync,
    {
        let handle = Self::check(handle)?;
        if handle.state.load(Acquire) != FREE {
            return Err(refused(IN_USE, T::NAME));
        }
        // SAFETY: a shared handle is never used by `with`, so all references are shared ones; the caller of the library frees
        // no handle while another thread uses it.
        f(unsafe { &*handle.value.get() })
    }

    /// Frees a handle and returns its value; `None` for a null pointer. A broken handle's value is returned, too.
    pub(crate) fn take(handle: *mut Self) -> Result<Option<T>> {
        if handle.is_null() {
            return Ok(None);
        }
        let checked = Self::check(handle)?;
        if checked.state.swap(IN_USE, Acquire) == IN_USE {
            return Err(refused(IN_USE, T::NAME));
        }
        checked.tag.store(FREED_TAG, Relaxed);
        // SAFETY: `create` made it from a box, the tag says that it was not freed, and no call uses it.
        let boxed = unsafe { Box::from_raw(handle) };
        Ok(Some(boxed.value.into_inner()))
    }
}

#[cold]
fn refused(state: u32, name: &str) -> Error {
    match state {
        BROKEN => Error::new(TXQ_E_PANIC, format!("an earlier call with this {name} panicked: free it")),
        _ => {
            Error::new(TXQ_E_BUSY, format!("another call uses the {name}: use it from one thread at a time"))
        }
    }
}

/// A call's use of a handle.
struct CallUse<'a>(&'a AtomicU32);

impl CallUse<'_> {
    #[inline]
    fn end(self) {
        // Release: pairs with the acquire of the next call.
        self.0.store(FREE, Release);
        std::mem::forget(self);
    }
}

impl Drop for CallUse<'_> {
    /// Only a panic comes here.
    fn drop(&mut self) {
        self.0.store(BROKEN, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Number(u32);

    impl Value for Number {
        const TAG: u32 = 0x1234;
        const NAME: &'static str = "number";
        const OF_PROCESS: bool = false;
    }

    struct Other;

    impl Value for Other {
        const TAG: u32 = 0x4321;
        const NAME: &'static str = "other";
        const OF_PROCESS: bool = false;
    }

    struct Large(#[expect(dead_code, reason = "its length counts")] [u64; 100]);

    impl Value for Large {
        const TAG: u32 = 0x5678;
        const NAME: &'static str = "large";
        const OF_PROCESS: bool = false;
    }

    /// A handle of a larger type has its tag where a smaller one has its own: nothing behind the smaller one is read.
    #[test]
    fn a_larger_type_reads_nothing_behind_a_smaller_one() {
        assert_eq!(std::mem::offset_of!(Handle<Large>, tag), 0);
        let handle = Handle::create(Number(7));
        let wrong = handle.cast::<Handle<Large>>();
        if wrong.is_aligned() {
            assert_eq!(Handle::with(wrong, |_| Ok(())).unwrap_err().code, TXQ_E_INVALID);
        }
        assert!(Handle::take(handle).unwrap().is_some());
    }

    #[test]
    fn a_handle_is_used_by_one_call_at_a_time() {
        let handle = Handle::create(Number(7));
        let code = Handle::with(handle, |number| {
            number.0 += 1;
            Ok(Handle::with(handle, |_| Ok(())).unwrap_err().code)
        });
        assert_eq!(code.unwrap(), TXQ_E_BUSY);
        assert_eq!(Handle::take(handle).unwrap().unwrap().0, 8);
    }

    #[test]
    fn a_panic_breaks_a_handle_until_it_is_freed() {
        let handle = Handle::create(Number(7));
        let call = || Handle::with(handle, |_| -> Result<()> { panic!("broken") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
        assert_eq!(Handle::with(handle, |_| Ok(())).unwrap_err().code, TXQ_E_PANIC);
        assert!(Handle::take(handle).unwrap().is_some());
    }

    #[test]
    fn null_and_other_types_are_errors() {
        let handle = Handle::create(Number(7));
        let null: *const Handle<Number> = std::ptr::null();
        assert_eq!(Handle::with(null, |_| Ok(())).unwrap_err().code, TXQ_E_NULL);
        let odd = handle.cast::<u8>().wrapping_add(1).cast::<Handle<Number>>();
        assert_eq!(Handle::with(odd, |_| Ok(())).unwrap_err().code, TXQ_E_INVALID);
        let other = Handle::create(Other);
        assert_eq!(Handle::with(other.cast::<Handle<Number>>(), |_| Ok(())).unwrap_err().code, TXQ_E_INVALID);
        assert!(Handle::take(handle).unwrap().is_some());
        assert!(Handle::take(other).unwrap().is_some());
        assert!(Handle::<Number>::take(std::ptr::null_mut()).unwrap().is_none());
    }
}
