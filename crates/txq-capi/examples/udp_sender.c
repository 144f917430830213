/*
 * Shapes datagrams: two threads send through htb with fq_codel in each class, over one UDP socket. The threads offer far more
 * than the link's 16 Mbit/s; "voice" has 12 Mbit/s for sure, "bulk" 4 Mbit/s.
 *
 *   cc udp_sender.c $(pkg-config --cflags --libs txq) -lpthread
 *   ./a.out [ADDRESS:PORT]
 *
 * Without an address, the program receives its own datagrams and counts those of each class.
 */
#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <txq.h>

#define SECOND 1000000000ull
#define PAYLOAD 1000
#define BATCH 16

static txq_dev *dev;
static uint64_t end;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, txq_last_error());
	exit(1);
}

struct thread {
	const char *name;
	uint32_t class;
	uint64_t offered;
	pthread_t id;
};

/* Sends until the time is over. */
static void *sends(void *argument)
{
	struct thread *self = argument;
	txq_sender *sender = txq_sender_new(dev, self->name);

	/* No thread may take the buffers of the other. */
	if (sender == NULL || txq_sender_set_limit(sender, 1000) != 0)
		die("a sender");
	while (txq_now() < end) {
		txq_packet packets[BATCH] = {{.size = sizeof packets[0]}};
		int64_t n = txq_sender_alloc(sender, packets, BATCH, PAYLOAD);
		if (n == TXQ_E_LIMIT || n == TXQ_E_NO_BUFFER) {
			txq_sender_wait_credit(sender, SECOND / 100);
			continue;
		}
		if (n < 0)
			die("alloc");
		for (int64_t i = 0; i < n; i++) {
			packets[i].priority = self->class;
			/* Four flows share the class fairly. */
			packets[i].hash = 1 + self->offered++ % 4;
			memset(packets[i].data, self->class & 0xff, PAYLOAD);
		}
		if (txq_xmit(sender, packets, n) < 0)
			die("xmit");
	}
	if (txq_sender_free(sender) != 0)
		die("free");
	return NULL;
}

static void tc(const char *command)
{
	if (txq_dev_tc(dev, command) < 0)
		die(command);
}

int main(int argc, char **argv)
{
	char name[64], text[4096];
	int receiver = -1;
	struct thread threads[] = {{.name = "voice", .class = TXQ_CLASS(1, 0x10)},
				   {.name = "bulk", .class = TXQ_CLASS(1, 0x20)}};
	uint64_t received[2] = {0};

	if (txq_abi() != TXQ_ABI)
		return 1;
	if (argc > 1) {
		snprintf(name, sizeof name, "udp:%s", argv[1]);
	} else {
		struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		struct timeval patience = {.tv_usec = 200000};
		socklen_t len = sizeof here;
		receiver = socket(AF_INET, SOCK_DGRAM, 0);
		if (bind(receiver, (struct sockaddr *)&here, len) != 0 ||
		    getsockname(receiver, (struct sockaddr *)&here, &len) != 0 ||
		    setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0)
			return 1;
		snprintf(name, sizeof name, "udp:127.0.0.1:%u", ntohs(here.sin_port));
	}
	txq_dev_config *config = txq_dev_config_new(name);
	if (config == NULL || txq_dev_config_set(config, "qdisc", "handle 1: htb default 20") != 0)
		die("the configuration");
	dev = txq_dev_start(config);
	if (dev == NULL)
		die(name);
	tc("class add parent 1: classid 1:1 htb rate 16mbit burst 10k");
	tc("class add parent 1:1 classid 1:10 htb rate 12mbit ceil 16mbit burst 10k");
	tc("class add parent 1:1 classid 1:20 htb rate 4mbit ceil 16mbit burst 10k");
	tc("qdisc add parent 1:10 handle 10: fq_codel");
	tc("qdisc add parent 1:20 handle 20: fq_codel");

	uint64_t start = txq_now();
	end = start + SECOND;
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&threads[i].id, NULL, sends, &threads[i]);
	uint8_t datagram[2048];
	while (receiver >= 0) {
		ssize_t n = recv(receiver, datagram, sizeof datagram, 0);
		if (n == PAYLOAD)
			received[datagram[0] == 0x20]++;
		else if (n < 0 && txq_now() >= end)
			break;
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i].id, NULL);
	while (txq_dev_drain(dev, SECOND) == 0)
		;
	double seconds = (txq_now() - start) / 1e9;
	txq_dev_stats stats = {.size = sizeof stats};
	if (txq_dev_audit(dev) != 0 || txq_dev_get_stats(dev, &stats) != 0 ||
	    txq_dev_show(dev, TXQ_SHOW_CLASSES, NULL, TXQ_SHOW_STATS, text, sizeof text) < 0)
		die("the report");
	fputs(text, stdout);
	printf("sent %llu dropped %llu in %.2f s\n", (unsigned long long)stats.sent, (unsigned long long)stats.dropped,
	       seconds);
	if (receiver >= 0)
		printf("received voice %llu bulk %llu\n", (unsigned long long)received[0],
		       (unsigned long long)received[1]);
	return txq_dev_free(dev) == 0 ? 0 : 1;
}
