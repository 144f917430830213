/*
 * libtxq: Linux's qdiscs and transmit path for programs that send without the kernel.
 *
 *   cc program.c $(pkg-config --cflags --libs txq)
 *
 * Two levels:
 *   txq_sched_...  a tree of qdiscs over the program's own buffers, without threads or devices. For programs that send
 *                  themselves, such as DPDK's. examples/dpdk_sched.c
 *   txq_dev_...    devices with worker threads, and a sender for each thread of the program. examples/udp_sender.c,
 *                  examples/custom_device.c
 *
 * Rules for all functions:
 *   - A negative result, or NULL from a function that returns a handle, is an error: TXQ_E_..., and txq_last_error() has its
 *     text. An error has changed nothing, unless the function says otherwise.
 *   - Structs begin with `size`, the struct's sizeof, which the program sets. Another size is the error TXQ_E_SIZE. In an
 *     array that a function writes, the program sets the first element's.
 *   - Texts are UTF-8 and end with a NUL. The library copies what it keeps.
 *   - Each function says which threads may call it. A handle that one thread at a time uses may move between threads;
 *     a call beside another one is the error TXQ_E_BUSY. A handle must not be used after it was freed.
 *   - No panic or exception leaves the library. Callbacks must return: no longjmp, no C++ exception.
 *   - After fork, devices and senders belong to the parent: TXQ_E_FORKED. Schedulers work in both processes.
 *   - The library stays loaded after dlclose.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 * Generated from the sources of the crate txq-capi: TXQ_BLESS=1 cargo test -p txq-capi --test header
 */


#ifndef TXQ_H
#define TXQ_H

#include <stddef.h>
#include <stdint.h>

/**
 * A pointer is null that must not be.
 */
#define TXQ_E_NULL (-1)

/**
 * A struct's `size` is not the size that this version of the library has for the struct.
 */
#define TXQ_E_SIZE (-2)

/**
 * A text is not UTF-8.
 */
#define TXQ_E_TEXT (-3)

/**
 * A value is out of range, a key is unknown, or a handle or packet is of another kind, or of another sender.
 */
#define TXQ_E_INVALID (-4)

/**
 * tc's error: the text is wrong, or the tree refuses the command.
 */
#define TXQ_E_TC (-5)

/**
 * The system has no memory for a pool.
 */
#define TXQ_E_MEMORY (-6)

/**
 * The system or the device failed.
 */
#define TXQ_E_IO (-7)

/**
 * Another call uses the handle, or the function may not be called in a callback.
 */
#define TXQ_E_BUSY (-8)

/**
 * The device is gone.
 */
#define TXQ_E_GONE (-9)

/**
 * The handle belongs to the parent process.
 */
#define TXQ_E_FORKED (-10)

/**
 * The library panicked, now or in an earlier call with the handle. That is a bug of the library or of a callback.
 */
#define TXQ_E_PANIC (-11)

/**
 * The device is down.
 */
#define TXQ_E_DOWN (-12)

/**
 * The counters do not add up. That is a bug of the library.
 */
#define TXQ_E_AUDIT (-13)

/**
 * The pool has no free buffer.
 */
#define TXQ_E_NO_BUFFER (-14)

/**
 * The sender has as many packets on their way as its limit allows.
 */
#define TXQ_E_LIMIT (-15)

/**
 * The version of this header's structs and functions. It changes when a program must be compiled again.
 */
#define TXQ_ABI 1

/**
 * No reason was given.
 */
#define TXQ_DROP_NOT_SPECIFIED 0

/**
 * A qdisc dropped it without a more specific reason, or no qdisc is active.
 */
#define TXQ_DROP_QDISC_DROP 1

/**
 * More packets waited for the queue's owner than `max_burst` allows; the qdisc never saw this one.
 */
#define TXQ_DROP_QDISC_BURST_DROP 2

/**
 * The qdisc's limit was reached.
 */
#define TXQ_DROP_QDISC_OVERLIMIT 3

/**
 * An AQM dropped it to keep the queue short.
 */
#define TXQ_DROP_QDISC_CONGESTED 4

/**
 * Its flow does not respond to congestion signals (cake's BLUE).
 */
#define TXQ_DROP_CAKE_FLOOD 5

/**
 * Its fq band was full.
 */
#define TXQ_DROP_FQ_BAND_LIMIT 6

/**
 * Its departure time was too far in the future.
 */
#define TXQ_DROP_FQ_HORIZON_LIMIT 7

/**
 * Its fq flow was full.
 */
#define TXQ_DROP_FQ_FLOW_LIMIT 8

/**
 * It was queued when the queue was purged (reset, shutdown).
 */
#define TXQ_DROP_QUEUE_PURGE 9

/**
 * The device has no queue (noqueue), and its ring was full or its txq stopped.
 */
#define TXQ_DROP_FULL_RING 10

/**
 * The device is down or gone.
 */
#define TXQ_DROP_DEV_READY 11

/**
 * Drivers sent it on to each other in a loop.
 */
#define TXQ_DROP_RECURSION_LIMIT 12

/**
 * It is longer than the device accepts.
 */
#define TXQ_DROP_PKT_TOO_BIG 13

/**
 * It is shorter than its header.
 */
#define TXQ_DROP_HDR_TRUNC 14

/**
 * There was no memory for it, or the scheduler has as many packets as it may have.
 */
#define TXQ_DROP_NOMEM 15

/**
 * The system has no route to its destination.
 */
#define TXQ_DROP_IP_OUTNOROUTES 16

/**
 * The system's firewall does not let it out.
 */
#define TXQ_DROP_NETFILTER_DROP 17

/**
 * No program listens at its destination.
 */
#define TXQ_DROP_NO_SOCKET 18

/**
 * The device does not send its protocol.
 */
#define TXQ_DROP_UNHANDLED_PROTO 19

/**
 * A header begins with an Ethernet header.
 */
#define TXQ_LINK_ETHERNET 0

/**
 * A header begins with an IP header.
 */
#define TXQ_LINK_IP 1

/**
 * Show the qdiscs (`tc qdisc show`).
 */
#define TXQ_SHOW_QDISCS 0

/**
 * Show the classes (`tc class show`).
 */
#define TXQ_SHOW_CLASSES 1

/**
 * Show the filters of a qdisc or class (`tc filter show`).
 */
#define TXQ_SHOW_FILTERS 2

/**
 * A flag of `txq_sched_show` and `txq_dev_show`: JSON instead of text (`tc -j`).
 */
#define TXQ_SHOW_JSON 1

/**
 * A flag of `txq_sched_show` and `txq_dev_show`: with counters (`tc -s`).
 */
#define TXQ_SHOW_STATS 2

/**
 * A flag of `txq_sched_show` and `txq_dev_show`: with details (`tc -d`).
 */
#define TXQ_SHOW_DETAILS 4

/**
 * A tree of qdiscs over the program's own buffers, without threads, sockets or a clock.
 */
typedef struct txq_sched txq_sched;

/**
 * The configuration of a scheduler. 0 in a field means the default.
 */
typedef struct txq_sched_config {
    /**
     * sizeof(struct txq_sched_config).
     */
    uint32_t size;
    /**
     * The most packets that are queued at a time, whatever the limits of the qdiscs; 65536 by default. Further ones are dropped
     * as NOMEM.
     */
    uint32_t packets;
    /**
     * The most bytes of a packet's header that are kept, up to 65535; 128 by default.
     */
    uint32_t header;
    /**
     * The longest packet of the link with its link-layer header, in bytes, on which defaults of qdiscs depend; 1514 by
     * default.
     */
    uint32_t mtu;
    /**
     * The default limit of qdiscs, in packets; 1000 by default.
     */
    uint32_t tx_queue_len;
} txq_sched_config;

/**
 * A packet to enqueue: the program's own buffer, or a key of it, and what qdiscs and filters need to know of it. Set all
 * fields; a struct of zeros with `size`, `len` and `value` is a packet.
 */
typedef struct txq_item {
    /**
     * sizeof(struct txq_item).
     */
    uint32_t size;
    /**
     * The packet's length on the link, with its link-layer header if it has one. Rates, quanta and byte limits count it.
     */
    uint32_t len;
    /**
     * The program's value, which dequeue and drops return. The library never reads what it points to.
     */
    void *value;
    /**
     * The packet's first bytes, from its Ethernet or IP header on; NULL if filters and qdiscs need none. Filters read
     * them, qdiscs hash flows in them.
     */
    const uint8_t *header;
    /**
     * The number of bytes at `header`; `txq_sched_config.header` of them are kept.
     */
    uint32_t header_len;
    /**
     * What the header begins with: TXQ_LINK_ETHERNET or TXQ_LINK_IP.
     */
    uint32_t link;
    /**
     * The priority: a band, or a class such as 0x10010 for 1:10.
     */
    uint32_t priority;
    /**
     * The mark that fw filters match.
     */
    uint32_t mark;
    /**
     * The flow's hash, such as an RSS hash or the number of a connection; 0 for unknown, to hash the header.
     */
    uint32_t hash;
    /**
     * The number of segments that the packet is cut into after it has left, up to 65535; 0 counts as 1.
     */
    uint32_t segments;
    /**
     * The earliest departure time on the program's clock; 0 for as soon as possible.
     */
    uint64_t departure;
} txq_item;

/**
 * A packet that a dequeue returns.
 */
typedef struct txq_departed {
    /**
     * sizeof(struct txq_departed). Set by the program in the first element of an array.
     */
    uint32_t size;
    /**
     * The packet's length.
     */
    uint32_t len;
    /**
     * The program's value.
     */
    void *value;
    /**
     * The earliest departure time, which fq sets when it paces; 0 for at once.
     */
    uint64_t departure;
    /**
     * The byte that the IPv4 header's TOS or the IPv6 header's traffic class must have now, because a qdisc has marked
     * congestion (RFC 3168) or cleared DSCP; -1 if it has not changed.
     */
    int32_t tos;
    /**
     * Always 0.
     */
    uint32_t reserved;
} txq_departed;

/**
 * A packet that was dropped.
 */
typedef struct txq_dropped {
    /**
     * sizeof(struct txq_dropped). Set by the program in the first element of an array.
     */
    uint32_t size;
    /**
     * Why it was dropped: TXQ_DROP_...
     */
    uint32_t reason;
    /**
     * The program's value.
     */
    void *value;
} txq_dropped;

/**
 * The counters of a qdisc, as `tc -s` prints them.
 */
typedef struct txq_qdisc_stats {
    /**
     * sizeof(struct txq_qdisc_stats).
     */
    uint32_t size;
    /**
     * Always 0.
     */
    uint32_t reserved;
    /**
     * Bytes sent.
     */
    uint64_t bytes;
    /**
     * Packets sent; a packet with segments counts as its segments.
     */
    uint64_t packets;
    /**
     * Packets dropped.
     */
    uint64_t drops;
    /**
     * How often a rate held packets back.
     */
    uint64_t overlimits;
    /**
     * Packets that the device refused.
     */
    uint64_t requeues;
    /**
     * Bytes queued.
     */
    uint64_t backlog;
    /**
     * Packets queued.
     */
    uint64_t qlen;
} txq_qdisc_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the text of the last error of a call on this thread; empty before the first one. The text stays until the next
 * error on this thread, or until the thread ends. A successful call does not change it. Never returns NULL.
 *
 * Threads: any; each has its own text.
 */
const char *txq_last_error(void);

/**
 * Returns `TXQ_ABI` of the library that is loaded. A program compares the result with the `TXQ_ABI` of its header, and calls
 * no other function if they differ.
 *
 * Threads: any.
 */
uint32_t txq_abi(void);

/**
 * Returns the version of the library as a text, such as "0.1.0".
 *
 * Threads: any.
 */
const char *txq_version(void);

/**
 * Returns the kernel's name of a drop reason (`TXQ_DROP_...`), such as "QDISC_OVERLIMIT"; "UNKNOWN" for another number. Never
 * returns NULL. The text stays for ever.
 *
 * Threads: any.
 */
const char *txq_drop_reason(uint32_t reason);

/**
 * Builds the qdisc that `text` describes in tc's words, such as "handle 1: htb default 10" or "fq_codel limit 1000".
 * `config` may be NULL for the defaults. Returns NULL for an error. mq, mqprio and noqueue are refused, because they hold no
 * packets.
 *
 * Threads: any. One thread at a time uses a scheduler; it may be another one at each call. A scheduler has no threads and
 * works in a child after fork.
 */
struct txq_sched *txq_sched_new(const char *text,
                                const struct txq_sched_config *config);

/**
 * Frees a scheduler; NULL is allowed. Values that are still queued are forgotten: call `txq_sched_purge` and
 * `txq_sched_dropped` before, to free them. Returns 0.
 *
 * Threads: the one that uses the scheduler.
 */
int32_t txq_sched_free(struct txq_sched *sched);

/**
 * Executes one command in tc's words at the time `now`: "class add parent 1: classid 1:10 htb rate 1mbit". Its object is
 * qdisc, class or filter; a leading "tc" and a "dev NAME" make no difference. Returns 0, or 1 if tc would warn;
 * `txq_last_error` then returns the warning. After an error nothing has changed. Packets that the command drops are in
 * `txq_sched_dropped`.
 *
 * Threads: the one that uses the scheduler.
 */
int32_t txq_sched_tc(struct txq_sched *sched,
                     uint64_t now,
                     const char *command);

/**
 * Queues `n` items at the time `now`, in nanoseconds on a clock of the program's choice that starts above 0 and never goes
 * back. Each item's `size` must be set. Returns how many items the scheduler has taken. It takes fewer than `n` only while
 * `txq_sched_config.packets` or more dropped packets wait for `txq_sched_dropped`; the items not taken stay the program's.
 * The qdisc may drop an item that was taken, or another packet in its place: call `txq_sched_dropped` afterwards. An error
 * has taken none. Headers are copied before the call returns.
 *
 * Threads: the one that uses the scheduler.
 */
int64_t txq_sched_enqueue(struct txq_sched *sched,
                          uint64_t now,
                          const struct txq_item *items,
                          size_t n);

/**
 * Dequeues up to `n` packets that may leave at the time `now`, and up to `bytes` bytes (0 for no limit; the last packet may
 * exceed them). Writes them to `out`, whose first element's `size` must be set, and returns their number. Packets may be
 * dropped meanwhile: call `txq_sched_dropped` afterwards.
 *
 * Threads: the one that uses the scheduler.
 */
int64_t txq_sched_dequeue(struct txq_sched *sched,
                          uint64_t now,
                          struct txq_departed *out,
                          size_t n,
                          uint64_t bytes);

/**
 * Returns up to `n` packets that earlier calls dropped, each with its reason, in the order in which they were dropped. They
 * are the program's again. Writes them to `out`, whose first element's `size` must be set, and returns their number. Call it
 * until it returns less than `n`.
 *
 * Threads: the one that uses the scheduler.
 */
int64_t txq_sched_dropped(struct txq_sched *sched,
                          struct txq_dropped *out,
                          size_t n);

/**
 * Drops all queued packets as QUEUE_PURGE: `txq_sched_dropped` returns them. Returns 0.
 *
 * Threads: the one that uses the scheduler.
 */
int32_t txq_sched_purge(struct txq_sched *sched, uint64_t now);

/**
 * Writes the time of the next dequeue to `at`: 0 for at once, or the qdisc's next event if the last call was a dequeue that
 * returned nothing. Returns 1, or 0 if there is no such time: nothing is queued, or the qdisc names no time.
 *
 * Threads: the one that uses the scheduler.
 */
int32_t txq_sched_next(struct txq_sched *sched,
                       uint64_t *at);

/**
 * Returns the number of packets queued.
 *
 * Threads: the one that uses the scheduler.
 */
int64_t txq_sched_len(struct txq_sched *sched);

/**
 * Writes the counters of the root to `stats`, whose `size` must be set. Returns 0.
 *
 * Threads: the one that uses the scheduler.
 */
int32_t txq_sched_stats(struct txq_sched *sched, struct txq_qdisc_stats *stats);

/**
 * Returns the number of packets dropped for `reason` (`TXQ_DROP_...`) so far.
 *
 * Threads: the one that uses the scheduler.
 */
int64_t txq_sched_drops(struct txq_sched *sched, uint32_t reason);

/**
 * Writes qdiscs, classes or filters (`what`: TXQ_SHOW_QDISCS, TXQ_SHOW_CLASSES or TXQ_SHOW_FILTERS) to `buffer`, as tc prints
 * them with the `flags` TXQ_SHOW_JSON, TXQ_SHOW_STATS and TXQ_SHOW_DETAILS. `parent` names the qdisc or class whose filters
 * are shown, such as "1:"; NULL for the root's, and for qdiscs and classes. At most `n` bytes are written, with the NUL.
 * Returns the length of the whole text without the NUL, as snprintf does: the text is cut if that is `n` or more. `buffer` may
 * be NULL if `n` is 0.
 *
 * Threads: the one that uses the scheduler.
 */
int64_t txq_sched_show(struct txq_sched *sched,
                       uint32_t what,
                       const char *parent,
                       uint32_t flags,
                       char *buffer,
                       size_t n);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TXQ_H */
