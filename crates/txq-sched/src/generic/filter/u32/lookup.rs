//! The search for a packet's rule.

use std::ops::ControlFlow;

use txq_core::arch::Arch;

use super::{Bucket, Entry, HashTable, KeyMatch, Mark, Offset, Root, Tables};
use crate::generic::filter::Choice;
use crate::generic::filter::frame::Frame;
use crate::generic::filter::untagged::Untagged;

/// The most links that a search follows one below the other (`TC_U32_MAXDEPTH`).
const MOST_LINKS: usize = 8;

/// A search.
struct Search<'f, 'p, A: Arch> {
    frame: &'f Frame<'p, A>,
    data: Untagged<'p>,
    /// What `nexthdr+` adds, as the last rule with an `offset` has set it.
    nexthdr: i64,
}

/// Breaks off with the result of the search, or goes on.
type Flow = ControlFlow<Option<Choice>>;

impl Tables {
    /// Returns what the first matching rule chooses, from the root of a pref on.
    #[inline]
    pub(in crate::generic::filter) fn classify<A: Arch>(
        &self,
        root: Root,
        frame: &Frame<'_, A>,
    ) -> Option<Choice> {
        let bucket = self.tables[root.0].as_ref()?.buckets.first()?;
        let (data, network) = frame.untagged();
        let mut search = Search { frame, data, nexthdr: 0 };
        self.search(bucket, network as i64, 0, &mut search).break_value().flatten()
    }

    /// Searches a bucket whose offsets count from `from`, below `depth` links.
    fn search<A: Arch>(
        &self,
        bucket: &Bucket,
        from: i64,
        depth: usize,
        search: &mut Search<'_, '_, A>,
    ) -> Flow {
        for (_, rule) in &bucket.rules {
            if !search.matches(rule, from) {
                continue;
            }
            if let Some(table) = rule.link.and_then(|at| self.tables[at].as_ref()) {
                if depth == MOST_LINKS {
                    // The kernel's log has "dead loop" then.
                    return ControlFlow::Break(None);
                }
                if let Some((bucket, from)) = search.follow(rule, table, from) {
                    self.search(bucket, from, depth + 1, search)?;
                }
            }
            if rule.is_terminal()
                && let Some(choice) = search.frame.choose(rule.class, &rule.actions)
            {
                return ControlFlow::Break(Some(choice));
            }
        }
        ControlFlow::Continue(())
    }
}

impl<A: Arch> Search<'_, '_, A> {
    #[inline]
    fn matches(&self, rule: &Entry, from: i64) -> bool {
        #[cfg(test)]
        super::tests::COMPARED.set(super::tests::COMPARED.get() + 1);
        let key_matches = |key: &KeyMatch| {
            let from = if key.nexthdr { from + self.nexthdr } else { from };
            key.matches(&self.data, from)
        };
        if let Some(Mark { value, mask, success }) = &rule.mark {
            if self.frame.mark() & mask != *value {
                return false;
            }
            success.set(success.get().wrapping_add(1));
        }
        rule.keys.iter().all(key_matches)
    }

    /// Returns the bucket of a linked table, and from where its offsets count; `None` if these lie beyond the packet's end.
    fn follow<'t>(&mut self, rule: &Entry, table: &'t HashTable, from: i64) -> Option<(&'t Bucket, i64)> {
        let bucket = match (table.divisor(), rule.hash) {
            (1, _) | (_, None) => 0,
            (divisor, Some(hash)) => {
                let word = self.data.array(from + i64::from(hash.offset)).map(u32::from_be_bytes);
                hash.bucket(word?, divisor)
            }
        };
        let Offset { variable, at, mask, shift, fixed, plus, eat } = rule.offset;
        if variable || fixed {
            let mut bytes = i64::from(plus) + 3;
            if variable {
                let field = self.data.array(from + i64::from(at)).map(u16::from_be_bytes);
                let field = u32::from(field? & mask);
                bytes += i64::from(field.checked_shr(shift.into()).unwrap_or(0));
            }
            // Headers are words of four bytes.
            self.nexthdr = bytes & !3;
        }
        let mut from = from;
        if eat {
            from += std::mem::take(&mut self.nexthdr);
        }
        let within = !(variable || fixed || eat) || from < self.data.len() as i64;
        within.then(|| (&table.buckets[bucket as usize], from))
    }
}

impl KeyMatch {
    /// Whether a packet has the value, whose offset counts from `from`.
    pub(in crate::generic::filter) fn matches(&self, data: &Untagged<'_>, from: i64) -> bool {
        let word = data.array(from + i64::from(self.offset)).map(u32::from_be_bytes);
        word.is_some_and(|word| word & self.mask == self.value)
    }
}
