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
 * The priority that names the class MAJOR:MINOR. tc writes both numbers in hexadecimal: 1:10 is TXQ_CLASS(1, 0x10).
 */
#define TXQ_CLASS(major, minor) (((uint32_t)(major) << 16) | ((uint32_t)(minor) & 0xffffu))

/**
 * Show the counters of a device, its txqs and its senders. For `txq_dev_show` only.
 */
#define TXQ_SHOW_REPORT 3

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
#define TXQ_ABI 2

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
 * A filter of the egress hook dropped it (clsact).
 */
#define TXQ_DROP_TC_EGRESS 20

/**
 * A filter of the ingress hook dropped it (ingress, clsact).
 */
#define TXQ_DROP_TC_INGRESS 21

/**
 * The receive buffer of its socket was full.
 */
#define TXQ_DROP_SOCKET_RCVBUFF 22

/**
 * A header begins with an Ethernet header.
 */
#define TXQ_LINK_ETHERNET 0

/**
 * A header begins with an IP header.
 */
#define TXQ_LINK_IP 1

/**
 * The device has accepted the packets. Only counters show a later drop.
 */
#define TXQ_SUCCESS 0

/**
 * The device has accepted some packets, or dropped others to make room.
 */
#define TXQ_CONGESTED 1

/**
 * The device has dropped all packets.
 */
#define TXQ_DROPPED 2

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
 * A device with its worker threads.
 */
typedef struct txq_dev txq_dev;

/**
 * The configuration of a device that is not started yet.
 */
typedef struct txq_dev_config txq_dev_config;

/**
 * A flow whose packets stay in order whichever sender sends them.
 */
typedef struct txq_flow txq_flow;

/**
 * A tree of qdiscs over the program's own buffers, without threads, sockets or a clock.
 */
typedef struct txq_sched txq_sched;

/**
 * A thread's handle on a device, with a stock of buffers of its own.
 */
typedef struct txq_sender txq_sender;

/**
 * A socket at which `txq tc`, `txq dev`, `txq contention` and `txq hist` reach devices of the program, and `txq tc` its schedulers.
 */
typedef struct txq_server txq_server;

/**
 * A frame that a custom device sends.
 */
typedef struct txq_frame {
    /**
     * sizeof(struct txq_frame).
     */
    uint32_t size;
    /**
     * The number of bytes at `data`.
     */
    uint32_t len;
    /**
     * The frame's bytes. They stay until the frame is complete; without a ring, until `start_xmit` returns.
     */
    const uint8_t *data;
    /**
     * The number for `txq_dev_complete`; 0 without a ring.
     */
    uint64_t token;
    /**
     * The earliest departure time on the clock of `txq_now`; 0 for at once.
     */
    uint64_t departure;
    /**
     * The priority that the sender gave the packet, or a filter.
     */
    uint32_t priority;
    /**
     * The mark that the sender gave the packet.
     */
    uint32_t mark;
    /**
     * The flow's hash; 0 if it is not known.
     */
    uint32_t hash;
    /**
     * Always 0.
     */
    uint32_t reserved;
} txq_frame;

/**
 * A device by callbacks. Each callback may run on any thread of the program that sends, and on the device's worker threads;
 * one at a time for a txq. A callback must return, and must not wait. It may call `txq_dev_complete`, and `txq_xmit` and
 * `txq_send` for other devices; all other functions of devices fail in it with TXQ_E_BUSY or TXQ_E_PANIC.
 */
typedef struct txq_driver {
    /**
     * sizeof(struct txq_driver).
     */
    uint32_t size;
    /**
     * The number of txqs, up to 65535; 0 counts as 1.
     */
    uint32_t txqs;
    /**
     * The longest packet without its link-layer header, in bytes; 0 counts as 1500.
     */
    uint32_t mtu;
    /**
     * What packets begin with: TXQ_LINK_ETHERNET or TXQ_LINK_IP.
     */
    uint32_t link;
    /**
     * How many frames each txq of the device keeps at a time, until `txq_dev_complete`; 0 if a frame that `start_xmit` takes
     * is complete when it returns.
     */
    uint32_t ring;
    /**
     * Always 0.
     */
    uint32_t reserved;
    /**
     * The device's name, in reports and in tc's output; NULL counts as "custom".
     */
    const char *name;
    /**
     * The first argument of the callbacks.
     */
    void *context;
    /**
     * Takes frames, from the front; returns how many. The others are offered again: after `*retry_ns` nanoseconds, if the
     * callback sets that, or after a completion, or soon. `n` is 64 at most. Must not be NULL.
     */
    size_t (*start_xmit)(void *context,
                         uint32_t txq,
                         const struct txq_frame *frames,
                         size_t n,
                         uint64_t *retry_ns);
    /**
     * Ends the transmission of a txq; returns 0, or an errno. May be NULL.
     */
    int32_t (*finish)(void *context, uint32_t txq);
    /**
     * Called once, when no callback follows: the device and its senders are freed, or the device did not start. May be
     * NULL.
     */
    void (*release)(void *context);
} txq_driver;

/**
 * Memory of the program for a device's packets: a card's, another library's, or memory shared with another process.
 */
typedef struct txq_memory {
    /**
     * sizeof(struct txq_memory).
     */
    uint32_t size;
    /**
     * Always 0.
     */
    uint32_t reserved;
    /**
     * The first byte. All bytes must be initialised.
     */
    void *base;
    /**
     * The number of bytes.
     */
    size_t len;
    /**
     * The distance between the starts of two packets' buffers, in bytes; 0 to let the library choose. The key buffers says how
     * many there are.
     */
    size_t stride;
    /**
     * Called with `context` when the library no longer uses the memory: the device, its senders and all packets are gone, or
     * the device did not start. May be NULL. Never called if packets are never completed.
     */
    void (*release)(void *context);
    /**
     * The argument of `release`.
     */
    void *context;
} txq_memory;

/**
 * The counters of a device. `accepted + created = sent + dropped + queued` at any time.
 */
typedef struct txq_dev_stats {
    /**
     * sizeof(struct txq_dev_stats).
     */
    uint32_t size;
    /**
     * Always 0.
     */
    uint32_t reserved;
    /**
     * Packets handed in.
     */
    uint64_t accepted;
    /**
     * Packets that qdiscs created: copies and segments.
     */
    uint64_t created;
    /**
     * Packets that the device took and did not drop.
     */
    uint64_t sent;
    /**
     * Their bytes.
     */
    uint64_t bytes_sent;
    /**
     * Packets dropped.
     */
    uint64_t dropped;
    /**
     * Packets on their way to the device.
     */
    uint64_t queued;
    /**
     * Packets sent that the device still keeps.
     */
    uint64_t in_flight;
    /**
     * How often the device refused packets.
     */
    uint64_t requeues;
    /**
     * How often the callbacks of a custom device broke a rule: a `start_xmit` that returned more than it got, or did not take a
     * frame that was completed.
     */
    uint64_t misuses;
} txq_dev_stats;

/**
 * The configuration of a scheduler. 0 in a field means the default.
 */
typedef struct txq_sched_config {
    /**
     * sizeof(struct txq_sched_config).
     */
    uint32_t size;
    /**
     * The most packets that are queued at a time, whatever the limits of the qdiscs; 1048576 by default. Further ones are dropped
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
 * A packet to enqueue: the address of the program's own buffer, or another number for it, and what qdiscs and filters need to
 * know of it. Set all fields; a struct of zeros with `size`, `len` and `value` is a packet.
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
     * The program's value, which dequeue and drops return: a pointer of C as `(uintptr_t)buffer`, or any other number, such as
     * a handle of Go's `cgo.NewHandle`. The library only returns it.
     */
    uintptr_t value;
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
     * The priority: a band, or a class, as TXQ_CLASS(1, 0x10) for 1:10.
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
    uintptr_t value;
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
    uintptr_t value;
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

/**
 * A packet that a sender has allocated, and what the device needs to know of it.
 */
typedef struct txq_packet {
    /**
     * sizeof(struct txq_packet). Set by the program in the first element of an array.
     */
    uint32_t size;
    /**
     * The packet's length. The program may make it smaller; `txq_packet_put` makes it larger.
     */
    uint32_t len;
    /**
     * The bytes to fill; what they hold before is undefined. They are the program's until the packet is sent or discarded.
     */
    uint8_t *data;
    /**
     * The packet's number. The program must not change it.
     */
    uint64_t id;
    /**
     * The earliest departure time on the clock of `txq_now`; 0 for as soon as possible.
     */
    uint64_t departure;
    /**
     * The priority: a band, or a class, as TXQ_CLASS(1, 0x10) for 1:10.
     */
    uint32_t priority;
    /**
     * The mark that fw filters match.
     */
    uint32_t mark;
    /**
     * The flow's hash; 0 to hash the packet's headers.
     */
    uint32_t hash;
    /**
     * The type of service of a packet of a udp: device (DSCP and ECN), up to 255; other devices ignore it.
     */
    uint32_t tos;
    /**
     * The payload bytes of each segment, if the packet is to be cut; 0 if not.
     */
    uint32_t gso_size;
    /**
     * The number of segments that the packet is cut into; 0 and 1 for none.
     */
    uint32_t segments;
} txq_packet;

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/**
 * Begins a device: null, pcap:FILE, af_packet:IFACE, af_xdp:IFACE, tap:NAME, tun:NAME or udp:ADDRESS:PORT. NULL begins one that
 * `txq_dev_config_driver` describes. Packets of a udp: device are payloads; the library writes their IP and UDP headers.
 * Returns NULL for an error; a name is checked when the device starts.
 *
 * Threads: any. One thread at a time uses a configuration.
 */
struct txq_dev_config *txq_dev_config_new(const char *device);

/**
 * Frees a configuration that was not started; NULL is allowed. Returns 0.
 *
 * Threads: the one that uses the configuration.
 */
int32_t txq_dev_config_free(struct txq_dev_config *config);

/**
 * Sets a key of the configuration. Values are checked at once, texts of qdiscs when the device starts. Returns 0.
 *
 * - txqs: number of txqs; 1 by default, for a custom device all
 * - qdisc: the root qdisc in tc's words: "handle 1: htb default 10"
 * - default_qdisc: the kind of qdisc that mq gives each txq
 * - discipline: how senders reach a qdisc: combine (default), llist, lockless, busylock or spinlock
 * - xps: auto (default), a txq for each CPU by the machine's caches; or none, by the flow's hash
 * - workers: worker threads; 1 by default
 * - tx_queue_len: the default limit of qdiscs, in packets
 * - max_burst: packets that wait for a queue's owner, at most
 * - spin_us: how long before a packet's time a worker polls the clock, in microseconds
 * - watchdog_ms: how long a txq may be stopped until that is counted, in milliseconds; 0 for ever
 * - reselection_ms: how long a busy flow stays on its txq at most, in milliseconds; 0 for ever
 * - buffers: packets that exist at a time; 4096 by default
 * - max_buffers: buffers that the pool may grow to
 * - room: the longest packet, in bytes; 1920 by default
 * - headroom: bytes in front of a new packet; 128 by default, which a udp: device needs
 * - tailroom: bytes behind a packet that is as long as room, for `txq_packet_put`; 0 by default
 * - defer_max: buffers that wait for their sender, at most
 * - ring: null: packets on each txq's ring
 * - rate_bps: null: the rate of each txq's link, in bits a second
 * - delay_us: null: from the wire to the completion, in microseconds
 * - link: null and pcap: ethernet (default) or ip
 *
 * Threads: the one that uses the configuration.
 */
int32_t txq_dev_config_set(struct txq_dev_config *config,
                           const char *key,
                           const char *value);

/**
 * Sets a device of the program's own, whose functions are callbacks. Returns 0. After an error, `release` is not called.
 *
 * Threads: the one that uses the configuration.
 */
int32_t txq_dev_config_driver(struct txq_dev_config *config,
                              const struct txq_driver *driver);

/**
 * Puts the device's packets into memory of the program. Until `memory.release` is called, only the device's senders and the
 * device access it. Returns 0. After an error, `release` is not called.
 *
 * Threads: the one that uses the configuration.
 */
int32_t txq_dev_config_memory(struct txq_dev_config *config,
                              const struct txq_memory *memory);

/**
 * Opens a control socket: `place` is a name, as `txq ls` lists it and `txq tc --name` takes it, or a path with a `/`. Its user and
 * root may use it. Returns NULL for an error.
 *
 * Threads: any.
 */
struct txq_server *txq_server_new(const char *place);

/**
 * Serves a device at the socket, until the device is shut down or freed. Each device of a socket has a name of its own. Returns 0.
 *
 * Threads: one at a time for the server. Not in a callback.
 */
int32_t txq_server_add(struct txq_server *server,
                       struct txq_dev *dev);

/**
 * Serves a scheduler at the socket as the device `name`, until the scheduler or the server is freed: `txq tc qdisc show dev NAME`
 * shows it. A scheduler has one owner at a time, so commands wait until the owner calls `txq_sched_control_poll`. A command fails if
 * that takes more than 5 s. A second call serves the scheduler at the other socket, and no longer at the first one. Returns 0.
 *
 * Threads: one at a time for the server; the one that uses the scheduler.
 */
int32_t txq_server_add_sched(struct txq_server *server,
                             struct txq_sched *sched,
                             const char *name);

/**
 * Returns the descriptor that is readable while commands wait for `txq_sched_control_poll`, for poll and epoll. It belongs to the
 * scheduler and must not be closed. TXQ_E_INVALID if no server serves the scheduler.
 *
 * Threads: the one that uses the scheduler.
 */
int32_t txq_sched_control_fd(struct txq_sched *sched);

/**
 * Executes the commands that wait for the owner of the scheduler, at the time `now`; does not wait. Returns how many it has
 * executed; a command line may take several. Packets that a command drops are in `txq_sched_dropped`. TXQ_E_INVALID if no server
 * serves the scheduler.
 *
 * Threads: the one that uses the scheduler.
 */
int64_t txq_sched_control_poll(struct txq_sched *sched,
                               uint64_t now);

/**
 * Writes the path of the socket, as `txq_sched_show` writes texts.
 *
 * Threads: one at a time for the server.
 */
int64_t txq_server_path(struct txq_server *server, char *buffer, size_t n);

/**
 * Closes a socket and frees the server; NULL is allowed. Waits for the commands that run. Returns 0.
 *
 * Threads: one at a time for the server. Not in a callback.
 */
int32_t txq_server_free(struct txq_server *server);

/**
 * Starts a device and its worker threads. Frees `config` in any case. Returns NULL for an error.
 *
 * Threads: the one that uses the configuration. All threads may use the device at the same time.
 */
struct txq_dev *txq_dev_start(struct txq_dev_config *config);

/**
 * Shuts a device down and frees it; NULL is allowed. Queued packets are dropped: call `txq_dev_drain` before. Senders of the
 * device stay valid and drop what they are given; free them, too. Returns 0, or an error of the device; it is freed anyway,
 * except for TXQ_E_FORKED, TXQ_E_BUSY and TXQ_E_INVALID.
 *
 * Threads: any, while no other thread uses the device. Not in a callback.
 */
int32_t txq_dev_free(struct txq_dev *dev);

/**
 * Ends all sending: queued packets are dropped as QUEUE_PURGE, and so are all packets handed in afterwards. Waits for other
 * calls with the device. Returns 0, or the first error of the device, which is shut down anyway.
 *
 * Threads: any. Not in a callback.
 */
int32_t txq_dev_shutdown(struct txq_dev *dev);

/**
 * Waits until no packet is queued and the device keeps none, for at most `timeout_ns` nanoseconds. Returns 1 if so, else 0.
 *
 * Threads: any. Not in a callback.
 */
int32_t txq_dev_drain(struct txq_dev *dev,
                      uint64_t timeout_ns);

/**
 * Takes the device up (`up` is not 0) or down. While it is down, packets are dropped as QDISC_DROP. Returns 0.
 *
 * Threads: any. Not in a callback.
 */
int32_t txq_dev_set_up(struct txq_dev *dev,
                       int32_t up);

/**
 * Completes frames that a custom device with a ring has sent: their memory is the library's again. `tokens` are those of the
 * frames. Returns how many of them named a frame that the txq of the device kept. The txq notices the completions when a packet is sent,
 * and after 1 ms at most.
 *
 * Threads: any, also in callbacks, and several at a time.
 */
int64_t txq_dev_complete(struct txq_dev *dev,
                         uint32_t txq,
                         const uint64_t *tokens,
                         size_t n);

/**
 * Executes one command in tc's words on a running device: "qdisc replace root fq_codel", "class add parent 1: classid 1:10 htb
 * rate 1mbit", "filter add parent 1: handle 7 fw classid 1:10". The verbs are add, change, replace and del; a leading "tc"
 * makes no difference, and a "dev NAME" must name this device. Returns 0, or 1 if tc would warn; `txq_last_error` then returns the warning.
 *
 * Threads: any. Not in a callback.
 */
int32_t txq_dev_tc(struct txq_dev *dev,
                   const char *command);

/**
 * Executes the commands of `commands` on a running device, one a line, as `txq_dev_tc` does. Empty lines and lines that begin
 * with # are skipped. Returns 0, or 1 if tc would warn; `txq_last_error` then returns the warnings, one a line. The first error
 * ends the batch and names its line; the commands before it have been executed.
 *
 * Threads: any. Not in a callback.
 */
int32_t txq_dev_tc_batch(struct txq_dev *dev,
                         const char *commands);

/**
 * Writes the counters to `stats`, whose `size` must be set. Returns 0.
 *
 * Threads: any. Not in a callback.
 */
int32_t txq_dev_get_stats(struct txq_dev *dev, struct txq_dev_stats *stats);

/**
 * Checks that the counters add up: no packet is missing or counted twice. Returns 0, or TXQ_E_AUDIT.
 *
 * Threads: any. Not in a callback.
 */
int32_t txq_dev_audit(struct txq_dev *dev);

/**
 * As `txq_sched_show`, for a device. TXQ_SHOW_REPORT writes the counters of the device, of its txqs and of its senders, and the
 * drops by reason.
 *
 * Threads: any. Not in a callback.
 */
int64_t txq_dev_show(struct txq_dev *dev,
                     uint32_t what,
                     const char *parent,
                     uint32_t flags,
                     char *buffer,
                     size_t n);

/**
 * Returns the time on the clock of departure times, in nanoseconds (CLOCK_MONOTONIC).
 *
 * Threads: any.
 */
uint64_t txq_now(void);

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
 * packets. The copies of netem's duplicate are dropped as NOMEM, because each value exists once.
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
 * Executes the commands of `commands` at the time `now`, one a line, as `txq_sched_tc` does. Empty lines and lines that begin
 * with # are skipped. Returns 0, or 1 if tc would warn; `txq_last_error` then returns the warnings, one a line. The first error
 * ends the batch and names its line; the commands before it have been executed. Packets that the commands drop are in
 * `txq_sched_dropped`.
 *
 * Threads: the one that uses the scheduler.
 */
int32_t txq_sched_tc_batch(struct txq_sched *sched,
                           uint64_t now,
                           const char *commands);

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

/**
 * Creates a sender of a device; `name` is its name in reports. Returns NULL for an error.
 *
 * Threads: any; not in a callback. One thread at a time uses a sender; it may be another one at each call. For speed, give
 * each thread a sender of its own.
 */
struct txq_sender *txq_sender_new(struct txq_dev *dev,
                                  const char *name);

/**
 * Frees a sender; NULL is allowed. Packets that it has sent stay on their way; packets that the program still fills are freed.
 * Returns 0.
 *
 * Threads: any, while no other thread uses the sender; also after the thread that used it has ended, and after the device was
 * freed.
 */
int32_t txq_sender_free(struct txq_sender *sender);

/**
 * Allocates up to `n` packets of `len` bytes for the program to fill. Writes them to `packets`, whose first element's `size`
 * must be set. All other fields are written, those after `id` with 0. Returns how many, at least 1, or TXQ_E_NO_BUFFER or
 * TXQ_E_LIMIT. Each packet must be given to `txq_xmit` or `txq_sender_discard`.
 *
 * Threads: the one that uses the sender.
 */
int64_t txq_sender_alloc(struct txq_sender *sender,
                         struct txq_packet *packets,
                         size_t n,
                         size_t len);

/**
 * Sends `n` packets of `txq_sender_alloc`, in order within each flow. Returns TXQ_SUCCESS, TXQ_CONGESTED or TXQ_DROPPED; the
 * library has the packets in any of these cases. An error has taken none.
 *
 * Threads: the one that uses the sender.
 */
int32_t txq_xmit(struct txq_sender *sender,
                 const struct txq_packet *packets,
                 size_t n);

/**
 * As `txq_xmit`, for packets of one flow: they stay in order with all earlier packets of the flow, also those that other
 * senders have sent.
 *
 * Threads: the one that uses the sender; the flow may be used by one thread at a time.
 */
int32_t txq_xmit_on(struct txq_sender *sender,
                    struct txq_flow *flow,
                    const struct txq_packet *packets,
                    size_t n);

/**
 * Frees packets of `txq_sender_alloc` without sending them. Returns 0.
 *
 * Threads: the one that uses the sender.
 */
int32_t txq_sender_discard(struct txq_sender *sender, const struct txq_packet *packets, size_t n);

/**
 * Sends a copy of `len` bytes as one packet. Returns TXQ_SUCCESS, TXQ_CONGESTED or TXQ_DROPPED, or an error such as
 * TXQ_E_NO_BUFFER, which has sent nothing.
 *
 * Threads: the one that uses the sender.
 */
int32_t txq_send(struct txq_sender *sender,
                 const uint8_t *data,
                 size_t len);

/**
 * Limits the packets that the sender may have on their way (SO_SNDBUF, counted in packets). At the limit, allocation fails
 * with TXQ_E_LIMIT. Returns 0.
 *
 * Threads: the one that uses the sender.
 */
int32_t txq_sender_set_limit(struct txq_sender *sender,
                             uint64_t packets);

/**
 * Returns how many packets of the sender are known to be dropped so far.
 *
 * Threads: the one that uses the sender.
 */
int64_t txq_sender_dropped(struct txq_sender *sender);

/**
 * Creates a flow, for programs that serve many connections on one thread, or hand them from thread to thread. Returns NULL for
 * an error.
 *
 * Threads: any. One thread at a time uses a flow.
 */
struct txq_flow *txq_flow_new(void);

/**
 * Frees a flow; NULL is allowed. Its packets stay on their way. Returns 0.
 *
 * Threads: the one that uses the flow.
 */
int32_t txq_flow_free(struct txq_flow *flow);

/**
 * Returns how many packets of the flow were handed in and are neither dropped nor completed yet.
 *
 * Threads: the one that uses the flow.
 */
int64_t txq_flow_outstanding(struct txq_flow *flow);

/**
 * Sleeps until the queue that the sender's packets go to has room, for at most `timeout_ns` nanoseconds and at most 1 s. Call
 * it before `txq_xmit`, to wait instead of losing packets. Returns 1 if there is room, 0 if the time has passed, TXQ_E_DOWN or
 * TXQ_E_GONE.
 *
 * Threads: the one that uses the sender. Not in a callback.
 */
int32_t txq_sender_wait_room(struct txq_sender *sender,
                             uint64_t timeout_ns);

/**
 * Returns the descriptor that becomes readable when there is room, for poll and epoll. It belongs to the sender and must not be
 * closed.
 *
 * Threads: the one that uses the sender.
 */
int32_t txq_sender_room_fd(struct txq_sender *sender);

/**
 * As `txq_sender_wait_room` without sleeping. If there is no room, it returns 0 and makes the descriptor of
 * `txq_sender_room_fd` readable once there is. Call it when the descriptor is readable, and after 1 s in any case.
 *
 * Threads: the one that uses the sender. Not in a callback.
 */
int32_t txq_sender_poll_room(struct txq_sender *sender);

/**
 * Sleeps until the sender's limit allows an allocation, for at most `timeout_ns` nanoseconds. Returns 1 if it does, else 0.
 *
 * Threads: the one that uses the sender. Not in a callback.
 */
int32_t txq_sender_wait_credit(struct txq_sender *sender,
                               uint64_t timeout_ns);

/**
 * Returns the number of bytes that `txq_packet_put` can append to a packet of `txq_sender_alloc`: what its `len` is shorter than
 * the longest packet (the key room), and the key tailroom. It may be up to 127 bytes more, because buffers are whole cache lines.
 *
 * Threads: the one that uses the sender.
 */
int64_t txq_packet_tailroom(struct txq_sender *sender,
                            const struct txq_packet *packet);

/**
 * Grows a packet of `txq_sender_alloc` at its end by `n` bytes (`skb_put`): adds `n` to its `len`, and returns the first of the
 * new bytes, which are the program's to fill and undefined before. `data` does not change. Returns NULL if `n` is more than
 * `txq_packet_tailroom`, and for an error.
 *
 * Threads: the one that uses the sender.
 */
uint8_t *txq_packet_put(struct txq_sender *sender,
                        struct txq_packet *packet,
                        size_t n);

#ifdef __cplusplus
}  /* extern "C" */
#endif  /* __cplusplus */

#endif  /* TXQ_H */
