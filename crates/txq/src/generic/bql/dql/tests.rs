use proptest::prelude::*;

use super::*;

const HOLD: Jiffies = 250;

/// Both sides in one, at counts that begin anywhere.
struct Bench {
    dql: Dql,
    queued: Queued,
    now: Jiffies,
}

impl Bench {
    fn new(limit: u32, start: u32) -> Self {
        let mut dql = Dql::new(limit, 0, MAX_LIMIT, HOLD, 0);
        (dql.num_completed, dql.prev_num_queued) = (start, start);
        Self { dql, queued: Queued { num_queued: start, last_obj_cnt: 0 }, now: 0 }
    }

    fn queue(&mut self, bytes: u32) -> &mut Self {
        self.queued = Queued { num_queued: self.queued.num_queued.wrapping_add(bytes), last_obj_cnt: bytes };
        self
    }

    fn complete(&mut self, bytes: u32) -> u32 {
        let now = self.now;
        self.dql.completed(bytes, self.queued, || now);
        self.dql.limit
    }

    fn avail(&self) -> i32 {
        self.dql.adj_limit().wrapping_sub(self.queued.num_queued) as i32
    }
}

/// Where counts begin: at 0, and so that they wrap in the course of a test (T19).
const STARTS: [u32; 4] = [0, u32::MAX - 50, u32::MAX - 1500, i32::MAX as u32 - 100];

#[test]
fn a_device_that_ran_empty_over_its_limit_was_starved() {
    for start in STARTS {
        let mut bench = Bench::new(100, start);
        assert_eq!(bench.queue(100).avail(), 0);
        assert_eq!(bench.queue(50).avail(), -50);
        // All 150 were needed, and all were queued since the previous completion.
        assert_eq!(bench.complete(150), 250);
        assert_eq!(bench.avail(), 250);
    }
}

/// Below its limit a device may run empty: there was nothing more to send.
#[test]
fn a_device_that_ran_empty_within_its_limit_was_not() {
    for start in STARTS {
        let mut bench = Bench::new(100, start);
        assert_eq!(bench.queue(100).complete(100), 100);
    }
}

/// The bytes over the limit at one completion are complete at the next, so the device waited for more. (T17)
#[test]
fn exactly_everything_from_before_is_all_of_it() {
    for start in STARTS {
        for (completed, limit) in [(99, 100), (100, 150), (101, 151)] {
            let mut bench = Bench::new(100, start);
            bench.queue(150);
            assert_eq!(bench.complete(50), 100, "50 over the limit, and still busy");
            bench.queue(150);
            assert_eq!(bench.complete(completed), limit, "{completed} of the 100 from before");
        }
    }
}

/// A device that is busy throughout and sends 100 from one completion to the next needs twice that: the one is on its way
/// while the other is being sent.
#[test]
fn slack_is_taken_away_when_it_has_lasted_for_the_hold_time() {
    for start in STARTS {
        let mut bench = Bench::new(1000, start);
        bench.queue(900);
        for jiffy in 0..=HOLD {
            bench.now = jiffy;
            bench.queue(100);
            assert_eq!(bench.complete(100), 1000, "not before the hold time is over");
        }
        bench.now = HOLD + 1;
        assert_eq!(bench.queue(100).complete(100), 200, "the slack was 1000 - 2 * 100 all the time");
    }
}

#[test]
fn the_least_slack_of_the_hold_time_counts() {
    let mut bench = Bench::new(1000, 0);
    bench.queue(900);
    for (now, bytes) in [(1, 100), (2, 300), (3, 100), (HOLD + 1, 100)] {
        bench.now = now;
        bench.queue(bytes).complete(bytes);
    }
    assert_eq!(bench.dql.limit, 600, "once, 300 were sent: 1000 - 2 * 300 was slack");
}

/// The last object began within the limit, so its part within the limit is slack that cannot be removed.
#[test]
fn what_the_last_object_had_within_the_limit_is_slack() {
    let mut bench = Bench::new(100, 0);
    bench.queue(80).queue(40);
    bench.complete(30);
    bench.now = HOLD + 1;
    // Of the 40, 20 were over. By the bytes sent there is no slack.
    bench.queue(100);
    assert_eq!(bench.complete(70), 80);
}

#[test]
fn the_limit_stays_between_its_bounds_and_the_maximum_wins() {
    let mut bench = Bench::new(100, 0);
    (bench.dql.min_limit, bench.dql.max_limit) = (0, 120);
    bench.queue(300);
    assert_eq!(bench.complete(300), 120);
    bench.dql.min_limit = 400;
    bench.queue(1);
    assert_eq!(bench.complete(1), 120);
    bench.dql.max_limit = 1000;
    bench.queue(1);
    assert_eq!(bench.complete(1), 400);
    // A limit that is set is in force until the next completion, whatever the bounds.
    bench.dql.limit = 5000;
    assert_eq!(bench.avail(), 5000);
    bench.queue(1);
    assert_eq!(bench.complete(1), 1000);
    assert_eq!(Dql::new(7, 0, MAX_LIMIT, HOLD, 0).limit, 7);
    assert_eq!(Dql::new(7, 9, 8, HOLD, 0).limit, 8);
}

/// When all is complete, the txq can go on: no limit stops it for ever.
#[test]
fn nothing_in_flight_is_within_any_limit() {
    let mut bench = Bench::new(0, 0);
    bench.dql.max_limit = 0;
    assert_eq!(bench.queue(60).avail(), -60);
    bench.complete(60);
    assert_eq!(bench.avail(), 0);
    bench.complete(1000);
    assert_eq!(bench.avail(), 0, "more cannot be complete than is in flight");
}

/// The algorithm in numbers that do not wrap, as its description tells it.
struct Model {
    limit: i64,
    bounds: (i64, i64),
    queued: i64,
    completed: i64,
    last_object: i64,
    /// At the previous completion: queued, over the limit, last object.
    before: (i64, i64, i64),
    slack: Option<i64>,
    since: i64,
}

impl Model {
    fn complete(&mut self, bytes: i64, now: i64) {
        let (queued_before, over_before, object_before) = self.before;
        let over = (self.queued - self.completed - self.limit).max(0);
        let was_busy = queued_before > self.completed;
        self.completed += bytes;
        let ran_empty = self.completed == self.queued;
        let all_from_before = self.completed >= queued_before;
        let limit = self.limit;
        if (over > 0 && ran_empty) || (over_before > 0 && all_from_before) {
            self.limit += over_before + (self.completed - queued_before).max(0);
            (self.slack, self.since) = (None, now);
        } else if was_busy && !ran_empty && !all_from_before {
            let spare = self.limit + over_before - 2 * bytes;
            let of_the_object = if over_before > 0 { object_before - over_before } else { 0 };
            let slack = spare.max(of_the_object).max(0);
            let least = self.slack.map_or(slack, |least| least.min(slack));
            self.slack = Some(least);
            if now - self.since > HOLD as i64 {
                self.limit = (self.limit - least).max(0);
                (self.slack, self.since) = (None, now);
            }
        }
        self.limit = self.limit.max(self.bounds.0).min(self.bounds.1);
        let over = if self.limit == limit { over } else { 0 };
        self.before = (self.queued, over, self.last_object);
    }
}

#[derive(Debug, Clone)]
enum Op {
    Queue(u32),
    /// A share of what is in flight, in percent.
    Complete(u32),
    Wait(u64),
    Bounds(u32, u32),
    Limit(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => prop_oneof![1u32..2000, Just(65536)].prop_map(Op::Queue),
        8 => prop_oneof![1u32..100, Just(100)].prop_map(Op::Complete),
        3 => prop_oneof![1u64..20, Just(HOLD), 200u64..600].prop_map(Op::Wait),
        1 => (0u32..3000, 0u32..100_000).prop_map(|(min, max)| Op::Bounds(min, max)),
        1 => (0u32..200_000).prop_map(Op::Limit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 500 }))]

    /// (T19)
    #[test]
    fn it_does_as_its_model_wherever_the_counts_begin(
        start in prop_oneof![Just(0u32), any::<u32>(), u32::MAX - 5000..=u32::MAX],
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut bench = Bench::new(0, start);
        let mut model = Model {
            limit: 0,
            bounds: (0, MAX_LIMIT.into()),
            queued: 0,
            completed: 0,
            last_object: 0,
            before: (0, 0, 0),
            slack: None,
            since: 0,
        };
        for op in ops {
            match op {
                Op::Queue(bytes) => {
                    bench.queue(bytes);
                    model.queued += i64::from(bytes);
                    model.last_object = bytes.into();
                }
                Op::Complete(percent) => {
                    let bytes = (model.queued - model.completed) * i64::from(percent) / 100;
                    if bytes > 0 {
                        bench.complete(bytes as u32);
                        model.complete(bytes, bench.now as i64);
                    }
                }
                Op::Wait(jiffies) => bench.now += jiffies,
                Op::Bounds(min, max) => {
                    (bench.dql.min_limit, bench.dql.max_limit) = (min, max);
                    model.bounds = (min.into(), max.into());
                }
                Op::Limit(limit) => {
                    bench.dql.limit = limit;
                    model.limit = limit.into();
                }
            }
            prop_assert_eq!(i64::from(bench.dql.limit), model.limit);
            let in_flight = model.queued - model.completed;
            prop_assert_eq!(i64::from(bench.avail()), model.limit - in_flight);
        }
    }
}
