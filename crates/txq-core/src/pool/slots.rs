//! The array of a pool's descriptors, and the region of its buffers.
//!
//! A pool reserves both for all its buffers, so neither moves. A descriptor is written, and the memory of its buffer is
//! populated, when the buffer first enters circulation (`Size::begin`). So a pool takes the memory of the buffers that were in
//! use at one time, and address space for the others.

use std::cell::UnsafeCell;
use std::collections::TryReserveError;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

use super::region::Region;
use super::slot::Slot;
use crate::arch::Arch;

/// The memory of a descriptor.
pub(super) type Place<A> = UnsafeCell<MaybeUninit<Slot<A>>>;

/// The descriptors and the region of a pool.
pub(super) struct Slots<A: Arch> {
    places: Box<[Place<A>]>,
    pub(super) region: Region,
    stride: usize,
}

// SAFETY: a descriptor is `Send` and `Sync`. Only `begin` writes a place, and its caller alone has the index.
unsafe impl<A: Arch> Send for Slots<A> {}
// SAFETY: as above.
unsafe impl<A: Arch> Sync for Slots<A> {}

impl<A: Arch> Slots<A> {
    /// Returns memory for `max` descriptors, none of them begun.
    pub(super) fn reserve(max: usize) -> Result<Box<[Place<A>]>, TryReserveError> {
        let mut places = Vec::new();
        places.try_reserve_exact(max)?;
        // SAFETY: the vector has this capacity, and a `MaybeUninit` needs no value.
        unsafe { places.set_len(max) };
        Ok(places.into_boxed_slice())
    }

    /// Returns the descriptors of buffers that lie in `region` at each multiple of `stride`. The region has room for all.
    pub(super) fn new(places: Box<[Place<A>]>, region: Region, stride: usize) -> Self {
        Self { places, region, stride }
    }

    /// Returns the number of descriptors, begun or not.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the address of the first descriptor.
    pub(super) fn base(&self) -> usize {
        self.places.as_ptr().addr()
    }

    /// Returns the memory of all descriptors, without a read of it.
    pub(super) fn bytes(&self) -> &[Place<A>] {
        &self.places
    }

    /// Returns a descriptor, or `None` if the pool has fewer.
    ///
    /// # Safety
    /// [`begin`](Slots::begin) has written the descriptor if the pool has it, and that call happened before this one.
    #[inline]
    pub(super) unsafe fn get(&self, index: usize) -> Option<&Slot<A>> {
        // SAFETY: the caller's promise: the place is written, and nobody writes it again before the pool ends.
        self.places.get(index).map(|place| unsafe { (*place.get()).assume_init_ref() })
    }

    /// Writes the descriptor of buffer `index`; returns it.
    ///
    /// # Safety
    /// No other call has been or will be made for this index.
    pub(super) unsafe fn begin(&self, index: u32) -> NonNull<Slot<A>> {
        let place = &self.places[index as usize];
        // SAFETY: within the region, which has room for all buffers.
        let data = unsafe { self.region.base().as_ptr().add(index as usize * self.stride) };
        // SAFETY: no reference to the place exists before this call, which is the only one for it.
        unsafe { NonNull::from((*place.get()).write(Slot::new(index, data))) }
    }

    /// Populates the memory of buffers that the caller has begun and not yet given away.
    pub(super) fn populate(&self, buffers: Range<u32>) {
        let at = |index: u32| index as usize * self.stride;
        self.region.populate(at(buffers.start)..at(buffers.end));
    }

    /// Drops the first `n` descriptors.
    ///
    /// # Safety
    /// They were begun, and are not used any more.
    pub(super) unsafe fn end(&mut self, n: u32) {
        for place in &mut self.places[..n as usize] {
            // SAFETY: the caller's promise.
            unsafe { place.get_mut().assume_init_drop() };
        }
    }
}
