/*
 * What DPDK's hierarchical scheduler costs, as `txq bench qdisc` measures txq's qdiscs. Written from DPDK's API documentation.
 *
 *   sched EAL-ARGUMENTS -- PIPES BATCH MS
 *
 * One subport with PIPES pipes, a power of two, two packets of 64 bytes in the best-effort queue of each. Its rates are far above
 * what one core does, so nothing is shaped. One thread dequeues a batch and enqueues the same packets again. Prints one
 * JSON object, with the memory that each pipe takes by DPDK's own account.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_mbuf.h>
#include <rte_sched.h>

#include "dpdk.h"

#define EACH 2
#define LENGTH 64
#define MAX_BATCH 512
#define RATE (100ull * 1000 * 1000 * 1000 / 8) /* bytes per second */
#define BUCKET 1000000

static struct rte_sched_port *port_of(unsigned pipes, uint32_t *memory)
{
	static struct rte_sched_subport_profile_params profile = {.tb_rate = RATE, .tb_size = BUCKET, .tc_period = 10};
	static struct rte_sched_pipe_params pipe = {.tb_rate = RATE, .tb_size = BUCKET, .tc_period = 40, .tc_ov_weight = 1};
	struct rte_sched_subport_params subport = {
		.n_pipes_per_subport_enabled = pipes, .pipe_profiles = &pipe, .n_pipe_profiles = 1, .n_max_pipe_profiles = 1};
	struct rte_sched_port_params params = {.name = "port", .rate = RATE, .mtu = 1522, .frame_overhead = 24,
		.n_subports_per_port = 1, .subport_profiles = &profile, .n_subport_profiles = 1, .n_max_subport_profiles = 1,
		.n_pipes_per_subport = pipes};

	for (unsigned i = 0; i < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; i++) {
		profile.tc_rate[i] = pipe.tc_rate[i] = RATE;
		subport.qsize[i] = 64;
	}
	for (unsigned i = 0; i < RTE_SCHED_BE_QUEUES_PER_PIPE; i++)
		pipe.wrr_weights[i] = 1;
	struct rte_sched_subport_params *subports[] = {&subport};
	*memory = rte_sched_port_get_memory_footprint(&params, subports);
	struct rte_sched_port *port = rte_sched_port_config(&params);
	if (port == NULL)
		die("a scheduler");
	if (rte_sched_subport_config(port, 0, &subport, 0) != 0)
		die("a subport");
	for (unsigned i = 0; i < pipes; i++)
		if (rte_sched_pipe_config(port, 0, i, 0) != 0)
			die("a pipe");
	return port;
}

static uint64_t turn(struct rte_sched_port *port, unsigned batch, uint64_t end)
{
	struct rte_mbuf *packets[MAX_BATCH];
	uint64_t moved = 0;

	while (time_of(CLOCK_MONOTONIC) < end)
		for (unsigned i = 0; i < 64; i++) {
			int n = rte_sched_port_dequeue(port, packets, batch);
			if (rte_sched_port_enqueue(port, packets, n) != n)
				die("a packet was dropped");
			moved += n;
		}
	return moved;
}

int main(int argc, char **argv)
{
	start(&argc, &argv);
	if (argc != 4)
		return 2;
	unsigned pipes = atoi(argv[1]), batch = atoi(argv[2]), ms = atoi(argv[3]);
	unsigned count = RTE_MAX(pipes * EACH, batch * 4);
	if (pipes < 1 || (pipes & (pipes - 1)) != 0 || batch < 1 || batch > MAX_BATCH)
		return 2;

	uint32_t memory;
	struct rte_sched_port *port = port_of(pipes, &memory);
	struct rte_mempool *pool =
		rte_pktmbuf_pool_create("packets", count + 64, 0, 0, RTE_PKTMBUF_HEADROOM + LENGTH, SOCKET_ID_ANY);
	if (pool == NULL)
		die("no memory for packets");
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *packet = rte_pktmbuf_alloc(pool);
		if (packet == NULL)
			die("no packet");
		packet->data_len = packet->pkt_len = LENGTH;
		rte_sched_port_pkt_write(port, packet, 0, i % pipes, RTE_SCHED_TRAFFIC_CLASS_BE, 0, RTE_COLOR_GREEN);
		if (rte_sched_port_enqueue(port, &packet, 1) != 1)
			die("a packet was dropped");
	}
	uint64_t begin = time_of(CLOCK_MONOTONIC);
	turn(port, batch, begin + (uint64_t)ms * 1000000 / 8);
	uint64_t cpu = time_of(CLOCK_PROCESS_CPUTIME_ID);
	begin = time_of(CLOCK_MONOTONIC);
	uint64_t moved = turn(port, batch, begin + (uint64_t)ms * 1000000);
	uint64_t wall = time_of(CLOCK_MONOTONIC) - begin;
	cpu = time_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("{\"packets\":%" PRIu64 ",\"wall_ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64
	       ",\"stall_ns\":0,\"xmit_ns\":0,\"p99_ns\":-1,\"bytes_per_flow\":%u}\n",
	       moved, wall, cpu, memory / pipes);
	fflush(stdout);
	_exit(0);
}
