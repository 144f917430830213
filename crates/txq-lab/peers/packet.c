/*
 * What this machine's kernel sends through an interface's qdisc: threads that call sendmmsg(2) on AF_PACKET sockets, one
 * socket each, as fast as they can. `txq bench peers` runs it in a network namespace of its own, on an ifb, which drops what
 * it is given.
 *
 *   packet INTERFACE COUNTER THREADS BATCH BYTES MS [CPU..]
 *
 * COUNTER is the file under /sys/class/net/INTERFACE/statistics that counts what the driver was given. With CPUs, thread i
 * stays on the i-th of them, round robin. Prints one JSON object.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_BATCH 1024
#define MAX_BYTES 1514
#define MAX_THREADS 4096
#define SAMPLED 61
#define SAMPLES 65536

struct thread {
	volatile uint64_t calls; /* odd inside of one */
	volatile uint32_t samples;
	uint32_t *sample;
	int cpu;
} __attribute__((aligned(128)));

static struct thread *threads;
static unsigned count, batch, bytes, interface;

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t cpu_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

static uint64_t sent(const char *file)
{
	char text[32];
	FILE *f = fopen(file, "r");
	if (f == NULL || fgets(text, sizeof(text), f) == NULL)
		die(file);
	fclose(f);
	return strtoull(text, NULL, 10);
}

static void *send_all(void *argument)
{
	struct thread *self = argument;
	/* Ethernet, to nobody; the protocol is the one for experiments, which no stack takes up. */
	unsigned char frame[MAX_BYTES] = {2, 0, 0, 0, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xb5};
	struct iovec data = {frame, bytes};
	struct mmsghdr messages[MAX_BATCH];
	struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = interface};
	unsigned until_sample = SAMPLED;

	if (self->cpu >= 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(self->cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set) != 0)
			die("sched_setaffinity");
	}
	/* Protocol 0: it receives nothing. */
	int s = socket(AF_PACKET, SOCK_RAW, 0);
	if (s < 0 || bind(s, (struct sockaddr *)&to, sizeof(to)) != 0)
		die("a packet socket");
	memset(messages, 0, sizeof(messages));
	for (unsigned i = 0; i < batch; i++) {
		messages[i].msg_hdr.msg_iov = &data;
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	for (;;) {
		int timed = --until_sample == 0;
		uint64_t start = timed ? now() : 0;
		self->calls++;
		int n = sendmmsg(s, messages, batch, 0);
		self->calls++;
		if (timed) {
			uint64_t took = now() - start;
			until_sample = SAMPLED;
			if (self->samples < SAMPLES) {
				self->sample[self->samples] = took < UINT32_MAX ? took : UINT32_MAX;
				self->samples++;
			}
		}
		/* The qdisc has dropped it. */
		if (n < 0 && errno == ENOBUFS)
			sched_yield();
		else if (n < 0)
			die("sendmmsg");
	}
	return NULL;
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

/* The 99th percentile of all times, -1 without any; and the longest. */
static int64_t p99(uint64_t *longest)
{
	size_t all = 0, at = 0;
	for (unsigned i = 0; i < count; i++)
		all += threads[i].samples;
	uint32_t *times = malloc((all + 1) * sizeof(*times));
	if (all == 0 || times == NULL)
		return -1;
	for (unsigned i = 0; i < count && at < all; i++) {
		size_t n = threads[i].samples;
		n = n < all - at ? n : all - at;
		memcpy(times + at, threads[i].sample, n * sizeof(*times));
		at += n;
	}
	qsort(times, at, sizeof(*times), by_size);
	if (times[at - 1] > *longest)
		*longest = times[at - 1];
	return times[at * 99 / 100];
}

int main(int argc, char **argv)
{
	if (argc < 7)
		return 2;
	char file[256];
	snprintf(file, sizeof(file), "/sys/class/net/%s/statistics/%s", argv[1], argv[2]);
	interface = if_nametoindex(argv[1]);
	count = atoi(argv[3]);
	batch = atoi(argv[4]);
	bytes = atoi(argv[5]);
	unsigned ms = atoi(argv[6]);
	if (interface == 0)
		die(argv[1]);
	if (count < 1 || count > MAX_THREADS || batch < 1 || batch > MAX_BATCH || bytes < 60 || bytes > MAX_BYTES)
		return 2;
	threads = aligned_alloc(128, count * sizeof(*threads));
	uint64_t *value = calloc(count, sizeof(*value)), *since = calloc(count, sizeof(*since));
	if (threads == NULL || value == NULL || since == NULL)
		die("no memory");
	memset(threads, 0, count * sizeof(*threads));
	for (unsigned i = 0; i < count; i++) {
		pthread_t thread;
		threads[i].cpu = argc > 7 ? atoi(argv[7 + i % (argc - 7)]) : -1;
		threads[i].sample = malloc(SAMPLES * sizeof(uint32_t));
		if (threads[i].sample == NULL || pthread_create(&thread, NULL, send_all, &threads[i]) != 0)
			die("a thread does not start");
	}
	usleep((ms / 8 < 50 ? ms / 8 : 50) * 1000);

	uint64_t t = now(), start = t, cpu = cpu_time(), first = sent(file), last = first, last_at = t;
	uint64_t stall = 0, inside = 0;
	for (unsigned i = 0; i < count; i++) {
		value[i] = threads[i].calls;
		since[i] = t;
	}
	while (t - start < (uint64_t)ms * 1000000) {
		usleep(1000);
		uint64_t n = sent(file);
		t = now();
		if (n != last) {
			last = n;
			last_at = t;
		}
		stall = stall > t - last_at ? stall : t - last_at;
		for (unsigned i = 0; i < count; i++) {
			uint64_t calls = threads[i].calls;
			if (calls != value[i]) {
				value[i] = calls;
				since[i] = t;
			}
			if ((calls & 1) && t - since[i] > inside)
				inside = t - since[i];
		}
	}
	cpu = cpu_time() - cpu;
	int64_t percentile = p99(&inside);
	printf("{\"packets\":%" PRIu64 ",\"wall_ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 ",\"stall_ns\":%" PRIu64
	       ",\"xmit_ns\":%" PRIu64 ",\"p99_ns\":%" PRId64 "}\n",
	       last - first, t - start, cpu, stall, inside, percentile);
	fflush(stdout);
	_exit(0);
}
