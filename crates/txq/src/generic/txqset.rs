//! A set of txqs, kept by one thread. Insertion takes constant time, however many txqs there are.

/// Txqs, in the order in which they were added.
pub(crate) struct TxqSet {
    list: Vec<u16>,
    member: Box<[bool]>,
}

impl TxqSet {
    /// Creates an empty set of txqs below `txqs`.
    pub(crate) fn new(txqs: usize) -> Self {
        Self { list: Vec::new(), member: vec![false; txqs].into() }
    }

    /// Adds a txq; returns whether it is new.
    #[inline]
    pub(crate) fn insert(&mut self, txq: u16) -> bool {
        let new = !std::mem::replace(&mut self.member[usize::from(txq)], true);
        if new {
            self.list.push(txq);
        }
        new
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + Clone + '_ {
        self.list.iter().copied()
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u16) -> bool) {
        self.list.retain(|&txq| {
            let keep = keep(txq);
            self.member[usize::from(txq)] = keep;
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_txq_is_in_it_once_until_it_is_let_go() {
        let mut set = TxqSet::new(10);
        assert_eq!([3, 9, 3, 0].map(|txq| set.insert(txq)), [true, true, false, true]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 9, 0]);
        set.retain(|txq| txq != 9);
        set.insert(3);
        set.insert(9);
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 0, 9]);
    }
}
