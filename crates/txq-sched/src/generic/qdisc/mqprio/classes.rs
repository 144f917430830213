//! Traffic classes: which txqs the packets of a priority may use (kernel: `netdev_set_num_tc`, `netdev_set_tc_queue`,
//! `netdev_set_prio_tc_map`; what mqprio configures).

use std::ops::Range;

/// The most traffic classes of a device (`TC_MAX_QUEUE`).
pub const MAX_CLASSES: usize = 16;

/// Number of different priorities: a packet's priority counts modulo this (`TC_BITMASK`).
pub const PRIORITIES: usize = 16;

/// Why traffic classes were refused. The kernel returns EINVAL for each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClassError {
    /// No class, or too many.
    #[error("{classes} traffic classes; there may be 1 to {MAX_CLASSES}")]
    Number {
        /// How many were requested.
        classes: usize,
    },
    /// A priority is mapped to a class that does not exist.
    #[error("priority {priority} is mapped to traffic class {class}, but there are {classes} (0 to {}); map it to one of them", classes - 1)]
    NoSuchClass {
        /// The priority.
        priority: usize,
        /// The class.
        class: u8,
        /// How many classes there are.
        classes: usize,
    },
    /// A class has no txqs.
    #[error("traffic class {class} has no queues; give it at least 1")]
    Empty {
        /// The class.
        class: usize,
    },
    /// A class has txqs that do not exist.
    #[error(
        "queues {count}@{offset} of traffic class {class} exceed the {txqs} txqs in use; stay below {txqs}"
    )]
    Beyond {
        /// The class.
        class: usize,
        /// How many txqs it would have.
        count: u16,
        /// The first of them.
        offset: u16,
        /// How many there are.
        txqs: u16,
    },
    /// Two classes have a txq in common.
    #[error("traffic classes {first} and {second} overlap; give each queue to one of them")]
    Overlap {
        /// One class.
        first: usize,
        /// The other.
        second: usize,
    },
}

/// Traffic classes, each a range of txqs, and the class of each priority. Without classes, all packets may use all txqs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficClasses {
    of_priority: [u8; PRIORITIES],
    ranges: Vec<Range<u16>>,
}

impl TrafficClasses {
    /// Creates classes with `(count, offset)` txqs each. `of_priority[n]` is the class of the priorities that are `n` modulo
    /// 16.
    ///
    /// # Errors
    /// When there are no classes or more than [`MAX_CLASSES`], when a priority has a class that does not exist, or when a
    /// class has no txqs, a txq of `txqs` or more, or a txq of another class.
    pub fn new(of_priority: [u8; PRIORITIES], queues: &[(u16, u16)], txqs: u16) -> Result<Self, ClassError> {
        let classes = queues.len();
        if !(1..=MAX_CLASSES).contains(&classes) {
            return Err(ClassError::Number { classes });
        }
        if let Some(priority) = of_priority.iter().position(|&class| usize::from(class) >= classes) {
            return Err(ClassError::NoSuchClass { priority, class: of_priority[priority], classes });
        }
        let mut ranges: Vec<Range<u16>> = Vec::with_capacity(classes);
        for (class, &(count, offset)) in queues.iter().enumerate() {
            if count == 0 {
                return Err(ClassError::Empty { class });
            }
            let Some(end) = offset.checked_add(count).filter(|&end| end <= txqs) else {
                return Err(ClassError::Beyond { class, count, offset, txqs });
            };
            if let Some(first) = ranges.iter().position(|other| other.start < end && offset < other.end) {
                return Err(ClassError::Overlap { first, second: class });
            }
            ranges.push(offset..end);
        }
        Ok(Self { of_priority, ranges })
    }

    /// Returns how many classes there are (`netdev_get_num_tc`).
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether there are no classes.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the class of a packet's priority; 0 if there are no classes (`netdev_get_prio_tc_map`).
    #[inline]
    pub fn of_priority(&self, priority: u32) -> usize {
        self.of_priority[priority as usize % PRIORITIES].into()
    }

    /// Returns the txqs of a class; `None` if there is no such class.
    #[inline]
    pub fn txqs(&self, class: usize) -> Option<Range<u16>> {
        self.ranges.get(class).cloned()
    }

    /// Returns the class that a txq belongs to, 0 if there are no classes; `None` for a txq that belongs to none of them
    /// (`netdev_txq_to_tc`).
    pub fn of_txq(&self, txq: u16) -> Option<usize> {
        if self.is_empty() { Some(0) } else { self.ranges.iter().position(|range| range.contains(&txq)) }
    }

    /// Returns the classes that remain when only `txqs` txqs are in use (`netif_setup_tc`). If the first class no longer
    /// fits, none remains. Otherwise priorities of classes that do not fit go to the first.
    pub fn fitted(&self, txqs: u16) -> Self {
        let fits = |class: usize| self.ranges.get(class).is_some_and(|range| range.end <= txqs);
        if !fits(0) {
            return Self::default();
        }
        let of_priority = self.of_priority.map(|class| if fits(class.into()) { class } else { 0 });
        Self { of_priority, ranges: self.ranges.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(queues: &[(u16, u16)]) -> Result<TrafficClasses, String> {
        let of_priority = std::array::from_fn(|priority| u8::from(priority > 7));
        TrafficClasses::new(of_priority, queues, 8).map_err(|error| error.to_string())
    }

    #[test]
    fn a_priority_has_a_class_and_a_class_has_txqs() {
        let some = classes(&[(2, 0), (3, 4)]).unwrap();
        assert_eq!([0, 7, 8, 15, 16, 24].map(|priority| some.of_priority(priority)), [0, 0, 1, 1, 0, 1]);
        assert_eq!([some.txqs(0), some.txqs(1), some.txqs(2)], [Some(0..2), Some(4..7), None]);
        assert_eq!([1, 2, 4, 7].map(|txq| some.of_txq(txq)), [Some(0), None, Some(1), None]);
        let none = TrafficClasses::default();
        assert_eq!((none.len(), none.of_priority(9), none.of_txq(9), none.txqs(0)), (0, 0, Some(0), None));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let error = |queues: &[(u16, u16)]| classes(queues).unwrap_err();
        assert_eq!(error(&[]), "0 traffic classes; there may be 1 to 16");
        assert_eq!(error(&[(1, 0); 17]), "17 traffic classes; there may be 1 to 16");
        assert_eq!(
            error(&[(1, 0)]),
            "priority 8 is mapped to traffic class 1, but there are 1 (0 to 0); map it to one of them"
        );
        assert_eq!(error(&[(1, 0), (0, 1)]), "traffic class 1 has no queues; give it at least 1");
        let beyond = "exceed the 8 txqs in use; stay below 8";
        assert_eq!(error(&[(1, 0), (2, 7)]), format!("queues 2@7 of traffic class 1 {beyond}"));
        assert_eq!(error(&[(1, 0), (9, 65535)]), format!("queues 9@65535 of traffic class 1 {beyond}"));
        assert_eq!(
            error(&[(3, 0), (1, 2)]),
            "traffic classes 0 and 1 overlap; give each queue to one of them"
        );
    }

    #[test]
    fn fewer_txqs_end_classes() {
        let some = classes(&[(2, 0), (3, 4)]).unwrap();
        assert_eq!(some.fitted(7), some);
        assert_eq!(some.fitted(6).of_priority(8), 0, "class 1 does not fit");
        assert_eq!(some.fitted(6).len(), 2);
        assert!(some.fitted(1).is_empty());
    }
}
