/*
 * The tree of a rte_sched port in tc's words: a subport of 100 Mbit/s with two pipes of 60 and 30 Mbit/s. Each pipe has a voice
 * class of 10 Mbit/s, which goes first, and a best-effort class, which may use the rest of the pipe. The program keeps the
 * packets: here a packet is the number of its class, in DPDK it is the address of an mbuf.
 *
 *   cc subscribers.c $(pkg-config --cflags --libs txq)
 *
 * The clock is the program's own. So the program simulates a second, and prints the same on each machine.
 */
#include <stdio.h>
#include <stdlib.h>

#include <txq.h>

#define MS 1000000ull
#define LENGTH 1250 /* 10,000 bits: a packet a millisecond is 10 Mbit/s */
#define PIPES 2
#define BATCH 32

/* The minor numbers of a pipe's classes; tc writes them in hexadecimal. */
enum { VOICE = 0x10, BEST_EFFORT = 0x20 };

/* Subport, pipe 0 with its classes, pipe 1 with its classes. */
static const char TREE[] = "class add parent 1: classid 1:1 htb rate 100mbit quantum 1514\n"
			   "class add parent 1:1 classid 1:2 htb rate 60mbit quantum 1514\n"
			   "class add parent 1:2 classid 1:10 htb rate 10mbit prio 0 quantum 1514\n"
			   "class add parent 1:2 classid 1:20 htb rate 1mbit ceil 60mbit prio 1 quantum 1514\n"
			   "class add parent 1:1 classid 1:3 htb rate 30mbit quantum 1514\n"
			   "class add parent 1:3 classid 1:11 htb rate 10mbit prio 0 quantum 1514\n"
			   "class add parent 1:3 classid 1:21 htb rate 1mbit ceil 30mbit prio 1 quantum 1514\n";

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, txq_last_error());
	exit(1);
}

/* Queues a packet of a class, as rte_sched_port_enqueue does with the class that rte_sched_port_pkt_write wrote. */
static void enqueue(txq_sched *s, uint64_t now, unsigned class)
{
	txq_item item = {.size = sizeof item, .len = LENGTH, .value = class, .priority = TXQ_CLASS(1, class)};

	if (txq_sched_enqueue(s, now, &item, 1) != 1)
		die("enqueue");
}

int main(void)
{
	uint64_t sent[0x100] = {0}, dropped = 0;
	txq_sched *s = txq_sched_new("handle 1: htb", NULL);

	if (s == NULL || txq_sched_tc_batch(s, 1, TREE) != 0)
		die("the tree");
	for (uint64_t now = MS; now <= 1000 * MS; now += MS / 10) {
		txq_departed out[BATCH] = {{.size = sizeof out[0]}};
		txq_dropped gone[BATCH] = {{.size = sizeof gone[0]}};
		int64_t n;

		for (unsigned pipe = 0; pipe < PIPES; pipe++) {
			if (now % MS == 0)
				enqueue(s, now, VOICE + pipe);
			enqueue(s, now, BEST_EFFORT + pipe); /* 100 Mbit/s: more than the pipe has */
		}
		while ((n = txq_sched_dequeue(s, now, out, BATCH, 0)) > 0)
			for (int64_t i = 0; i < n; i++)
				sent[out[i].value] += out[i].len; /* in DPDK: rte_eth_tx_burst */
		while ((n = txq_sched_dropped(s, gone, BATCH)) > 0)
			dropped += (uint64_t)n; /* in DPDK: rte_pktmbuf_free */
	}
	for (unsigned pipe = 0; pipe < PIPES; pipe++)
		printf("pipe %u: voice %.1f Mbit/s, best effort %.1f Mbit/s\n", pipe, sent[VOICE + pipe] * 8 / 1e6,
		       sent[BEST_EFFORT + pipe] * 8 / 1e6);
	printf("%s\n", dropped > 0 ? "best effort beyond its queue was dropped" : "nothing was dropped");
	txq_sched_purge(s, 1000 * MS);
	return txq_sched_free(s) == 0 ? 0 : 1;
}
