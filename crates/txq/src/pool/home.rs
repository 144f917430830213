//! Where a sender's buffers come home to.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use crate::arch::{Arch, Atomic, AtomicPtr, CpuId};
use crate::pool::slot::Slot;
use crate::sync::contention::Retries;
use crate::sync::llist::LList;

/// A place for one sender's cache: the inbox that other CPUs put its buffers into.
///
/// Homes are never removed while the pool lives. One whose sender is gone is vacant: its inbox may still fill, and
/// whoever runs out of buffers empties it ([`Homes::iter`]), until a new sender moves in.
pub(crate) struct Home<A: Arch> {
    /// Written by all who free this sender's buffers.
    pub(super) inbox: CachePadded<LList<A, Slot<A>>>,
    /// Buffers of this home that somebody else took out of the inbox. Read by the sender only when it is at its limit.
    pub(super) taken_away: A::AtomicU64,
    /// The CPU that its sender allocates on.
    pub(super) cpu: A::AtomicU32,
    /// 1 while a sender lives here.
    occupied: A::AtomicU32,
    /// For messages only.
    name: Mutex<String>,
    /// The home made before this one. Never changes.
    next: *const Home<A>,
    /// The pool's, for pushes to the inbox.
    pub(super) retries: Arc<Retries<A>>,
}

// SAFETY: `next` points to another home of the same pool, alive as long as this one.
unsafe impl<A: Arch> Send for Home<A> {}
// SAFETY: as above; everything else in it is atomic or a mutex.
unsafe impl<A: Arch> Sync for Home<A> {}

impl<A: Arch> Home<A> {
    pub(crate) fn cpu(&self) -> CpuId {
        self.cpu.load(Relaxed)
    }

    pub(crate) fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn vacate(&self) {
        self.occupied.store(0, Release);
    }
}

/// All homes of a pool: a list that only grows.
pub(super) struct Homes<A: Arch> {
    newest: A::AtomicPtr<Home<A>>,
    retries: Arc<Retries<A>>,
}

impl<A: Arch> Homes<A> {
    pub(super) fn new(retries: Arc<Retries<A>>) -> Self {
        Self { newest: A::AtomicPtr::new(ptr::null_mut()), retries }
    }

    /// A vacant home, or a new one.
    pub(super) fn occupy(&self, name: &str, cpu: CpuId) -> &Home<A> {
        let home = self.iter().find(|h| h.occupied.compare_exchange(0, 1, Acquire, Relaxed).is_ok());
        let home = home.unwrap_or_else(|| self.build());
        *home.name.lock().unwrap_or_else(PoisonError::into_inner) = name.to_owned();
        home.cpu.store(cpu, Relaxed);
        home
    }

    fn build(&self) -> &Home<A> {
        let mut newest = self.newest.load(Acquire);
        let home = Box::into_raw(Box::new(Home {
            inbox: CachePadded::new(LList::new()),
            taken_away: A::AtomicU64::new(0),
            cpu: A::AtomicU32::new(0),
            occupied: A::AtomicU32::new(1),
            name: Mutex::new(String::new()),
            next: newest,
            retries: self.retries.clone(),
        }));
        // AcqRel: releases this home, acquires the one that it links to.
        while let Err(now) = self.newest.compare_exchange(newest, home, AcqRel, Acquire) {
            newest = now;
            // SAFETY: not published yet, so still ours alone.
            unsafe { (*home).next = newest };
        }
        // SAFETY: homes live as long as `self`.
        unsafe { &*home }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Home<A>> {
        let mut at = self.newest.load(Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: each home lives as long as `self` and was acquired with the newest.
            let home = unsafe { at.as_ref() }?;
            at = home.next;
            Some(home)
        })
    }
}

impl<A: Arch> Drop for Homes<A> {
    fn drop(&mut self) {
        let mut at = self.newest.load(Relaxed);
        while !at.is_null() {
            // SAFETY: nobody is left to use them, and each is on the list once.
            at = unsafe { Box::from_raw(at) }.next.cast_mut();
        }
    }
}
