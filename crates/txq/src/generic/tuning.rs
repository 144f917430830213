//! The numbers of the transmit path's policy: each with its unit, what it trades, and the command that shows it. `cargo xtask check
//! tuning` measures each at half and at twice its value.
//!
//! Bounds that Linux has (`dev_tx_weight`, `qdisc_max_burst`, `defer_max`) and sizes of data structures stand where they are used.

use txq_core::arch::Nanos;

/// How long a busy sender uses contended queues before another one may take them, in nanoseconds. A longer turn moves the state of
/// a qdisc with many flows less often; a shorter one lets other busy senders wait less.
/// `cargo lab bench crowd --qdisc sfq,cake --discipline combine --threads 2,8 --batch 1`
pub(crate) const TURN_OF_SENDER: Nanos = 1_000_000;
/// The longest time that a call of a busy sender waits for its turn, in nanoseconds. A longer wait hands over less; a shorter one
/// bounds a call. `cargo lab bench crowd --qdisc sfq,cake --discipline combine --threads 64 --batch 32`
pub(crate) const LONGEST_TURN_WAIT: Nanos = 10_000_000;
/// Time between two checks by the senders that wait for a turn, all together, in nanoseconds. More checks find an unused turn
/// earlier, and each costs a wake. `cargo lab bench crowd --qdisc pfifo --discipline combine --threads 2,8 --batch 1`
pub(crate) const TURN_CHECK: Nanos = 200_000;
/// What a packet that changes its CPU costs, in nanoseconds. A sender that spends less than that on a packet outside the data path
/// takes turns; one that spends more hands over. `cargo lab bench work --work-ns 250 --discipline combine`
pub(crate) const HAND_OVER_COST: Nanos = 500;
/// How long a sender without a buffer or credit polls before it sleeps, in nanoseconds: about what a sleep and a wake cost (`txq sim
/// calibrate` prints `os.wake` and `os.wakeup`).
/// `cargo lab bench overload --rate 10gbit --txqs 8 --root mq --threads 1 --qdisc pfifo --completions worker --discipline combine`
pub(crate) const POLL_BEFORE_SLEEP: Nanos = 20_000;
/// The longest time that a call waits for room in a full list in front of a queue, in nanoseconds: about a slice of the scheduler, for
/// which the queue's owner may lack a CPU. A longer wait drops less; a shorter one bounds a call.
/// `cargo lab bench overload --threads 8 --load 5 --flows 32 --discipline combine`
pub(crate) const LONGEST_ROOM_WAIT: Nanos = 4_000_000;
/// The most packets between two reaps of a sender. More packets share the cost of a poll; fewer return buffers earlier.
/// `cargo lab bench path --batch 1 --qdisc pfifo --discipline combine`
pub(crate) const REAPED_TOGETHER: u32 = 32;
/// How long the worker leaves a device alone whose senders reap, in nanoseconds. A longer time wakes the worker less often; a shorter
/// one returns the buffers of a sender that pauses earlier. `cargo lab bench path --batch 1 --qdisc pfifo --discipline combine`
pub(crate) const LEFT_TO_SENDERS: Nanos = 1_000_000;
/// The longest time between two polls by the worker of a device that completes packets, in nanoseconds. A longer time polls less
/// often; a shorter one returns buffers earlier.
/// `cargo lab bench overload --rate 10gbit --txqs 1 --root one --threads 1 --qdisc pfifo --completions worker --discipline combine`
pub(crate) const LONGEST_POLL_WAIT: Nanos = 100_000;
/// The worker's wait for packets of a device that has completed all, in nanoseconds. A longer time wakes the worker less often.
/// `cargo lab bench overload --rate 10gbit --txqs 8 --root mq --threads 1 --qdisc pfifo --completions worker --discipline combine`
pub(crate) const EMPTY_DEVICE_WAIT: Nanos = 50_000;
/// The longest turn of an owner for which others' packets wait, in nanoseconds. A longer turn hands less to the worker; a shorter one
/// returns a sender to its own work earlier. `cargo lab bench work --discipline combine --work-ns 1000`
pub(crate) const OWNERS_TURN: Nanos = 100_000;
