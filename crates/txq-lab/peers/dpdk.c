/*
 * What DPDK's rings and mempools cost, in the shapes that `txq bench peers` measures for txq. Written from DPDK's API
 * documentation; it sends nothing, so what is measured is the hand-over and the memory alone.
 *
 *   dpdk EAL-ARGUMENTS -- queue RING THREADS BATCH MS         threads enqueue bulks of pointers, one more thread drains
 *   dpdk EAL-ARGUMENTS -- core OBJECT BATCH MS                one thread: get, MP enqueue, dequeue, put
 *   dpdk EAL-ARGUMENTS -- cross OBJECT BATCH MS               the same, get and enqueue on lcore 1, the rest on lcore 2
 *   dpdk EAL-ARGUMENTS -- free OBJECT BATCH MS                get on lcore 1, put on lcore 2, only the put timed
 *
 * RING is mp, rts or hts, or one of them with -spin: then a thread that finds the ring full or empty spins, as polling
 * programs do, where it else gives its CPU away.
 *
 * OBJECT is what is got and put: `raw`, a mempool's objects, whose memory nobody touches; or `mbuf`, packets made ready and
 * given a length, freed as packets are.
 *
 * The main lcore only watches. It looks at the counters every millisecond, prints one JSON object and exits without
 * waiting for anybody: a thread may be inside of a ring for seconds.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_pause.h>
#include <rte_ring.h>

#include "dpdk.h"

#define RING 1024      /* as many as the device of txq's rows keeps */
#define POOL 8191      /* packets of the mempool */
#define CACHE 256      /* of each lcore's mempool cache */
#define OBJECT 256     /* bytes of a packet */
#define LENGTH 120     /* bytes of it in use */
#define MAX_BATCH 1024
#define SAMPLED 61     /* one call in so many is timed */
#define SAMPLES 65536  /* and so many times are kept */

enum shape { QUEUE, CORE, CROSS, FREE };

/* One thread's numbers. The thread writes, the main lcore reads. */
struct thread {
	volatile uint64_t packets; /* that left the queue, or were freed */
	volatile uint64_t calls;   /* of enqueue; odd inside of one */
	volatile uint64_t free_ns; /* in `put` */
	volatile uint32_t samples;
	uint32_t *sample;
} __rte_cache_aligned;

static struct thread threads[RTE_MAX_LCORE];
static enum shape shape;
static int mbufs, spins;
static unsigned batch;
static struct rte_ring *ring;
static struct rte_mempool *pool;
static uint64_t clock_ns; /* what reading the clock takes */

static uint64_t now(void)
{
	return time_of(CLOCK_MONOTONIC);
}

static uint64_t cpu_time(void)
{
	return time_of(CLOCK_PROCESS_CPUTIME_ID);
}

static inline void wait_a_bit(void)
{
	if (spins)
		rte_pause();
	else
		sched_yield();
}

static int get(void **objects)
{
	if (!mbufs)
		return rte_mempool_get_bulk(pool, objects, batch);
	struct rte_mbuf **packets = (struct rte_mbuf **)objects;
	if (rte_pktmbuf_alloc_bulk(pool, packets, batch) != 0)
		return -1;
	for (unsigned i = 0; i < batch; i++)
		packets[i]->data_len = packets[i]->pkt_len = LENGTH;
	return 0;
}

static void put(void **objects, unsigned n)
{
	if (mbufs)
		rte_pktmbuf_free_bulk((struct rte_mbuf **)objects, n);
	else
		rte_mempool_put_bulk(pool, objects, n);
}

/* Enqueues all of a bulk, and waits while there is no room. */
static void enqueue(struct thread *self, void **objects, uint32_t *until_sample)
{
	unsigned done;
	do {
		int timed = --*until_sample == 0;
		uint64_t start = timed ? now() : 0;
		self->calls++;
		done = rte_ring_enqueue_bulk(ring, objects, batch, NULL);
		self->calls++;
		if (timed) {
			*until_sample = SAMPLED;
			if (self->samples < SAMPLES) {
				self->sample[self->samples] = RTE_MIN(now() - start, (uint64_t)UINT32_MAX);
				self->samples++;
			}
		}
		if (done == 0)
			wait_a_bit();
	} while (done == 0);
}

static int produce(void *argument)
{
	struct thread *self = argument;
	void *objects[MAX_BATCH];
	uint32_t until_sample = SAMPLED;

	memset(objects, 0, sizeof(objects));
	for (;;) {
		if (shape != QUEUE)
			while (get(objects) != 0)
				wait_a_bit();
		enqueue(self, objects, &until_sample);
	}
	return 0;
}

static int consume(void *argument)
{
	struct thread *self = argument;
	void *objects[MAX_BATCH];
	/* What a queue's owner takes at a time, unless the shape says how many belong together. */
	unsigned most = shape == QUEUE ? 64 : batch;

	for (;;) {
		unsigned n = rte_ring_dequeue_burst(ring, objects, most, NULL);
		if (n == 0) {
			wait_a_bit();
			continue;
		}
		if (shape == FREE) {
			uint64_t start = now();
			put(objects, n);
			uint64_t took = now() - start;
			self->free_ns += took > clock_ns ? took - clock_ns : 0;
		} else if (shape == CROSS) {
			put(objects, n);
		}
		self->packets += n;
	}
	return 0;
}

static int one_core(void *argument)
{
	struct thread *self = argument;
	void *objects[MAX_BATCH];

	for (;;) {
		if (get(objects) != 0)
			die("the mempool is empty");
		rte_ring_enqueue_bulk(ring, objects, batch, NULL);
		rte_ring_dequeue_bulk(ring, objects, batch, NULL);
		put(objects, batch);
		self->packets += batch;
	}
	return 0;
}

static uint64_t sum(size_t offset)
{
	uint64_t total = 0;
	for (unsigned i = 0; i < RTE_MAX_LCORE; i++)
		total += *(volatile uint64_t *)((char *)&threads[i] + offset);
	return total;
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

/* The 99th percentile of all times, -1 without any; and the longest. */
static int64_t p99(uint64_t *longest)
{
	size_t count = 0, at = 0;
	for (unsigned i = 0; i < RTE_MAX_LCORE; i++)
		count += threads[i].samples;
	uint32_t *all = malloc((count + 1) * sizeof(*all));
	if (count == 0 || all == NULL)
		return -1;
	for (unsigned i = 0; i < RTE_MAX_LCORE && at < count; i++) {
		size_t n = RTE_MIN((size_t)threads[i].samples, count - at);
		memcpy(all + at, threads[i].sample, n * sizeof(*all));
		at += n;
	}
	qsort(all, at, sizeof(*all), by_size);
	*longest = RTE_MAX(*longest, (uint64_t)all[at - 1]);
	return all[at * 99 / 100];
}

static void launch(lcore_function_t *work, unsigned lcore)
{
	threads[lcore].sample = malloc(SAMPLES * sizeof(uint32_t));
	if (threads[lcore].sample == NULL || rte_eal_remote_launch(work, &threads[lcore], lcore) != 0)
		die("an lcore does not start");
}

/* Looks every millisecond for `ms`, and prints what was seen. */
static void watch(unsigned ms)
{
	const size_t packets = offsetof(struct thread, packets);
	static uint64_t value[RTE_MAX_LCORE], since[RTE_MAX_LCORE];
	uint64_t stall = 0, inside = 0, t = now();
	uint64_t start = t, cpu = cpu_time(), first = sum(packets), last = first, last_at = t;
	uint64_t freed = sum(offsetof(struct thread, free_ns));

	for (unsigned i = 0; i < RTE_MAX_LCORE; i++) {
		value[i] = threads[i].calls;
		since[i] = t;
	}
	while (t - start < (uint64_t)ms * 1000000) {
		usleep(1000);
		t = now();
		uint64_t count = sum(packets);
		if (count != last) {
			last = count;
			last_at = t;
		}
		stall = RTE_MAX(stall, t - last_at);
		for (unsigned i = 0; i < RTE_MAX_LCORE; i++) {
			uint64_t calls = threads[i].calls;
			if (calls != value[i]) {
				value[i] = calls;
				since[i] = t;
			}
			if (calls & 1)
				inside = RTE_MAX(inside, t - since[i]);
		}
	}
	cpu = cpu_time() - cpu;
	freed = sum(offsetof(struct thread, free_ns)) - freed;
	int64_t percentile = p99(&inside);
	printf("{\"packets\":%" PRIu64 ",\"wall_ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 ",\"stall_ns\":%" PRIu64
	       ",\"xmit_ns\":%" PRIu64 ",\"free_ns\":%" PRIu64 ",\"p99_ns\":%" PRId64 "}\n",
	       last - first, t - start, cpu, stall, inside, freed, percentile);
	fflush(stdout);
	_exit(0);
}

static uint64_t clock_cost(void)
{
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < 10000; i++) {
		uint64_t start = now();
		best = RTE_MIN(best, now() - start);
	}
	return best;
}

int main(int argc, char **argv)
{
	start(&argc, &argv);
	unsigned flags = RING_F_SC_DEQ, producers = 1;
	int at = 3;
	if (argc < 5)
		return 2;
	if (strcmp(argv[1], "queue") == 0 && argc == 6) {
		shape = QUEUE;
		if (strncmp(argv[2], "rts", 3) == 0)
			flags |= RING_F_MP_RTS_ENQ;
		if (strncmp(argv[2], "hts", 3) == 0)
			flags |= RING_F_MP_HTS_ENQ;
		spins = strstr(argv[2], "-spin") != NULL;
		producers = atoi(argv[3]);
		at = 4;
	} else {
		mbufs = strcmp(argv[2], "mbuf") == 0;
		shape = strcmp(argv[1], "core") == 0 ? CORE : strcmp(argv[1], "cross") == 0 ? CROSS : FREE;
	}
	batch = atoi(argv[at]);
	unsigned ms = atoi(argv[at + 1]);
	if (batch < 1 || batch > MAX_BATCH / 2 || rte_lcore_count() < producers + 2)
		return 2;

	/* A ring holds one less than its size, unless told to be exact. */
	ring = rte_ring_create("queue", RING, SOCKET_ID_ANY, flags | RING_F_EXACT_SZ);
	if (mbufs)
		pool = rte_pktmbuf_pool_create("packets", POOL, CACHE, 0, RTE_PKTMBUF_HEADROOM + OBJECT, SOCKET_ID_ANY);
	else
		pool = rte_mempool_create("packets", POOL, OBJECT, CACHE, 0, NULL, NULL, NULL, NULL, SOCKET_ID_ANY, 0);
	if (ring == NULL || pool == NULL)
		die("no memory");
	clock_ns = clock_cost();
	if (shape == CORE) {
		launch(one_core, 1);
	} else {
		for (unsigned i = 1; i <= producers; i++)
			launch(produce, i);
		launch(consume, producers + 1);
	}
	usleep(RTE_MIN(ms / 8, 50u) * 1000);
	watch(ms);
}
