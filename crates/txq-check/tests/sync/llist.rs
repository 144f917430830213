//! The defer list: many threads push, one takes all.
//!
//! Guards `push` and `take_all` of `txq/src/sync/llist.rs`. Mutants that it catches: `push` without release or `take_all`
//! without acquire, by loom's "Causality violation: Concurrent read and write accesses"; an exchange split into load and
//! store, by a model that never ends, because the taker waits for a lost node; a wrong result of `push`, by "a list began
//! without an owner, or with two".

use std::sync::Arc;

use txq_check::{Loom, Model, Shuttle};
use txq_core::arch::{Arch, CellApi};
use txq_core::sync::llist::{LList, Linked, reverse};

struct Node<A: Arch> {
    link: A::Cell<*mut Node<A>>,
    content: A::Cell<(usize, usize)>,
}

// SAFETY: `link` is always the same field, and only the list uses it.
unsafe impl<A: Arch> Linked<A> for Node<A> {
    fn link(&self) -> &A::Cell<*mut Self> {
        &self.link
    }
}

/// Every node is taken once, in its pusher's order and with the content that the pusher wrote. Exactly those pushes that
/// began a list return true: each list that is taken has one owner.
fn scenario<A: Model>(pushers: usize, each: usize) {
    let list = Arc::new(LList::<A, Node<A>>::new());
    let threads: Vec<_> = (0..pushers)
        .map(|pusher| {
            let list = list.clone();
            A::spawn(pusher as u32 + 1, move || push_all(&list, pusher, each))
        })
        .collect();
    let (mut taken, mut lists) = (vec![0; pushers], 0);
    while taken.iter().sum::<usize>() < pushers * each {
        let head = list.take_all();
        if head.is_null() {
            A::relax();
            continue;
        }
        lists += 1;
        // SAFETY: taken just now, and the nodes are ours.
        let mut at = unsafe { reverse::<A, Node<A>>(head) };
        while !at.is_null() {
            // SAFETY: each node was a box and is taken once; if not, the checker sees the second write to it.
            let node = unsafe { Box::from_raw(at) };
            // SAFETY: the node is ours, which is what the checker verifies here.
            let (pusher, number) = node.content.with_mut(|c| unsafe { *c });
            assert_eq!(number, taken[pusher], "a node of pusher {pusher} is lost, doubled or out of order");
            taken[pusher] += 1;
            // SAFETY: as above.
            at = node.link.with_mut(|l| unsafe { *l });
        }
    }
    let began: usize = threads.into_iter().map(|join| join()).sum();
    assert_eq!(began, lists, "a list began without an owner, or with two");
    assert!(list.is_empty());
}

/// Returns how many pushes found the list empty.
fn push_all<A: Arch>(list: &LList<A, Node<A>>, pusher: usize, each: usize) -> usize {
    let push = |number| {
        let node = Node::<A> { link: A::Cell::new(std::ptr::null_mut()), content: A::Cell::new((0, 0)) };
        // SAFETY: the node is ours until it is pushed.
        node.content.with_mut(|c| unsafe { *c = (pusher, number) });
        // SAFETY: the box is given up; the thread that takes the node frees it.
        unsafe { list.push(Box::into_raw(Box::new(node))) }
    };
    (0..each).filter(|&number| push(number)).count()
}

/// A test for an empty list reads no node, which may be taken and freed by then. (T43)
#[test]
fn emptiness_needs_no_node_under_loom() {
    Loom::check(|| {
        let list = Arc::new(LList::<Loom, Node<Loom>>::new());
        push_all(&list, 0, 1);
        let reader = list.clone();
        let reads = Loom::spawn(1, move || [reader.is_empty(), reader.is_empty()]);
        // SAFETY: taken just now, and it was a box.
        drop(unsafe { Box::from_raw(list.take_all()) });
        assert_ne!(reads(), [true, false], "it was empty, and filled itself");
        assert!(list.is_empty());
    });
}

#[test]
fn two_pushers_under_loom() {
    Loom::check(|| scenario::<Loom>(2, 2));
}

#[test]
fn three_pushers_under_loom() {
    Loom::check_long(|| scenario::<Loom>(3, 1));
}

#[test]
fn six_pushers_under_shuttle() {
    Shuttle::check(|| scenario::<Shuttle>(6, 3));
}
