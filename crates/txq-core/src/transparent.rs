//! References to a concrete type from references to the generic one that it wraps.

/// Lets a reference to the generic type `$inner` be used as one to its concrete wrapper `$outer`, which must be
/// `#[repr(transparent)]` over it. `$seen` is the visibility of the two functions.
#[doc(hidden)]
#[macro_export]
macro_rules! transparent {
    ($seen:vis $outer:ty, $inner:ty $(, $life:lifetime)?) => {
        #[doc(hidden)]
        #[allow(dead_code, reason = "some wrappers need one of the two functions")]
        #[allow(clippy::needless_lifetimes, reason = "a wrapper with a lifetime of its own needs the name")]
        impl$(<$life>)? $outer {
            /// Returns the concrete type that wraps `inner`.
            #[inline]
            $seen fn from_ref<'r>(inner: &'r $inner) -> &'r Self {
                // SAFETY: `Self` is `#[repr(transparent)]` over this type, and adds no invariant.
                unsafe { &*std::ptr::from_ref(inner).cast::<Self>() }
            }

            /// Returns the concrete type that wraps `inner`, for writing.
            #[inline]
            $seen fn from_mut<'r>(inner: &'r mut $inner) -> &'r mut Self {
                // SAFETY: as above.
                unsafe { &mut *std::ptr::from_mut(inner).cast::<Self>() }
            }
        }
    };
}
