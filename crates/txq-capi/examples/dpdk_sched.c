/*
 * txq's qdiscs in place of rte_sched, in a DPDK program. The program makes mbufs, a scheduler chooses which leave, and
 * rte_eth_tx_burst sends those through a port. Three schedulers do the same work in turn, and their rates are compared:
 *
 *   htb        txq: a class for each leaf, chosen by the packet's priority
 *   fq_codel   txq: as many flows as leaves, told apart by the RSS hash
 *   rte_sched  DPDK: a pipe for each leaf
 *
 *   cc -O3 -march=native dpdk_sched.c $(pkg-config --cflags --libs txq libdpdk)
 *   ./a.out --no-huge --no-pci -m 512 --vdev net_null0 -- LEAVES MILLISECONDS [GBIT]
 *
 * LEAVES is a power of two, 4096 at most. Each scheduler is measured four times, for MILLISECONDS. The rates of all leaves are
 * GBIT, 100 by default: far above what one core sends, so the schedulers are never idle. At a lower rate htb and rte_sched
 * shape, and the share of the rate that they send is printed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_sched.h>

#include <txq.h>

#define BATCH 32
#define EACH 4 /* packets queued for each leaf */
#define LENGTH 128
#define OVERHEAD 24 /* of a packet on an Ethernet wire: rte_sched counts it, and htb is told to */
#define MOST 4096
#define ROUNDS 4

static unsigned leaves;
static uint64_t gbit = 100;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A scheduler under test. `enqueue` returns how many packets it queued; it frees those that it dropped. */
struct scheduler {
	const char *name;
	void *state;
	int shapes;
	unsigned (*enqueue)(struct scheduler *, struct rte_mbuf **, unsigned);
	unsigned (*dequeue)(struct scheduler *, struct rte_mbuf **, unsigned);
	unsigned queued;
	uint64_t sent, ns;
};

/* --- txq --- */

static void tc(txq_sched *s, const char *command)
{
	if (txq_sched_tc(s, now(), command) < 0)
		die(command, txq_last_error());
}

static txq_sched *htb(void)
{
	char command[160];
	txq_sched_config config = {.size = sizeof config, .packets = 2 * EACH * MOST};
	txq_sched *s = txq_sched_new("handle 1: htb", &config);

	if (s == NULL)
		die("htb", txq_last_error());
	snprintf(command, sizeof command,
		 "class add parent 1: classid 1:1 htb rate %" PRIu64 "gbit burst 64k cburst 64k overhead %d", gbit, OVERHEAD);
	tc(s, command);
	for (unsigned i = 0; i < leaves; i++) {
		snprintf(command, sizeof command,
			 "class add parent 1:1 classid 1:%x htb rate %" PRIu64 "mbit ceil %" PRIu64
			 "gbit burst 15k cburst 15k quantum 1514 overhead %d",
			 0x10 + i, gbit * 1000 / leaves + 1, gbit, OVERHEAD);
		tc(s, command);
	}
	return s;
}

static txq_sched *fq_codel(void)
{
	char text[160];
	txq_sched_config config = {.size = sizeof config, .packets = 2 * EACH * MOST};

	/* CoDel measures how long packets wait; here they wait on purpose, so it must not drop. */
	snprintf(text, sizeof text, "fq_codel flows %u limit %d target 10s interval 20s memory_limit 1g", leaves * 4,
		 2 * EACH * MOST);
	txq_sched *s = txq_sched_new(text, &config);
	if (s == NULL)
		die(text, txq_last_error());
	return s;
}

/* Frees what the scheduler dropped; returns how many packets that were. */
static unsigned free_dropped(txq_sched *s)
{
	txq_dropped dropped[BATCH];
	unsigned all = 0;
	int64_t n;

	dropped[0].size = sizeof dropped[0];
	while ((n = txq_sched_dropped(s, dropped, BATCH)) > 0) {
		for (int64_t i = 0; i < n; i++)
			rte_pktmbuf_free((struct rte_mbuf *)dropped[i].value);
		all += n;
	}
	return all;
}

static unsigned txq_enqueue(struct scheduler *scheduler, struct rte_mbuf **packets, unsigned n)
{
	txq_item items[BATCH];

	for (unsigned i = 0; i < n; i++)
		items[i] = (txq_item){
			.size = sizeof items[i],
			.len = packets[i]->pkt_len,
			.value = (uintptr_t)packets[i],
			/* The leaf is class 1:10 and up, in tc's hexadecimal numbers. */
			.priority = TXQ_CLASS(1, 0x10 + packets[i]->hash.rss),
			.hash = 1 + packets[i]->hash.rss,
		};
	int64_t taken = txq_sched_enqueue(scheduler->state, now(), items, n);
	if (taken != n)
		die("enqueue", txq_last_error());
	return n - free_dropped(scheduler->state);
}

static unsigned txq_dequeue(struct scheduler *scheduler, struct rte_mbuf **packets, unsigned n)
{
	txq_departed departed[BATCH];

	departed[0].size = sizeof departed[0];
	int64_t count = txq_sched_dequeue(scheduler->state, now(), departed, n, 0);
	if (count < 0)
		die("dequeue", txq_last_error());
	for (int64_t i = 0; i < count; i++)
		packets[i] = (struct rte_mbuf *)departed[i].value;
	scheduler->queued -= free_dropped(scheduler->state);
	return count;
}

/* --- rte_sched --- */

static struct rte_sched_port *port_of(void)
{
	static struct rte_sched_subport_profile_params profile;
	static struct rte_sched_pipe_params pipe;
	const uint64_t rate = gbit * 1000000000 / 8;
	struct rte_sched_subport_params subport = {
		.n_pipes_per_subport_enabled = leaves, .pipe_profiles = &pipe, .n_pipe_profiles = 1, .n_max_pipe_profiles = 1};
	struct rte_sched_port_params params = {.name = "port", .rate = rate, .mtu = 1522, .frame_overhead = OVERHEAD,
		.n_subports_per_port = 1, .subport_profiles = &profile, .n_subport_profiles = 1, .n_max_subport_profiles = 1,
		.n_pipes_per_subport = leaves};

	profile = (struct rte_sched_subport_profile_params){.tb_rate = rate, .tb_size = 1000000, .tc_period = 10};
	pipe = (struct rte_sched_pipe_params){.tb_rate = rate, .tb_size = 1000000, .tc_period = 40, .tc_ov_weight = 1};
	for (unsigned i = 0; i < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; i++) {
		profile.tc_rate[i] = pipe.tc_rate[i] = rate;
		subport.qsize[i] = 64;
	}
	for (unsigned i = 0; i < RTE_SCHED_BE_QUEUES_PER_PIPE; i++)
		pipe.wrr_weights[i] = 1;
	struct rte_sched_port *port = rte_sched_port_config(&params);
	if (port == NULL || rte_sched_subport_config(port, 0, &subport, 0) != 0)
		die("rte_sched", rte_strerror(rte_errno));
	for (unsigned i = 0; i < leaves; i++)
		if (rte_sched_pipe_config(port, 0, i, 0) != 0)
			die("rte_sched: a pipe", rte_strerror(rte_errno));
	return port;
}

static unsigned dpdk_enqueue(struct scheduler *scheduler, struct rte_mbuf **packets, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		rte_sched_port_pkt_write(scheduler->state, packets[i], 0, packets[i]->hash.rss, RTE_SCHED_TRAFFIC_CLASS_BE,
					 0, RTE_COLOR_GREEN);
	return rte_sched_port_enqueue(scheduler->state, packets, n);
}

static unsigned dpdk_dequeue(struct scheduler *scheduler, struct rte_mbuf **packets, unsigned n)
{
	return rte_sched_port_dequeue(scheduler->state, packets, n);
}

/* --- the loop --- */

static void turn(struct scheduler *scheduler, struct rte_mempool *pool, uint16_t port, uint64_t ns)
{
	struct rte_mbuf *packets[BATCH];
	static unsigned next;
	uint64_t start = now(), end = start + ns, sent = 0;

	while (now() < end)
		for (unsigned i = 0; i < 64; i++) {
			unsigned n = RTE_MIN(EACH * leaves - scheduler->queued, BATCH);
			if (n > 0 && rte_pktmbuf_alloc_bulk(pool, packets, n) == 0) {
				for (unsigned k = 0; k < n; k++) {
					rte_pktmbuf_append(packets[k], LENGTH);
					/* The RSS hash that a card would have given to the packet. */
					packets[k]->hash.rss = next++ % leaves;
				}
				scheduler->queued += scheduler->enqueue(scheduler, packets, n);
			}
			n = scheduler->dequeue(scheduler, packets, BATCH);
			scheduler->queued -= n;
			for (unsigned done = 0; done < n;)
				done += rte_eth_tx_burst(port, 0, packets + done, n - done);
			sent += n;
		}
	scheduler->sent += sent;
	scheduler->ns += now() - start;
}

/* Drops what is queued, for the mempool to be whole again. */
static void purge(struct scheduler *scheduler)
{
	txq_sched *s = scheduler->state;
	if (txq_sched_purge(s, now()) != 0 || free_dropped(s) != scheduler->queued || txq_sched_free(s) != 0)
		die(scheduler->name, txq_last_error());
}

int main(int argc, char **argv)
{
	if (txq_abi() != TXQ_ABI)
		die("libtxq", "another version than its header");
	int used = rte_eal_init(argc, argv);
	if (used < 0)
		die("the EAL does not start", rte_strerror(rte_errno));
	argc -= used;
	argv += used;
	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: dpdk_sched EAL-ARGUMENTS -- LEAVES MILLISECONDS [GBIT]\n");
		return 2;
	}
	leaves = atoi(argv[1]);
	uint64_t ns = strtoull(argv[2], NULL, 10) * 1000000;
	if (argc == 4)
		gbit = strtoull(argv[3], NULL, 10);
	if (leaves < 1 || leaves > MOST || (leaves & (leaves - 1)) != 0 || ns == 0 || gbit == 0)
		die("dpdk_sched", "LEAVES is a power of two up to 4096, MILLISECONDS and GBIT are above 0");

	uint16_t port = rte_eth_find_next_owned_by(0, RTE_ETH_DEV_NO_OWNER);
	if (port >= RTE_MAX_ETHPORTS)
		die("no port", "add --vdev net_null0");
	/* As many mbufs as all schedulers keep, and some on their way. */
	unsigned count = 3 * EACH * leaves + 4096;
	struct rte_mempool *pool =
		rte_pktmbuf_pool_create("packets", count, 256, 0, RTE_PKTMBUF_HEADROOM + LENGTH, SOCKET_ID_ANY);
	struct rte_eth_conf config = {0};
	if (pool == NULL || rte_eth_dev_configure(port, 1, 1, &config) != 0 ||
	    rte_eth_rx_queue_setup(port, 0, 512, SOCKET_ID_ANY, NULL, pool) != 0 ||
	    rte_eth_tx_queue_setup(port, 0, 512, SOCKET_ID_ANY, NULL) != 0 || rte_eth_dev_start(port) != 0)
		die("the port does not start", rte_strerror(rte_errno));

	struct scheduler all[] = {
		{.name = "htb", .state = htb(), .shapes = 1, .enqueue = txq_enqueue, .dequeue = txq_dequeue},
		{.name = "fq_codel", .state = fq_codel(), .enqueue = txq_enqueue, .dequeue = txq_dequeue},
		{.name = "rte_sched", .state = port_of(), .shapes = 1, .enqueue = dpdk_enqueue, .dequeue = dpdk_dequeue},
	};
	for (unsigned round = 0; round <= ROUNDS; round++)
		for (unsigned i = 0; i < RTE_DIM(all); i++) {
			if (round == 1)
				all[i].sent = all[i].ns = 0; /* the round before warmed up */
			turn(&all[i], pool, port, ns);
		}

	const double other = all[2].sent * 1e9 / all[2].ns;
	for (unsigned i = 0; i < RTE_DIM(all); i++) {
		double rate = all[i].sent * 1e9 / all[i].ns, bits = rate * (LENGTH + OVERHEAD) * 8;
		printf("%-9s  %8.0f packets/s  %6.1f ns each  %.2f of rte_sched", all[i].name, rate, 1e9 / rate, rate / other);
		if (argc == 4 && all[i].shapes)
			printf("  %.2f of %" PRIu64 " Gbit/s", bits / (gbit * 1e9), gbit);
		putchar('\n');
	}
	rte_eth_dev_stop(port);
	purge(&all[0]);
	purge(&all[1]);
	rte_sched_port_free(all[2].state); /* frees its mbufs */
	if (rte_mempool_avail_count(pool) != count)
		die("mbufs are missing", "this is a bug");
	printf("all %u mbufs are back\n", count);
	return 0;
}
