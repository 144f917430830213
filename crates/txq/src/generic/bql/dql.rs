//! The algorithm: a limit that is as small as it can be while the device never runs out of work
//! (`lib/dynamic_queue_limits`).
//!
//! It compares the bytes in flight from one completion to the next. A device that was given more than the limit and still
//! ran empty was starved: the limit grows by the missing bytes. A device that was busy all the time, and would have been
//! with fewer bytes, has slack: if the least slack of a whole hold time is above 0, the limit shrinks by it. The aim is the
//! number of bytes that the device sends from one completion to the next.
//!
//! All counters are 32 bits wide and wrap; differences are signed.

use crate::generic::bql::jiffies::Jiffies;

/// The largest object that may be queued at once, in bytes (`DQL_MAX_OBJECT`).
const MAX_OBJECT: u32 = u32::MAX / 16;
/// The largest limit, in bytes (`DQL_MAX_LIMIT`).
pub(crate) const MAX_LIMIT: u32 = u32::MAX / 2 - MAX_OBJECT;

/// The completing side's state.
#[derive(Debug, Clone)]
pub(super) struct Dql {
    /// Bytes that may be in flight before the txq stops.
    pub(super) limit: u32,
    /// Bytes completed, wrapping.
    pub(super) num_completed: u32,
    /// At the previous completion: bytes queued over the limit, bytes queued, and the bytes of the last object.
    prev_ovlimit: u32,
    prev_num_queued: u32,
    prev_last_obj_cnt: u32,
    /// The least slack since `slack_start`, in bytes.
    lowest_slack: u32,
    slack_start: Jiffies,
    pub(super) max_limit: u32,
    pub(super) min_limit: u32,
    /// A second minimum, found by trial (`probe`); 0 in the kernel.
    pub(super) floor: u32,
    /// How long slack must last before it is taken away.
    pub(super) slack_hold_time: Jiffies,
}

/// The counters of the transmitting side, as the completing side reads them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued {
    /// Bytes queued, wrapping.
    pub(super) num_queued: u32,
    /// Bytes of the last object.
    pub(super) last_obj_cnt: u32,
}

/// Returns `a - b` if that is above 0, else 0 (`POSDIFF`).
pub(super) fn posdiff(a: u32, b: u32) -> u32 {
    let difference = a.wrapping_sub(b);
    if difference as i32 > 0 { difference } else { 0 }
}

impl Dql {
    pub(super) fn new(limit: u32, min_limit: u32, max_limit: u32, hold: Jiffies, now: Jiffies) -> Self {
        Self {
            limit: limit.max(min_limit).min(max_limit),
            num_completed: 0,
            prev_ovlimit: 0,
            prev_num_queued: 0,
            prev_last_obj_cnt: 0,
            lowest_slack: u32::MAX,
            slack_start: now,
            max_limit,
            min_limit,
            floor: 0,
            slack_hold_time: hold,
        }
    }

    /// Returns the total number of bytes that may be queued, wrapping. The transmitting side compares its own count with it.
    pub(super) fn adj_limit(&self) -> u32 {
        self.limit.wrapping_add(self.num_completed)
    }

    /// Returns the bytes in flight beyond the limit. If there are any, the transmitter is stopped.
    pub(super) fn over_limit(&self, num_queued: u32) -> u32 {
        posdiff(posdiff(num_queued, self.num_completed), self.limit)
    }

    /// Returns the bytes of the last object that was queued before the last completion.
    pub(super) fn last_object(&self) -> u32 {
        self.prev_last_obj_cnt
    }

    /// Counts `count` bytes as completed and adapts the limit (`dql_completed`). A count above the bytes in flight is
    /// reduced to them. Calls `now` only if the time matters.
    pub(super) fn completed(&mut self, count: u32, queued: Queued, now: impl FnOnce() -> Jiffies) {
        let Queued { num_queued, last_obj_cnt } = queued;
        let in_flight = posdiff(num_queued, self.num_completed);
        let count = count.min(in_flight);
        let completed = self.num_completed.wrapping_add(count);
        let mut ovlimit = posdiff(in_flight, self.limit);
        let inprogress = posdiff(num_queued, completed);
        let prev_inprogress = posdiff(self.prev_num_queued, self.num_completed);
        let all_prev_completed = completed.wrapping_sub(self.prev_num_queued) as i32 >= 0;
        let mut limit = self.limit;
        if (ovlimit > 0 && inprogress == 0) || (self.prev_ovlimit > 0 && all_prev_completed) {
            // Starved: all bytes over the limit are complete as well, and so are those queued since the previous completion.
            limit =
                limit.wrapping_add(posdiff(completed, self.prev_num_queued)).wrapping_add(self.prev_ovlimit);
            self.restart_slack(now());
        } else if inprogress > 0 && prev_inprogress > 0 && !all_prev_completed {
            // Busy for the whole interval: slack is the bytes that were queued and not needed for that.
            let needed = completed.wrapping_sub(self.num_completed).wrapping_mul(2);
            let slack = posdiff(limit.wrapping_add(self.prev_ovlimit), needed);
            // The size of the last object alone may have exceeded the limit.
            let slack_last =
                if self.prev_ovlimit > 0 { posdiff(self.prev_last_obj_cnt, self.prev_ovlimit) } else { 0 };
            self.lowest_slack = self.lowest_slack.min(slack.max(slack_last));
            let now = now();
            if now > self.slack_start.saturating_add(self.slack_hold_time) {
                limit = posdiff(limit, self.lowest_slack);
                self.restart_slack(now);
            }
        }
        // Not `clamp`: the minimum may be set above the maximum, and then the maximum holds.
        let limit = limit.max(self.min_limit).max(self.floor).min(self.max_limit);
        if limit != self.limit {
            self.limit = limit;
            ovlimit = 0;
        }
        self.prev_ovlimit = ovlimit;
        self.prev_last_obj_cnt = last_obj_cnt;
        self.num_completed = completed;
        self.prev_num_queued = num_queued;
    }

    fn restart_slack(&mut self, now: Jiffies) {
        self.slack_start = now;
        self.lowest_slack = u32::MAX;
    }
}

#[cfg(test)]
mod tests;
