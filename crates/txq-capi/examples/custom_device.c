/*
 * A device of the program's own. A "card" sends frames from where they lie, and says later which are out: here a thread that
 * takes frames from a ring and writes them to a pipe. txq shapes, schedules and counts in front of it.
 *
 *   cc custom_device.c $(pkg-config --cflags --libs txq) -lpthread
 *
 * The frames lie in memory of the program: a card would need that to be memory that it can read.
 */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <txq.h>

#define RING 16
#define FRAMES 2000
#define LENGTH 100
#define BUFFERS 256
#define STRIDE 2048

struct card {
	pthread_mutex_t lock;
	pthread_cond_t work;
	txq_frame ring[RING];
	unsigned head, tail; /* frames taken from the ring, and put on it */
	int ends, released;
	int pipe[2];
	txq_dev *dev;
};

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, txq_last_error());
	exit(1);
}

/* Puts frames on the card's ring. txq hands over no more than the ring holds. */
static size_t start_xmit(void *context, uint32_t txq, const txq_frame *frames, size_t n, uint64_t *retry_ns)
{
	struct card *card = context;
	size_t taken = 0;

	(void)txq;
	(void)retry_ns;
	pthread_mutex_lock(&card->lock);
	while (taken < n && card->tail - card->head < RING)
		card->ring[card->tail++ % RING] = frames[taken++];
	pthread_cond_signal(&card->work);
	pthread_mutex_unlock(&card->lock);
	return taken;
}

static void release(void *context)
{
	((struct card *)context)->released++;
}

/* The card: sends each frame, and returns it. */
static void *run(void *context)
{
	struct card *card = context;

	pthread_mutex_lock(&card->lock);
	for (;;) {
		while (card->head == card->tail && !card->ends)
			pthread_cond_wait(&card->work, &card->lock);
		if (card->head == card->tail)
			break;
		txq_frame frame = card->ring[card->head++ % RING];
		pthread_mutex_unlock(&card->lock);
		if (write(card->pipe[1], frame.data, frame.len) != (ssize_t)frame.len)
			exit(1);
		if (txq_dev_complete(card->dev, 0, &frame.token, 1) != 1)
			die("complete");
		pthread_mutex_lock(&card->lock);
	}
	pthread_mutex_unlock(&card->lock);
	close(card->pipe[1]);
	return NULL;
}

/* The wire: counts the frames, which must arrive whole and in order. */
static void *wire(void *context)
{
	static uint8_t frame[LENGTH];
	struct card *card = context;
	uintptr_t count = 0;
	size_t have = 0;
	ssize_t n;

	while ((n = read(card->pipe[0], frame + have, LENGTH - have)) > 0) {
		have += n;
		if (have < LENGTH)
			continue;
		for (unsigned i = 0; i < LENGTH; i++)
			if (frame[i] != (uint8_t)count) {
				fprintf(stderr, "frame %lu is wrong\n", (unsigned long)count);
				exit(1);
			}
		count++;
		have = 0;
	}
	return (void *)count;
}

static void free_memory(void *context)
{
	free(context);
}

int main(void)
{
	static struct card card = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};
	pthread_t runs, wires;
	void *arrived;

	if (txq_abi() != TXQ_ABI || pipe(card.pipe) != 0)
		return 1;
	txq_driver driver = {.size = sizeof driver, .ring = RING, .name = "card", .context = &card,
			     .start_xmit = start_xmit, .release = release};
	txq_memory memory = {.size = sizeof memory, .base = calloc(BUFFERS, STRIDE), .len = BUFFERS * STRIDE,
			     .stride = STRIDE, .release = free_memory};
	memory.context = memory.base;
	txq_dev_config *config = txq_dev_config_new(NULL);
	if (txq_dev_config_driver(config, &driver) != 0 || txq_dev_config_memory(config, &memory) != 0 ||
	    txq_dev_config_set(config, "buffers", "256") != 0 || txq_dev_config_set(config, "room", "1600") != 0 ||
	    txq_dev_config_set(config, "qdisc", "tbf rate 100mbit burst 10k limit 30k") != 0)
		die("the configuration");
	card.dev = txq_dev_start(config);
	if (card.dev == NULL)
		die("the device");
	pthread_create(&runs, NULL, run, &card);
	pthread_create(&wires, NULL, wire, &card);

	txq_sender *sender = txq_sender_new(card.dev, "main");
	for (unsigned sent = 0; sent < FRAMES;) {
		txq_packet packets[8] = {{.size = sizeof packets[0]}};
		int64_t n = txq_sender_alloc(sender, packets, 8, LENGTH);
		if (n == TXQ_E_NO_BUFFER) {
			/* All are on their way: wait for the card. */
			usleep(100);
			continue;
		}
		if (n < 0)
			die("alloc");
		for (int64_t i = 0; i < n; i++)
			if (sent < FRAMES)
				memset(packets[i].data, sent++, LENGTH);
			else if (txq_sender_discard(sender, &packets[i], 1) != 0)
				die("discard");
			else
				n = i;
		if (n > 0 && txq_xmit(sender, packets, n) < 0)
			die("xmit");
		/* Wait for room instead of losing packets. */
		while (txq_sender_wait_room(sender, 1000000000) == 0)
			;
	}
	while (txq_dev_drain(card.dev, 1000000000) == 0)
		;
	if (txq_dev_audit(card.dev) != 0)
		die("audit");
	txq_dev_stats stats = {.size = sizeof stats};
	char report[4096];
	if (txq_dev_get_stats(card.dev, &stats) != 0 ||
	    txq_dev_show(card.dev, TXQ_SHOW_REPORT, NULL, 0, report, sizeof report) < 0)
		die("the report");
	fputs(report, stdout);

	pthread_mutex_lock(&card.lock);
	card.ends = 1;
	pthread_cond_signal(&card.work);
	pthread_mutex_unlock(&card.lock);
	pthread_join(runs, NULL);
	pthread_join(wires, &arrived);
	if (txq_sender_free(sender) != 0 || txq_dev_free(card.dev) != 0)
		die("free");
	printf("%lu frames arrived of %lu sent, %lu dropped; released %d times\n", (unsigned long)(uintptr_t)arrived,
	       (unsigned long)stats.sent, (unsigned long)stats.dropped, card.released);
	return 0;
}
