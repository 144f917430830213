//! Estimators of classes: averages of the rates at which classes send (`tc class add ... estimator 1s 8s htb ...`).
//!
//! The qdisc passes time to all averages of its classes at a dequeue, once an interval has ended. A qdisc whose classes have no estimators
//! compares two numbers at each dequeue. The kernel's counterpart is `gen_replace_estimator` for `cl->rate_est`.

use std::collections::BTreeMap;

use txq_core::arch::{Arch, Nanos};
use txq_core::stats::QdiscStats;

use super::child::Classes;
use super::estimated::Average;
use crate::tc::{Estimator, SentRate, Style};

/// Returns what a class has sent.
#[cold]
pub(crate) fn sent_by<A: Arch>(classes: &mut dyn Classes<A>, minor: u16) -> QdiscStats {
    (classes.read_class(minor, Style::default()))().stats.unwrap_or_default()
}

/// The estimators of a qdisc's classes, by their minor numbers.
#[derive(Debug, Default)]
pub struct Rates {
    averages: BTreeMap<u16, Average>,
    /// When the first of the present intervals ends; at once if an estimator is new.
    due: Nanos,
}

impl Rates {
    /// Gives a class an estimator, in place of the one that it has. `stats` are what the class has sent.
    pub(crate) fn set(&mut self, minor: u16, estimator: Estimator, stats: &QdiscStats) {
        self.averages.insert(minor, Average::new(estimator, stats));
        self.due = 0;
    }

    pub(crate) fn remove(&mut self, minor: u16) {
        self.averages.remove(&minor);
    }

    /// Returns whether an interval has ended.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        !self.averages.is_empty() && now >= self.due
    }

    /// Ends the intervals that are over. `stats` returns what a class has sent, as at the last dequeue.
    #[cold]
    pub(super) fn pass_time(&mut self, now: Nanos, mut stats: impl FnMut(u16) -> QdiscStats) {
        self.due = Nanos::MAX;
        for (&minor, average) in &mut self.averages {
            self.due = self.due.min(average.pass_time(&stats(minor), now));
        }
    }

    /// Returns the function that computes a class's rate from what it has sent; `None` without an estimator.
    pub(crate) fn read(
        &self,
        minor: u16,
    ) -> Option<impl FnOnce(&QdiscStats, Nanos) -> SentRate + Send + use<>> {
        let mut average = *self.averages.get(&minor)?;
        Some(move |stats: &QdiscStats, now| {
            average.pass_time(stats, now);
            average.rate()
        })
    }
}

#[cfg(test)]
mod tests {
    use txq_core::arch::{Arch, Native};

    use crate::generic::qdisc::{Budget, Verdict};
    use crate::tc::{ClassInfo, Rate, Style, class_text};
    use crate::{Item, Scheduler};

    /// 1 packet of 1250 bytes a millisecond for 64 s is about that rate; after a pause it is less.
    #[test]
    fn a_class_shows_the_average_of_its_rate() {
        for (root, options) in
            [("htb default 1", "htb rate 1gbit"), ("hfsc default 1", "hfsc sc rate 1gbit"), ("drr", "drr")]
        {
            let mut link: Scheduler<()> = Scheduler::new(&format!("handle 1: {root}")).unwrap();
            let tc = |link: &mut Scheduler<()>, now, text: &str| {
                link.tc(now, text).unwrap_or_else(|error| panic!("{text}: {error}"));
            };
            // Ahead of the clock by which classes are shown.
            let start = Native::now();
            tc(&mut link, start, &format!("class add parent 1: classid 1:1 est 250ms 1s {options}"));
            tc(&mut link, start, &format!("class add parent 1: classid 1:2 {options}"));
            if root == "drr" {
                tc(&mut link, start, "filter add parent 1: matchall classid 1:1");
            }
            let shown = |link: &mut Scheduler<()>| -> ClassInfo {
                let mut classes = link.classes(Style::default());
                classes.retain(|class| class.handle.minor() > 0);
                assert!(classes[1].rate.is_none(), "{root}: {:?}", classes[1]);
                classes.swap_remove(0)
            };
            let mut now = start;
            let mut send = |link: &mut Scheduler<()>, times: u64| {
                for _ in 0..times {
                    assert_eq!(link.enqueue(now, Item::new(1250, ())), Verdict::Success);
                    assert_eq!(
                        link.dequeue_batch(now, Budget::packets(8), &mut Vec::new()),
                        1,
                        "{root} at {now}"
                    );
                    now += 1_000_000;
                }
                now
            };
            send(&mut link, 64_000);
            let sent = shown(&mut link).rate.unwrap();
            assert!((1_240_000..1_260_000).contains(&sent.rate.0), "{root}: {sent:?}");
            assert!((990..=1010).contains(&sent.packets), "{root}: {sent:?}");
            let text = class_text(&[shown(&mut link)], true);
            assert!(text.contains("\n rate ") && text.contains("pps backlog "), "{text}");
            // A change without an estimator keeps it; one with an estimator begins anew.
            let now = send(&mut link, 1);
            if root != "drr" {
                tc(&mut link, now, &format!("class change classid 1:1 {options}"));
                assert!(shown(&mut link).rate.unwrap().rate > Rate(0), "{root}");
            }
            tc(&mut link, now, &format!("class change classid 1:1 estimator 1s 8s {options}"));
            assert_eq!(shown(&mut link).rate.unwrap().rate, Rate(0), "{root}");
            // A class that is added anew has none.
            tc(&mut link, now, "class del classid 1:2");
            assert_eq!(link.classes(Style::default()).iter().filter(|class| class.rate.is_some()).count(), 1);
        }
        let mut link: Scheduler<()> = Scheduler::new("handle 1: htb").unwrap();
        assert!(link.tc(0, "class add parent 1: classid 1:1 est 1s 8s est 1s 8s htb rate 1mbit").is_err());
    }
}
