//! The stacks of tasks.
//!
//! All stacks begin at the same place of a page of the host. The lines that suspended tasks need next would then compete for
//! a few sets of the host's caches, so each stack begins some lines below that place.

use std::cell::{Cell, RefCell};

use corosensei::stack::{DefaultStack, Stack, StackPointer};

/// Bytes of a task's stack. The host allocates only the pages that the task touches.
const STACK_BYTES: usize = 256 * 1024;
/// Bytes of a line of the host.
const HOST_LINE: usize = 64;
/// Number of places where a stack may begin: the lines of a page.
const STACK_PLACES: usize = 64;

thread_local! {
    /// Stacks of ended tasks, for reuse.
    static UNUSED: RefCell<Vec<TaskStack>> = const { RefCell::new(Vec::new()) };
    /// Number of stacks created.
    static CREATED: Cell<usize> = const { Cell::new(0) };
}

/// A task's stack.
pub(crate) struct TaskStack {
    inner: DefaultStack,
    /// Bytes between the memory's end and the stack's beginning, a multiple of [`HOST_LINE`].
    skipped: usize,
}

impl TaskStack {
    /// Returns an unused stack, or creates one.
    ///
    /// # Panics
    /// If there is no memory for one.
    pub(crate) fn take() -> Self {
        UNUSED.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            let number = CREATED.replace(CREATED.get() + 1);
            let inner = DefaultStack::new(STACK_BYTES + STACK_PLACES * HOST_LINE);
            let inner = inner.unwrap_or_else(|e| panic!("no memory for a task's stack: {e}"));
            Self { inner, skipped: number % STACK_PLACES * HOST_LINE }
        })
    }

    /// Keeps the stack of an ended task for reuse.
    pub(crate) fn put(self) {
        UNUSED.with_borrow_mut(|unused| unused.push(self));
    }
}

// SAFETY: the memory is that of `inner`, with its guard page. At most `STACK_PLACES * HOST_LINE` bytes of it are skipped, so more than
// the required minimum is left, and the base keeps its alignment.
unsafe impl Stack for TaskStack {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.inner.base().get() - self.skipped).expect("within the memory")
    }

    fn limit(&self) -> StackPointer {
        self.inner.limit()
    }
}
