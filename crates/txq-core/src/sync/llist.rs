//! A lock-free list that any thread pushes to and one thread takes whole: the kernel's `llist_head`.
//!
//! There is no pop, only [`LList::take_all`], so a node cannot leave and return between another thread's load of the head
//! and its exchange: no ABA, no tags, no hazard pointers. A push returns whether the list was empty; `enqueue/llist.rs`
//! builds ownership on that.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::arch::{Arch, AtomicPtr, CellApi};

/// A node of an [`LList`].
///
/// # Safety
/// `link` must return the same cell for the node's whole life, and nothing else may use that cell while the node is
/// on a list.
pub unsafe trait Linked<A: Arch>: Sized + 'static {
    /// Returns the link to the node pushed before this one.
    fn link(&self) -> &A::Cell<*mut Self>;
}

/// A lock-free list.
pub struct LList<A: Arch, T: Linked<A>> {
    /// The newest node; null if the list is empty. A push replaces it (Release: the node's content); `take_all` swaps it for
    /// null (Acquire). Pushes between the two are read-modify-writes of the same word, so they continue the release
    /// sequence, and one acquire sees the content of all nodes.
    head: A::AtomicPtr<T>,
}

impl<A: Arch, T: Linked<A>> LList<A, T> {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self { head: A::AtomicPtr::new(ptr::null_mut()) }
    }

    /// Pushes one node; returns whether the list was empty (`llist_add`).
    ///
    /// # Safety
    /// `node` is valid until it is taken, and the caller gives it up: it is on no other list, and no other thread accesses
    /// it.
    #[inline]
    pub unsafe fn push(&self, node: *mut T) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.push_or(node, || ()) }
    }

    /// As [`push`](LList::push), and calls `retry` for each attempt that fails.
    ///
    /// # Safety
    /// As [`push`](LList::push).
    #[inline]
    pub unsafe fn push_or(&self, node: *mut T, mut retry: impl FnMut()) -> bool {
        let mut head = self.head.load(Relaxed);
        loop {
            // SAFETY: the node is still the caller's alone, and it is valid by the caller's promise.
            unsafe { (*node).link().with_mut(|l| *l = head) };
            match self.head.compare_exchange_weak(head, node, Release, Relaxed) {
                Ok(_) => return head.is_null(),
                Err(now) => {
                    retry();
                    head = now;
                }
            }
        }
    }

    /// Takes the whole list and returns its newest node (`llist_del_all`); null if the list was empty.
    #[inline]
    pub fn take_all(&self) -> *mut T {
        self.head.swap(ptr::null_mut(), Acquire)
    }

    /// As [`is_empty`](LList::is_empty), for a thread that is about to push: takes the line for writing.
    #[inline]
    pub fn is_empty_to_push(&self) -> bool {
        self.head.load_to_write(Relaxed).is_null()
    }

    /// Whether the list is empty at this moment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.load(Relaxed).is_null()
    }
}

impl<A: Arch, T: Linked<A>> Default for LList<A, T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Reverses a taken list and returns its oldest node (`llist_reverse_order`).
///
/// # Safety
/// `head` came from [`LList::take_all`] and its nodes are still the caller's.
pub unsafe fn reverse<A: Arch, T: Linked<A>>(mut head: *mut T) -> *mut T {
    let mut oldest = ptr::null_mut();
    while !head.is_null() {
        // SAFETY: each node of a taken list is valid and belongs to the caller.
        let next = unsafe { (*head).link().with_mut(|l| ptr::replace(l, oldest)) };
        oldest = head;
        head = next;
    }
    oldest
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::arch::{Native, NativeCell};

    struct Node {
        link: NativeCell<*mut Node>,
        content: (usize, usize),
    }

    // SAFETY: `link` is always the same field, and only the list uses it.
    unsafe impl Linked<Native> for Node {
        fn link(&self) -> &NativeCell<*mut Self> {
            &self.link
        }
    }

    /// Three threads push while one takes: nothing is lost, and each pusher's nodes stay in order.
    #[test]
    fn many_push_and_one_takes() {
        let (pushers, each) = (3, if cfg!(miri) { 20 } else { 20_000 });
        let list = LList::<Native, Node>::new();
        thread::scope(|scope| {
            for pusher in 0..pushers {
                let list = &list;
                scope.spawn(move || {
                    for number in 0..each {
                        let link = NativeCell::new(ptr::null_mut());
                        let node = Box::new(Node { link, content: (pusher, number) });
                        // SAFETY: the box is given up, and freed by the taker.
                        unsafe { list.push(Box::into_raw(node)) };
                    }
                });
            }
            let mut taken = vec![0; pushers];
            while taken.iter().sum::<usize>() < pushers * each {
                // SAFETY: taken just now.
                let mut at = unsafe { reverse::<Native, Node>(list.take_all()) };
                if at.is_null() {
                    thread::yield_now();
                }
                while !at.is_null() {
                    // SAFETY: each node was a box, and is taken once.
                    let node = unsafe { Box::from_raw(at) };
                    let (pusher, number) = node.content;
                    assert_eq!(number, taken[pusher]);
                    taken[pusher] += 1;
                    // SAFETY: the node is ours.
                    at = node.link.with(|l| unsafe { *l });
                }
            }
        });
        assert!(list.is_empty());
    }
}
