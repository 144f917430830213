/*
 * Threads that share finite links as DPDK programs share the tx queues of a port: a lock for each queue around
 * rte_eth_tx_burst, packets from a mempool, and mbufs freed by the next thread that sends on the queue. Written from DPDK's
 * API documentation. There is no qdisc: a packet that finds the ring full is dropped.
 *
 *   links EAL-ARGUMENTS -- LOCK LINKS BITS RING CREDIT THREADS BATCH MS
 *
 * LOCK is `spin`, rte_spinlock_lock; or `yield`, where a thread that finds the lock taken gives its CPU away.
 *
 * The links are those of `txq bench overload --rate`: a packet of 1500 bytes takes 24 bytes more on the wire, and completes
 * when the wire has sent it. Each thread sends to all links in turn. All threads together have THREADS times CREDIT mbufs
 * outside of their caches.
 *
 * The main lcore only watches. It prints one JSON object and exits without waiting for anybody.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_spinlock.h>

#include "dpdk.h"

#define LENGTH 1500    /* bytes of a packet */
#define WIRE 24        /* and what the wire adds */
#define CACHE 32       /* of each lcore's mempool cache, which may hold half as much again */
#define BURST 64       /* mbufs that are freed at a time */
#define MAX_BATCH 512

/* A tx queue and the link behind it. All but `sent` is accessed under the lock. */
struct link {
	rte_spinlock_t lock;
	uint32_t head, tail; /* packets handed over, and completed */
	uint64_t wire_free;  /* when the wire has sent all of them */
	volatile uint64_t sent;
	struct slot {
		struct rte_mbuf *packet;
		uint64_t at; /* when it completes */
	} *ring;
} __rte_cache_aligned;

static struct link *links;
static struct rte_mempool *pool;
static unsigned count, size, batch;
static int yields;
static uint64_t packet_cycles;

static void take(struct link *link)
{
	if (!yields)
		rte_spinlock_lock(&link->lock);
	else
		while (!rte_spinlock_trylock(&link->lock))
			sched_yield();
}

/* Frees what the wire has sent. The caller has the lock. */
static void complete(struct link *link, uint64_t now)
{
	struct rte_mbuf *done[BURST];
	unsigned n;
	do {
		for (n = 0; n < BURST && link->tail != link->head; n++) {
			struct slot *slot = &link->ring[link->tail % size];
			if (slot->at > now)
				break;
			done[n] = slot->packet;
			link->tail++;
		}
		if (n > 0) {
			rte_pktmbuf_free_bulk(done, n);
			link->sent += n;
		}
	} while (n == BURST);
}

/* rte_eth_tx_burst of a driver that frees completed packets first. Returns how many packets it took. */
static unsigned tx_burst(struct link *link, struct rte_mbuf **packets, unsigned n)
{
	uint64_t now = rte_rdtsc();
	unsigned i;
	complete(link, now);
	for (i = 0; i < n && link->head - link->tail < size; i++) {
		struct slot *slot = &link->ring[link->head++ % size];
		link->wire_free = RTE_MAX(link->wire_free, now) + packet_cycles;
		slot->packet = packets[i];
		slot->at = link->wire_free;
	}
	return i;
}

/* Frees what all links have sent, as rte_eth_tx_done_cleanup does. */
static void clean_up(void)
{
	for (unsigned i = 0; i < count; i++) {
		if (rte_spinlock_trylock(&links[i].lock)) {
			complete(&links[i], rte_rdtsc());
			rte_spinlock_unlock(&links[i].lock);
		}
	}
}

static int work(void *unused)
{
	struct rte_mbuf *packets[MAX_BATCH];
	(void)unused;
	for (unsigned next = 0;; next = (next + 1) % count) {
		while (rte_pktmbuf_alloc_bulk(pool, packets, batch) != 0) {
			clean_up();
			sched_yield();
		}
		for (unsigned i = 0; i < batch; i++)
			packets[i]->data_len = packets[i]->pkt_len = LENGTH;
		struct link *link = &links[next];
		take(link);
		unsigned done = tx_burst(link, packets, batch);
		rte_spinlock_unlock(&link->lock);
		if (done < batch)
			rte_pktmbuf_free_bulk(packets + done, batch - done);
	}
	return 0;
}

static uint64_t sent(void)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < count; i++)
		sum += links[i].sent;
	return sum;
}

int main(int argc, char **argv)
{
	start(&argc, &argv);
	if (argc != 9)
		return 2;
	yields = strcmp(argv[1], "yield") == 0;
	count = atoi(argv[2]);
	double bits = atof(argv[3]);
	size = atoi(argv[4]);
	unsigned credit = atoi(argv[5]), threads = atoi(argv[6]), ms = atoi(argv[8]);
	batch = atoi(argv[7]);
	if (count < 1 || size < 1 || bits < 1 || batch < 1 || batch > MAX_BATCH || rte_lcore_count() < threads + 1)
		return 2;

	packet_cycles = rte_get_tsc_hz() * (LENGTH + WIRE) * 8.0 / bits;
	pool = rte_pktmbuf_pool_create("packets", threads * (credit + CACHE + CACHE / 2), CACHE, 0,
				       RTE_PKTMBUF_HEADROOM + LENGTH, SOCKET_ID_ANY);
	links = aligned_alloc(RTE_CACHE_LINE_SIZE, count * sizeof(*links));
	if (pool == NULL || links == NULL)
		die("no memory");
	memset(links, 0, count * sizeof(*links));
	for (unsigned i = 0; i < count; i++) {
		rte_spinlock_init(&links[i].lock);
		links[i].ring = calloc(size, sizeof(*links[i].ring));
		if (links[i].ring == NULL)
			die("no memory");
	}
	for (unsigned i = 1; i <= threads; i++)
		if (rte_eal_remote_launch(work, NULL, i) != 0)
			die("an lcore does not start");

	usleep(RTE_MIN(ms / 8, 50u) * 1000);
	uint64_t begin = time_of(CLOCK_MONOTONIC), cpu = time_of(CLOCK_PROCESS_CPUTIME_ID), first = sent();
	uint64_t t = begin, last = first, last_at = begin, stall = 0;
	while (t - begin < (uint64_t)ms * 1000000) {
		usleep(1000);
		t = time_of(CLOCK_MONOTONIC);
		uint64_t now = sent();
		if (now != last) {
			last = now;
			last_at = t;
		}
		stall = RTE_MAX(stall, t - last_at);
	}
	cpu = time_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("{\"packets\":%" PRIu64 ",\"wall_ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 ",\"stall_ns\":%" PRIu64
	       ",\"xmit_ns\":0,\"p99_ns\":-1}\n",
	       last - first, t - begin, cpu, stall);
	fflush(stdout);
	_exit(0);
}
