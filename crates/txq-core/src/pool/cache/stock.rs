//! The way of free buffers between a sender's stack, its inbox and the pool's stock.

use std::ptr::NonNull;

use super::Cache;
use crate::arch::{Arch, CellApi};
use crate::pool::account::{AccountWord, since};
use crate::pool::error::AllocError;
use crate::pool::home::Home;
use crate::pool::retired::Run;
use crate::pool::slot::Slot;

impl<A: Arch> Cache<A> {
    /// Puts a buffer on the stack, after a spill if the stack is full.
    #[inline]
    pub(super) fn keep(&mut self, slot: NonNull<Slot<A>>) {
        if self.stack.len() >= self.size {
            self.spill();
        }
        self.stack.push(slot);
    }

    /// Gives the coldest buffers to the stock.
    fn spill(&mut self) {
        let store = &self.shared.memory.store;
        let bulk = store.size.bulk().min(self.stack.len());
        store.stock(self.stack.drain(..bulk));
    }

    /// Gives all buffers to the stock, then reads whether the pool still shrinks or senders still wait.
    #[cold]
    pub(super) fn give_up(&mut self) {
        let store = &self.shared.memory.store;
        store.stock(self.stack.drain(..));
        self.read_shortage();
    }

    /// Reads whether senders must keep no free buffer. If they may, opens the inboxes of its home.
    #[cold]
    fn read_shortage(&mut self) {
        let size = &self.shared.memory.store.size;
        self.sharing = size.is_short();
        if !self.sharing {
            size.unless_waiting(|| self.home().open_inboxes());
        }
    }

    /// Reads the pool's size, which may have changed, and gives surplus buffers to the stock.
    #[cold]
    fn resized(&mut self) {
        self.size = self.shared.memory.store.size.cache();
        self.read_shortage();
        while self.stack.len() > self.size {
            self.spill();
        }
    }

    /// Puts buffers on the stack if it is empty. Returns an error if there are none, or if the limit allows no allocation.
    #[cold]
    pub(super) fn refill(&mut self) -> Result<(), AllocError> {
        let mut word = self.home().account().read();
        if self.stack.is_empty() && word.backlog() > 0 {
            word = self.empty_inbox();
        }
        self.note_credit(word);
        if self.out >= self.limit {
            return Err(self.at_limit());
        }
        if self.stack.is_empty() { self.restock(word) } else { Ok(()) }
    }

    /// Refills the empty stack: from the inbox if `word`, read just now, has a backlog; else from the stock; else from the
    /// inboxes of other senders.
    #[cold]
    pub(in crate::pool) fn restock(&mut self, word: AccountWord) -> Result<(), AllocError> {
        if word.backlog() > 0 {
            self.empty_inbox();
        }
        if self.stack.is_empty() && !self.may_take() {
            return Err(self.reserved());
        }
        if self.stack.is_empty() {
            let memory = &self.shared.memory;
            memory.store.take(&memory.slots, |slot| self.stack.push(slot));
        }
        if self.stack.is_empty() {
            self.scavenge();
        }
        if self.stack.is_empty() {
            return Err(AllocError::Exhausted {
                pool: self.shared.name.clone(),
                buffers: self.shared.memory.store.size.get(),
            });
        }
        Ok(())
    }

    /// Subtracts from `out` the packets freed elsewhere since the last time.
    pub(in crate::pool) fn note_credit(&mut self, word: AccountWord) {
        self.out -= i64::from(since(word.freed(), self.seen));
        self.seen = word.freed();
    }

    /// Takes the buffers that other threads freed to this sender's home, and answers a kick. Returns the account's word
    /// after that.
    #[cold]
    pub(in crate::pool) fn empty_inbox(&mut self) -> AccountWord {
        // SAFETY: the home lives as long as the pool; the borrow is of the pool, not of `self`.
        let home = unsafe { self.home.as_ref() };
        if home.answer_kick() {
            self.resized();
        }
        let word = self.take_from(home);
        if self.sharing {
            self.give_up();
        }
        if word.backlog() > home.store.defer_max() / 2 {
            // These were counted but not yet pushed when we took: kick ourselves, so that the next call takes them.
            home.kick();
        }
        word
    }

    /// Empties the inbox of `home` into the stack; what does not fit goes to the stock. Returns the account's word after
    /// that.
    pub(super) fn take_from(&mut self, home: &Home<A>) -> AccountWord {
        let mut taken = 0;
        let mut surplus = Run::new();
        for mut slot in home.take_all() {
            while let Some(s) = NonNull::new(slot) {
                // SAFETY: buffers taken from an inbox are ours, linked up to a null.
                slot = unsafe { s.as_ref().next.with(|n| *n) };
                taken += 1;
                if self.stack.len() < self.size {
                    self.stack.push(s);
                } else {
                    surplus.push(s);
                }
            }
        }
        if surplus.len() > 0 {
            self.shared.memory.store.put(&mut surplus);
        }
        home.account().taken(taken)
    }

    /// Takes buffers from the inboxes of all senders, idle or gone: the last resort before an error.
    fn scavenge(&mut self) {
        let shared = self.shared.clone();
        for home in shared.memory.homes.iter().filter(|h| h.account().read().backlog() > 0) {
            self.take_from(home);
        }
    }

    #[cold]
    fn reserved(&self) -> AllocError {
        AllocError::Reserved {
            pool: self.shared.name.clone(),
            sender: self.home().name(),
            held: self.out as u64,
            buffers: self.store().size.get(),
        }
    }

    #[cold]
    pub(in crate::pool) fn at_limit(&self) -> AllocError {
        AllocError::Limit { sender: self.home().name(), limit: self.limit as u64 }
    }

    #[cold]
    pub(in crate::pool) fn too_long(&self, len: usize) -> AllocError {
        AllocError::TooLong { pool: self.shared.name.clone(), len, room: self.shared.room }
    }
}
