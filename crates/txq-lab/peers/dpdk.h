/*
 * What the DPDK programs beside this file share: clocks, errors, and the start of DPDK.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>

/* Returns the time of a clock in nanoseconds. */
static uint64_t time_of(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Prints DPDK's last error and exits. */
static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, rte_strerror(rte_errno));
	_exit(1);
}

/* Starts DPDK with the arguments in front of "--", and removes them. */
static void start(int *argc, char ***argv)
{
	int used = rte_eal_init(*argc, *argv);
	if (used < 0)
		die("the EAL does not start");
	*argc -= used;
	*argv += used;
}
