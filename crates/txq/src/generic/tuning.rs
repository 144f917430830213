//! The numbers of the transmit path's policy: each with its unit, what it trades, and the command that shows it. `cargo xtask check
//! tuning` measures each at half and at twice its value.
//!
//! Bounds that Linux has (`dev_tx_weight`, `qdisc_max_burst`, `defer_max`), bounds on what a wrong driver may do, and sizes of data
//! structures stand where they are used. The probe of byte limits (`bql/probe.rs`) has numbers of its own.

use txq_core::arch::Nanos;

/// How long a busy sender uses contended queues before another one may take them, in nanoseconds. A longer turn moves the state of
/// a qdisc with many flows less often; a shorter one lets other busy senders wait less.
/// `cargo lab bench crowd --qdisc sfq --qdisc cake --discipline combine --threads 2,8 --batch 1`
pub(crate) const TURN_OF_SENDER: Nanos = 1_000_000;
/// The longest time that a call of a busy sender waits for its turn, in nanoseconds. A longer wait hands over less; a shorter one
/// bounds a call. `cargo lab bench crowd --qdisc sfq --qdisc cake --discipline combine --threads 64 --batch 32`
pub(crate) const LONGEST_TURN_WAIT: Nanos = 15_000_000;
/// Packets after which a sender decides again whether it is busy. More packets cost fewer readings of the clock, two a window; fewer
/// follow a sender that begins other work earlier. `cargo lab bench path --batch 32 --qdisc pfifo --discipline combine`
pub(crate) const BUSY_WINDOW: u32 = 256;
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
/// The worker's longest wait for packets of a device that has completed all, in nanoseconds. A longer time wakes the worker less often.
/// `cargo lab bench overload --rate 10gbit --txqs 8 --root mq --threads 1 --qdisc pfifo --completions worker --discipline combine`
pub(crate) const EMPTY_DEVICE_WAIT: Nanos = 50_000;
/// The longest turn of an owner for which others' packets wait, in nanoseconds. A longer turn hands less to the worker; a shorter one
/// returns a sender to its own work earlier. `cargo lab bench work --discipline combine --work-ns 1000`
pub(crate) const OWNERS_TURN: Nanos = 100_000;
/// Time between two attempts of a thread that no other thread wakes, in nanoseconds: for a refused batch, and for room in a full list. A
/// longer time costs fewer attempts; a shorter one finds room earlier.
/// `cargo lab bench overload --threads 8 --load 5 --flows 32 --discipline combine`
pub(crate) const RETRY: Nanos = 50_000;
/// The longest time that repeated attempts in vain, each after twice the time, are apart, in nanoseconds. A longer time wakes an idle
/// process less often; a shorter one finds a change earlier. `cargo lab bench rate --batch 1 --threads 2`
pub(crate) const LONGEST_NAP: Nanos = 10_000_000;
/// Time to the worker's next poll of a device that does not know when its packets will be complete, in nanoseconds. A longer time polls
/// less often; a shorter one returns buffers earlier.
/// `cargo lab bench overload --rate 10gbit --txqs 1 --root one --threads 1 --qdisc pfifo --completions worker --discipline combine`
pub(crate) const UNTIMED_POLL: Nanos = 20_000;
/// Full polls after which an owner leaves a txq that is still stopped. More polls open it more often; fewer bound the owner's turn.
/// `cargo lab bench overload --rate 10gbit --txqs 1 --root one --threads 2 --qdisc pfifo --completions inline --discipline combine`
pub(crate) const FULL_POLLS: usize = 4;
/// Calls of xmit after which a sender checks again which CPU it runs on. More calls cost fewer checks; fewer follow a thread that moved
/// earlier. `cargo lab bench path --batch 1 --qdisc pfifo --discipline combine`
pub(crate) const CALLS_ON_ONE_CPU: u32 = 64;
