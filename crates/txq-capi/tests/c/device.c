/* Devices and senders: right calls, and every wrong one that can be detected. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define SECOND 1000000000ull

static txq_dev *null_device(const char *qdisc)
{
	txq_dev_config *config = txq_dev_config_new("null");
	CHECK(config != NULL);
	CHECK(txq_dev_config_set(config, "qdisc", qdisc) == 0);
	CHECK(txq_dev_config_set(config, "buffers", "512") == 0);
	txq_dev *dev = txq_dev_start(config);
	CHECK(dev != NULL);
	return dev;
}

static void end(txq_dev *dev)
{
	CHECK(txq_dev_audit(dev) == 0);
	CHECK(txq_dev_free(dev) == 0);
}

static txq_dev_stats stats_of(txq_dev *dev)
{
	txq_dev_stats stats = {.size = sizeof stats};
	CHECK(txq_dev_get_stats(dev, &stats) == 0);
	return stats;
}

static void sends(void)
{
	char text[8192];
	txq_packet packets[16] = {{.size = sizeof packets[0]}};
	txq_dev *dev = null_device("handle 1: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1");
	txq_sender *sender = txq_sender_new(dev, "main");
	txq_flow *flow = txq_flow_new();

	CHECK(sender != NULL && flow != NULL);
	CHECK(txq_dev_tc(dev, "tc filter add dev null0 parent 1: handle 7 fw classid 1:1") == 0);
	CHECK(txq_sender_alloc(sender, packets, 16, 100) == 16);
	for (int i = 0; i < 16; i++) {
		CHECK(packets[i].len == 100 && packets[i].size == sizeof packets[0]);
		memset(packets[i].data, i, 100);
		packets[i].mark = 7;
	}
	packets[3].len = 60;
	CHECK(txq_xmit(sender, packets, 8) == TXQ_SUCCESS);
	CHECK(txq_xmit_on(sender, flow, packets + 8, 4) == TXQ_SUCCESS);
	CHECK(txq_sender_discard(sender, packets + 12, 4) == 0);
	CHECK(txq_send(sender, (const uint8_t *)text, 0) == TXQ_SUCCESS);
	CHECK(txq_send(sender, (const uint8_t *)"abc", 3) == TXQ_SUCCESS);
	CHECK(txq_dev_drain(dev, 60 * SECOND) == 1);
	CHECK(txq_flow_outstanding(flow) == 0);
	txq_dev_stats stats = stats_of(dev);
	CHECK(stats.accepted == 14 && stats.sent == 14 && stats.bytes_sent == 11 * 100 + 60 + 3 && stats.dropped == 0);
	CHECK(txq_sender_dropped(sender) == 0);

	CHECK(txq_dev_show(dev, TXQ_SHOW_QDISCS, NULL, TXQ_SHOW_STATS, text, sizeof text) > 0);
	CHECK(strstr(text, "qdisc prio 1: dev null0 root") != NULL);
	CHECK(txq_dev_show(dev, TXQ_SHOW_FILTERS, "1:", 0, text, sizeof text) > 0 && strstr(text, "fw") != NULL);
	CHECK(txq_dev_show(dev, TXQ_SHOW_REPORT, NULL, 0, text, sizeof text) > 0);
	CHECK(strstr(text, "null0: accepted 14") != NULL && strstr(text, "sender main: accepted 14 sent 14") != NULL);
	CHECK(txq_dev_show(dev, TXQ_SHOW_REPORT, NULL, TXQ_SHOW_JSON, text, sizeof text) > 0);
	CHECK(strstr(text, "\"accepted\":14") != NULL && text[0] == '{');

	/* A device that is down drops, and says so. */
	CHECK(txq_dev_set_up(dev, 0) == 0);
	CHECK(txq_sender_wait_room(sender, SECOND) == TXQ_E_DOWN);
	int down = txq_send(sender, (const uint8_t *)"abc", 3);
	CHECK(down == TXQ_CONGESTED || down == TXQ_DROPPED);
	CHECK(txq_sender_dropped(sender) == 1);
	CHECK(txq_dev_set_up(dev, 1) == 0);
	CHECK(txq_sender_wait_room(sender, SECOND) == 1);
	CHECK(txq_dev_show(dev, TXQ_SHOW_REPORT, NULL, 0, text, sizeof text) > 0);
	CHECK(strstr(text, "drop QDISC_DROP: 1") != NULL);
	CHECK(txq_flow_free(flow) == 0 && txq_sender_free(sender) == 0);
	end(dev);
}

/* A packet grows at its end, up to what its buffer has. */
static void grows(void)
{
	txq_dev_config *config = txq_dev_config_new("null");
	CHECK(txq_dev_config_set(config, "room", "1000") == 0 && txq_dev_config_set(config, "tailroom", "16") == 0);
	CHECK(txq_dev_config_set(config, "buffers", "64") == 0);
	txq_dev *dev = txq_dev_start(config);
	txq_sender *sender = txq_sender_new(dev, "main");
	txq_packet packet = {.size = sizeof packet};

	CHECK(txq_sender_alloc(sender, &packet, 1, 1000) == 1);
	int64_t free = txq_packet_tailroom(sender, &packet);
	CHECK(free >= 16 && free < 16 + 128);
	memset(packet.data, 1, 1000);
	uint8_t *tag = txq_packet_put(sender, &packet, 16);
	CHECK(tag == packet.data + 1000 && packet.len == 1016 && txq_packet_tailroom(sender, &packet) == free - 16);
	memset(tag, 2, 16);
	CHECK_ERROR(txq_packet_put(sender, &packet, free), NULL, "the key tailroom");
	CHECK_ERROR(txq_packet_put(sender, &packet, SIZE_MAX), NULL, "bytes behind it");
	CHECK(packet.len == 1016 && packet.data[999] == 1);
	/* What the program has cut off counts as free; the end is where the program says. */
	packet.len = 10;
	CHECK(txq_packet_tailroom(sender, &packet) == free + 990);
	CHECK(txq_packet_put(sender, &packet, 5) == packet.data + 10 && packet.len == 15);
	packet.len = 16;
	CHECK_ERROR(txq_packet_put(sender, &packet, 1), NULL, "longer");
	packet.len = 15;
	CHECK(txq_xmit(sender, &packet, 1) == TXQ_SUCCESS);
	CHECK_ERROR(txq_packet_put(sender, &packet, 1), NULL, "sent or discarded");
	CHECK(txq_packet_tailroom(sender, &packet) == TXQ_E_INVALID);
	CHECK(txq_packet_put(sender, NULL, 1) == NULL && txq_packet_tailroom(NULL, &packet) == TXQ_E_NULL);
	packet.size = 3;
	CHECK(txq_packet_tailroom(sender, &packet) == TXQ_E_SIZE);
	CHECK(txq_dev_drain(dev, 60 * SECOND) == 1 && stats_of(dev).bytes_sent == 15);
	CHECK(txq_sender_free(sender) == 0);
	end(dev);
}

/* A sender that finds the queue full is told when there is room. */
static void waits_for_room(void)
{
	txq_dev *dev = null_device("handle 1: tbf rate 8mbit burst 1600 limit 1000000");
	txq_sender *sender = txq_sender_new(dev, "main");
	int full = 0;

	CHECK(txq_dev_tc(dev, "qdisc replace parent 1:1 handle 10: pfifo limit 40") == 0);
	CHECK(txq_sender_poll_room(sender) == TXQ_E_INVALID);
	int fd = txq_sender_room_fd(sender);
	CHECK(fd >= 0 && txq_sender_room_fd(sender) == fd);
	for (int sent = 0; sent < 200;) {
		static uint8_t packet[1000];
		int room = txq_sender_poll_room(sender);
		CHECK(room == 0 || room == 1);
		if (room == 0) {
			struct pollfd wait = {.fd = fd, .events = POLLIN};
			CHECK(poll(&wait, 1, 1000) >= 0);
			full++;
			continue;
		}
		int done = txq_send(sender, packet, sizeof packet);
		CHECK(done == TXQ_SUCCESS || done == TXQ_E_NO_BUFFER);
		sent += done == TXQ_SUCCESS;
	}
	CHECK(full > 0);
	CHECK(txq_dev_drain(dev, 600 * SECOND) == 1);
	CHECK(stats_of(dev).sent == 200 && stats_of(dev).dropped == 0);
	CHECK(txq_sender_free(sender) == 0);
	end(dev);
}

static void limits(void)
{
	txq_packet packets[64] = {{.size = sizeof packets[0]}};
	txq_dev *dev = null_device("pfifo");
	txq_sender *sender = txq_sender_new(dev, "main");
	int64_t n, held = 0;

	CHECK(txq_sender_set_limit(sender, 10) == 0);
	while ((n = txq_sender_alloc(sender, packets + held, 64 - held, 10)) > 0) {
		held += n;
		packets[held].size = sizeof packets[held];
	}
	CHECK(n == TXQ_E_LIMIT && held == 10);
	CHECK(txq_sender_wait_credit(sender, SECOND / 100) == 0);
	CHECK(txq_sender_discard(sender, packets, held) == 0);
	CHECK(txq_sender_wait_credit(sender, SECOND) == 1);
	CHECK_ERROR(txq_sender_alloc(sender, packets, 1, 1 << 20), TXQ_E_INVALID, "longer");
	CHECK(txq_sender_free(sender) == 0);
	end(dev);
}

static void refuses(void)
{
	static const char not_utf8[] = {(char)0xc0, 0};
	char text[64];
	uint64_t token = 0;
	txq_dev_stats stats = {.size = sizeof stats};
	txq_driver driver = {.size = sizeof driver};
	txq_memory memory = {.size = sizeof memory};
	txq_packet packet = {.size = sizeof packet}, other;

	/* Configurations. */
	CHECK(txq_dev_start(NULL) == NULL);
	CHECK(txq_dev_config_new(not_utf8) == NULL);
	CHECK(txq_dev_config_set(NULL, "txqs", "1") == TXQ_E_NULL);
	static const char *const wrong[] = {NULL, "", "null:", "udp:nowhere", "token_ring:tr0", "pcap:/nowhere/at/all.pcap",
					    "af_packet:no-such-if0"};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		txq_dev_config *config = txq_dev_config_new(wrong[i]);
		CHECK(config != NULL && txq_dev_start(config) == NULL && txq_last_error()[0] != 0);
	}
	txq_dev_config *config = txq_dev_config_new("null");
	CHECK(txq_dev_config_set(config, NULL, "1") == TXQ_E_NULL);
	CHECK(txq_dev_config_set(config, "txqs", NULL) == TXQ_E_NULL);
	CHECK(txq_dev_config_set(config, not_utf8, "1") == TXQ_E_TEXT);
	CHECK_ERROR(txq_dev_config_set(config, "txq", "1"), TXQ_E_INVALID, "txqs");
	CHECK_ERROR(txq_dev_config_set(config, "txqs", "-1"), TXQ_E_INVALID,
		    "txqs \"-1\" is not a whole number: use 0 to 65535");
	CHECK_ERROR(txq_dev_config_set(config, "txqs", ""), TXQ_E_INVALID, "txqs \"\" is not a whole number");
	CHECK_ERROR(txq_dev_config_set(config, "ring", "1k"), TXQ_E_INVALID,
		    "ring \"1k\" is not a whole number: use 0 to 4294967295");
	CHECK_ERROR(txq_dev_config_set(config, "txqs", "65536"), TXQ_E_INVALID,
		    "txqs \"65536\" is too large: use 0 to 65535");
	CHECK_ERROR(txq_dev_config_set(config, "rate_bps", "99999999999999999999999999999999999999999999"), TXQ_E_INVALID,
		    "is too large: use 0 to 18446744073709551615");
	CHECK_ERROR(txq_dev_config_set(config, "discipline", "lama"), TXQ_E_INVALID, "use one of");
	CHECK(txq_dev_config_set(config, "buffers", "99999999999999999999") == TXQ_E_INVALID);
	CHECK(txq_dev_config_set(config, "discipline", "anarchy") == TXQ_E_INVALID);
	CHECK_ERROR(txq_dev_config_set(config, "xps", "ff"), TXQ_E_INVALID, "auto or none");
	CHECK(txq_dev_config_set(config, "xps", "auto") == 0 && txq_dev_config_set(config, "xps", "none") == 0);
	CHECK(txq_dev_config_driver(config, NULL) == TXQ_E_NULL);
	CHECK_ERROR(txq_dev_config_driver(config, &driver), TXQ_E_NULL, "start_xmit");
	driver.size = 8;
	CHECK(txq_dev_config_driver(config, &driver) == TXQ_E_SIZE);
	CHECK_ERROR(txq_dev_config_memory(config, &memory), TXQ_E_NULL, "base");
	memory.size = 0;
	CHECK(txq_dev_config_memory(config, &memory) == TXQ_E_SIZE);
	CHECK(txq_dev_config_free(config) == 0 && txq_dev_config_free(NULL) == 0);
	config = txq_dev_config_new("null");
	CHECK(txq_dev_config_set(config, "qdisc", "nosuch") == 0);
	CHECK_ERROR(txq_dev_start(config), NULL, "nosuch");
	config = txq_dev_config_new("null");
	CHECK(txq_dev_config_set(config, "workers", "0") == 0);
	CHECK_ERROR(txq_dev_start(config), NULL, "workers");

	/* No device. */
	CHECK(txq_dev_free(NULL) == 0);
	CHECK(txq_dev_shutdown(NULL) == TXQ_E_NULL && txq_dev_drain(NULL, 0) == TXQ_E_NULL);
	CHECK(txq_dev_tc(NULL, "qdisc") == TXQ_E_NULL && txq_dev_audit(NULL) == TXQ_E_NULL);
	CHECK(txq_dev_get_stats(NULL, &stats) == TXQ_E_NULL && txq_dev_set_up(NULL, 1) == TXQ_E_NULL);
	CHECK(txq_dev_show(NULL, 0, NULL, 0, text, sizeof text) == TXQ_E_NULL);
	CHECK(txq_dev_complete(NULL, 0, &token, 1) == TXQ_E_NULL && txq_sender_new(NULL, "x") == NULL);

	txq_dev *dev = null_device("pfifo");
	CHECK(txq_dev_tc(dev, NULL) == TXQ_E_NULL && txq_dev_tc(dev, not_utf8) == TXQ_E_TEXT);
	CHECK(txq_dev_tc_batch(NULL, "qdisc") == TXQ_E_NULL && txq_dev_tc_batch(dev, NULL) == TXQ_E_NULL);
	CHECK(txq_dev_tc_batch(dev, not_utf8) == TXQ_E_TEXT);
	CHECK(txq_dev_tc_batch(dev, "# two\nqdisc replace root handle 1: htb\nclass add parent 1: classid 1:1 htb rate 1mbit") == 0);
	CHECK(txq_dev_tc_batch(dev, "class add parent 1: classid 1:2 htb rate 10gbit\n") == 1);
	CHECK(strstr(txq_last_error(), "Warning: sch_htb: quantum of class 10002 is big") != NULL);
	CHECK_ERROR(txq_dev_tc_batch(dev, "\nqdisc replace root pfifo\nqdisc explode root"), TXQ_E_TC, "line 3: ");
	CHECK_ERROR(txq_dev_tc(dev, "qdisc explode root"), TXQ_E_TC, "explode");
	CHECK(txq_dev_tc(dev, "") == TXQ_E_TC && txq_dev_tc(dev, "tc") == TXQ_E_TC);
	CHECK_ERROR(txq_dev_tc(dev, "qdisc replace root pfifo limit many"), TXQ_E_TC, "limit");
	stats.size = 3;
	CHECK(txq_dev_get_stats(dev, &stats) == TXQ_E_SIZE && txq_dev_get_stats(dev, NULL) == TXQ_E_NULL);
	CHECK(txq_dev_show(dev, 17, NULL, 0, text, sizeof text) == TXQ_E_INVALID);
	CHECK(txq_dev_complete(dev, 0, &token, 1) == TXQ_E_INVALID);
	CHECK(txq_sender_new(dev, NULL) == NULL && txq_sender_new(dev, not_utf8) == NULL);
	/* One kind of handle for another. */
	CHECK_ERROR(txq_send((txq_sender *)dev, (const uint8_t *)"x", 1), TXQ_E_INVALID, "no txq_sender");
	CHECK(txq_sched_len((txq_sched *)dev) == TXQ_E_INVALID);

	txq_sender *one = txq_sender_new(dev, "one"), *two = txq_sender_new(dev, "two");
	CHECK(txq_send(NULL, (const uint8_t *)"x", 1) == TXQ_E_NULL && txq_send(one, NULL, 1) == TXQ_E_NULL);
	CHECK(txq_sender_alloc(one, NULL, 1, 10) == TXQ_E_NULL && txq_xmit(one, NULL, 1) == TXQ_E_NULL);
	CHECK(txq_xmit(one, NULL, 0) == TXQ_SUCCESS);
	packet.size = 1;
	CHECK(txq_sender_alloc(one, &packet, 1, 10) == TXQ_E_SIZE);
	packet.size = sizeof packet;
	CHECK(txq_sender_alloc(one, &packet, 1, 10) == 1);
	CHECK_ERROR(txq_xmit(two, &packet, 1), TXQ_E_INVALID, "another sender");
	packet.len = 11;
	CHECK_ERROR(txq_xmit(one, &packet, 1), TXQ_E_INVALID, "longer");
	packet.len = 10;
	packet.tos = 256;
	CHECK(txq_xmit(one, &packet, 1) == TXQ_E_INVALID);
	packet.tos = 0;
	packet.segments = 1 << 16;
	CHECK(txq_xmit(one, &packet, 1) == TXQ_E_INVALID);
	packet.segments = 0;
	other = packet;
	other.id ^= 1ull << 40;
	CHECK(txq_xmit(one, &other, 1) == TXQ_E_INVALID);
	CHECK(txq_xmit_on(one, NULL, &packet, 1) == TXQ_E_NULL);
	/* The same packet twice in one call is one packet; then it is gone. */
	txq_packet twice[2] = {packet, packet};
	CHECK(txq_xmit(one, twice, 2) == TXQ_SUCCESS);
	CHECK(txq_xmit(one, &packet, 1) == TXQ_E_INVALID && txq_sender_discard(one, &packet, 1) == TXQ_E_INVALID);
	CHECK(txq_dev_drain(dev, 60 * SECOND) == 1 && stats_of(dev).sent == 1);
	/* A packet that nobody hands in ends with its sender. */
	CHECK(txq_sender_alloc(two, &packet, 1, 10) == 1);
	CHECK(txq_sender_free(two) == 0 && txq_sender_free(NULL) == 0 && txq_flow_free(NULL) == 0);

	/* After a shutdown, and after the device was freed, a sender drops. */
	CHECK(txq_dev_shutdown(dev) == 0 && txq_dev_shutdown(dev) == 0);
	CHECK(txq_send(one, (const uint8_t *)"x", 1) == TXQ_DROPPED);
	CHECK(txq_sender_wait_room(one, SECOND) == TXQ_E_GONE);
	end(dev);
	CHECK(txq_send(one, (const uint8_t *)"x", 1) == TXQ_DROPPED);
	CHECK(txq_sender_dropped(one) == 2);
	CHECK(txq_sender_free(one) == 0);
}

/* --- callbacks that break the rules --- */

struct wrong {
	txq_dev *dev;
	txq_sender *sender;
	pthread_t main;
	pthread_mutex_t lock;
	uint64_t kept[256];
	size_t count, released, refused;
	int lies, completes, reenters;
};

static size_t wrong_xmit(void *context, uint32_t txq, const txq_frame *frames, size_t n, uint64_t *retry_ns)
{
	struct wrong *self = context;

	CHECK(txq == 0 && n >= 1 && n <= 64 && frames[0].size == sizeof frames[0] && *retry_ns == 0);
	pthread_mutex_lock(&self->lock);
	for (size_t i = 0; i < n && self->count < 256; i++)
		self->kept[self->count++] = frames[i].token;
	self->refused++;
	pthread_mutex_unlock(&self->lock);
	if (self->reenters) {
		txq_dev_stats stats = {.size = sizeof stats};
		CHECK(txq_dev_get_stats(self->dev, &stats) == TXQ_E_BUSY);
		CHECK(txq_dev_shutdown(self->dev) == TXQ_E_BUSY && txq_dev_free(self->dev) == TXQ_E_BUSY);
		CHECK(txq_dev_drain(self->dev, 1) == TXQ_E_BUSY && txq_dev_tc(self->dev, "x") == TXQ_E_BUSY &&
		      txq_dev_tc_batch(self->dev, "x") == TXQ_E_BUSY);
		CHECK(txq_sender_new(self->dev, "inner") == NULL);
		/* The sender whose call this is, unless a worker calls. */
		if (pthread_equal(self->main, pthread_self()))
			CHECK(txq_send(self->sender, (const uint8_t *)"x", 1) == TXQ_E_BUSY);
	}
	/* Frames that it completes, and does not take. */
	if (self->completes)
		CHECK(txq_dev_complete(self->dev, 0, &frames[n - 1].token, 1) == 1);
	return self->lies ? SIZE_MAX : self->completes ? n - 1 : n;
}

static int32_t wrong_finish(void *context, uint32_t txq)
{
	(void)context;
	return txq == 0 ? ENOSPC : 0;
}

static void wrong_release(void *context)
{
	((struct wrong *)context)->released++;
}

static void misused(uint32_t ring, int lies, int completes)
{
	struct wrong self = {.lies = lies, .completes = completes, .reenters = 1, .main = pthread_self(),
			     .lock = PTHREAD_MUTEX_INITIALIZER};
	txq_driver driver = {.size = sizeof driver, .ring = ring, .context = &self, .start_xmit = wrong_xmit,
			     .finish = wrong_finish, .release = wrong_release};
	txq_dev_config *config = txq_dev_config_new(NULL);

	CHECK(txq_dev_config_driver(config, &driver) == 0);
	CHECK(txq_dev_config_driver(config, &driver) == TXQ_E_INVALID);
	CHECK(txq_dev_config_set(config, "qdisc", "pfifo") == 0);
	self.dev = txq_dev_start(config);
	CHECK(self.dev != NULL);
	self.sender = txq_sender_new(self.dev, "main");
	for (int i = 0; i < 5; i++)
		CHECK(txq_send(self.sender, (const uint8_t *)"abc", 3) == TXQ_SUCCESS);
	if (ring > 0 && !completes) {
		uint64_t made_up[3] = {0, 77, UINT64_MAX};
		/* Frames that were kept complete once. */
		CHECK(txq_dev_complete(self.dev, 0, made_up, 3) == 0);
		CHECK(txq_dev_complete(self.dev, 1, self.kept, 1) == TXQ_E_INVALID);
		CHECK(txq_dev_complete(self.dev, 0, NULL, 1) == TXQ_E_NULL);
		CHECK(txq_dev_drain(self.dev, SECOND / 100) == 0);
		/* Byte queue limits hold later frames back until the first ones are complete. */
		for (int64_t done = 0; done < 5;) {
			uint64_t kept[256];
			pthread_mutex_lock(&self.lock);
			size_t count = self.count;
			memcpy(kept, self.kept, sizeof kept);
			pthread_mutex_unlock(&self.lock);
			int64_t n = txq_dev_complete(self.dev, 0, kept, count);
			CHECK(n >= 0 && txq_dev_complete(self.dev, 0, kept, count) == 0);
			done += n;
			CHECK(done <= 5);
		}
	}
	CHECK(txq_dev_drain(self.dev, 60 * SECOND) == 1);
	txq_dev_stats stats = stats_of(self.dev);
	CHECK(stats.sent == 5 && stats.in_flight == 0 && self.refused >= 1);
	CHECK((stats.misuses > 0) == (lies || completes));
	CHECK(txq_dev_audit(self.dev) == 0);
	CHECK(self.released == 0);
	CHECK(txq_dev_free(self.dev) == TXQ_E_IO);
	CHECK(strstr(txq_last_error(), strerror(ENOSPC)) != NULL);
	CHECK(txq_sender_free(self.sender) == 0);
	CHECK(self.released == 1);
}

/* A device that is freed while it keeps frames. */
static void freed_early(void)
{
	struct wrong self = {.lock = PTHREAD_MUTEX_INITIALIZER};
	txq_driver driver = {.size = sizeof driver, .ring = 4, .context = &self, .start_xmit = wrong_xmit,
			     .release = wrong_release};
	txq_dev_config *config = txq_dev_config_new(NULL);
	CHECK(txq_dev_config_driver(config, &driver) == 0);
	CHECK(txq_dev_config_set(config, "qdisc", "pfifo") == 0);
	self.dev = txq_dev_start(config);
	self.sender = txq_sender_new(self.dev, "main");
	for (int i = 0; i < 10; i++)
		CHECK(txq_send(self.sender, (const uint8_t *)"abc", 3) == TXQ_SUCCESS);
	CHECK(txq_sender_free(self.sender) == 0);
	CHECK(txq_dev_free(self.dev) == 0);
	CHECK(self.released == 1);

	/* A configuration that is never started. */
	config = txq_dev_config_new("null");
	CHECK(txq_dev_config_driver(config, &driver) == 0);
	CHECK_ERROR(txq_dev_start(config), NULL, "one of them");
	CHECK(self.released == 2);
}

/* --- threads, fork, dlopen --- */

struct shared {
	txq_dev *dev;
	txq_sender *sender;
	pthread_barrier_t barrier;
	int busy, sent;
};

static void *leaves_a_sender(void *argument)
{
	struct shared *shared = argument;
	shared->sender = txq_sender_new(shared->dev, "short-lived");
	CHECK(txq_send(shared->sender, (const uint8_t *)"abc", 3) == TXQ_SUCCESS);
	return NULL;
}

static void *sends_too(void *argument)
{
	struct shared *shared = argument;
	int busy = 0, sent = 0;
	pthread_barrier_wait(&shared->barrier);
	for (int i = 0; i < 20000; i++) {
		int done = txq_send(shared->sender, (const uint8_t *)"abc", 3);
		CHECK(done == TXQ_SUCCESS || done == TXQ_CONGESTED || done == TXQ_DROPPED || done == TXQ_E_BUSY ||
		      done == TXQ_E_NO_BUFFER);
		busy += done == TXQ_E_BUSY;
		sent += done >= 0;
	}
	__atomic_fetch_add(&shared->busy, busy, __ATOMIC_RELAXED);
	__atomic_fetch_add(&shared->sent, sent, __ATOMIC_RELAXED);
	return NULL;
}

static void threads(void)
{
	struct shared shared = {.dev = null_device("pfifo limit 1000")};
	pthread_t ids[4];

	CHECK(pthread_create(&ids[0], NULL, leaves_a_sender, &shared) == 0);
	CHECK(pthread_join(ids[0], NULL) == 0);
	/* The sender belongs to no thread: another one uses it. Several at a time are refused, and nothing breaks. */
	CHECK(pthread_barrier_init(&shared.barrier, NULL, 4) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&ids[i], NULL, sends_too, &shared) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(ids[i], NULL) == 0);
	CHECK(txq_dev_drain(shared.dev, 600 * SECOND) == 1);
	txq_dev_stats stats = stats_of(shared.dev);
	CHECK((int)stats.accepted == shared.sent + 1 && stats.sent + stats.dropped == stats.accepted);
	CHECK(txq_sender_free(shared.sender) == 0);
	end(shared.dev);
}

static void forks(void)
{
	txq_dev *dev = null_device("pfifo");
	txq_sender *sender = txq_sender_new(dev, "parent");
	txq_sched *sched = txq_sched_new("pfifo", NULL);
	txq_item item = {.size = sizeof item, .len = 10};
	int status;

	CHECK(txq_send(sender, (const uint8_t *)"abc", 3) == TXQ_SUCCESS);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_ERROR(txq_send(sender, (const uint8_t *)"abc", 3), TXQ_E_FORKED, "parent");
		CHECK(txq_dev_tc(dev, "qdisc replace root pfifo") == TXQ_E_FORKED);
		CHECK(txq_sender_new(dev, "child") == NULL);
		CHECK(txq_dev_shutdown(dev) == TXQ_E_FORKED && txq_dev_free(dev) == TXQ_E_FORKED);
		CHECK(txq_sender_free(sender) == TXQ_E_FORKED);
		CHECK(txq_sched_enqueue(sched, 1, &item, 1) == 1 && txq_sched_len(sched) == 1);
		/* A device of its own works. */
		txq_dev *own = null_device("pfifo");
		txq_sender *mine = txq_sender_new(own, "mine");
		CHECK(txq_send(mine, (const uint8_t *)"abc", 3) == TXQ_SUCCESS);
		CHECK(txq_dev_drain(own, 60 * SECOND) == 1 && txq_sender_free(mine) == 0);
		end(own);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(txq_send(sender, (const uint8_t *)"abc", 3) == TXQ_SUCCESS);
	CHECK(txq_sched_len(sched) == 0 && txq_sched_free(sched) == 0);
	CHECK(txq_dev_drain(dev, 60 * SECOND) == 1 && stats_of(dev).sent == 2);
	CHECK(txq_sender_free(sender) == 0);
	end(dev);
}

/* Sends a line to the control socket; writes the answer to `answer`. */
static void ask(const char *path, const char *line, char *answer, size_t n)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t got = 0;

	CHECK(fd >= 0 && strlen(path) < sizeof to.sun_path);
	strcpy(to.sun_path, path);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	CHECK(write(fd, line, strlen(line)) == (ssize_t)strlen(line));
	while (got == 0 || answer[got - 1] != '\n') {
		ssize_t more = read(fd, answer + got, n - 1 - got);
		CHECK(more > 0);
		got += (size_t)more;
	}
	answer[got] = 0;
	close(fd);
}

/* A tool of the operator reaches the device while the program runs. */
struct question {
	const char *path, *line;
	char answer[4096];
};

static void *asks(void *argument)
{
	struct question *question = argument;

	ask(question->path, question->line, question->answer, sizeof question->answer);
	return NULL;
}

/* A command on a scheduler waits for the thread that owns the scheduler. */
static void serves_a_scheduler(txq_server *server, const char *path)
{
	txq_sched *s = txq_sched_new("handle 1: pfifo limit 4", NULL);
	txq_dropped dropped = {.size = sizeof dropped};
	struct question question = {
		path, "{\"v\":1,\"tc\":{\"words\":[\"qdisc\",\"replace\",\"dev\",\"mbufs\",\"root\",\"fq_codel\"]}}\n", ""};
	char shown[4096];
	pthread_t thread;
	int64_t polled = 0;

	CHECK(s != NULL);
	CHECK(txq_sched_control_fd(s) == TXQ_E_INVALID && txq_sched_control_poll(s, 1) == TXQ_E_INVALID);
	CHECK_ERROR(txq_server_add_sched(server, s, "a b"), TXQ_E_INVALID, "1 to 15");
	CHECK(txq_server_add_sched(server, s, NULL) == TXQ_E_NULL && txq_server_add_sched(server, NULL, "x") == TXQ_E_NULL);
	CHECK(txq_server_add_sched(server, s, "mbufs") == 0);
	CHECK_ERROR(txq_server_add_sched(server, s, "mbufs"), TXQ_E_INVALID, "served already");
	CHECK(txq_sched_control_poll(s, 1) == 0);
	txq_item item = {.size = sizeof item, .len = 100, .value = 7};
	CHECK(txq_sched_enqueue(s, 1, &item, 1) == 1);

	struct pollfd wait = {.fd = txq_sched_control_fd(s), .events = POLLIN};
	CHECK(wait.fd >= 0 && poll(&wait, 1, 0) == 0);
	CHECK(pthread_create(&thread, NULL, asks, &question) == 0);
	CHECK(poll(&wait, 1, 60000) == 1);
	while (polled == 0)
		polled = txq_sched_control_poll(s, 2);
	CHECK(polled > 0 && pthread_join(thread, NULL) == 0);
	CHECK(strstr(question.answer, "\"rc\":0") != NULL);
	CHECK(txq_sched_show(s, TXQ_SHOW_QDISCS, NULL, 0, shown, sizeof shown) > 0 && strstr(shown, "fq_codel") != NULL);
	/* What was queued in the qdisc that is gone is the program's again. */
	CHECK(txq_sched_dropped(s, &dropped, 1) == 1 && dropped.value == 7);
	CHECK(txq_sched_free(s) == 0);
}

static void serves(void)
{
	char folder[] = "/tmp/txq-capi-XXXXXX", place[64], path[128], answer[4096], shown[4096];

	CHECK(mkdtemp(folder) != NULL);
	snprintf(place, sizeof place, "%s/lab.sock", folder);
	CHECK_ERROR(txq_server_new(NULL), NULL, "the place");
	CHECK(txq_server_new("no spaces") == NULL);
	txq_server *server = txq_server_new(place);
	CHECK(server != NULL);
	CHECK(txq_server_new(place) == NULL && strstr(txq_last_error(), "another txq listens there") != NULL);
	CHECK(txq_server_path(server, path, sizeof path) == (int64_t)strlen(place) && strcmp(path, place) == 0);

	serves_a_scheduler(server, path);
	txq_dev *dev = null_device("pfifo limit 40");
	CHECK(txq_server_add(server, NULL) == TXQ_E_NULL && txq_server_add(NULL, dev) == TXQ_E_NULL);
	CHECK(txq_server_add(server, dev) == 0 && txq_server_add(server, dev) == 0);
	txq_dev *other = null_device("pfifo");
	CHECK_ERROR(txq_server_add(server, other), TXQ_E_INVALID, "\"null0\" is served already");
	end(other);
	ask(path, "{\"v\":1,\"info\":{}}\n", answer, sizeof answer);
	CHECK(strstr(answer, "null0") != NULL);
	ask(path, "{\"v\":1,\"tc\":{\"words\":[\"qdisc\",\"replace\",\"dev\",\"null0\",\"root\",\"fq_codel\"]}}\n", answer,
	    sizeof answer);
	CHECK(txq_dev_show(dev, TXQ_SHOW_QDISCS, NULL, 0, shown, sizeof shown) > 0);
	CHECK(strstr(shown, "fq_codel") != NULL);
	end(dev);
	ask(path, "{\"v\":1,\"info\":{}}\n", answer, sizeof answer);
	CHECK(strstr(answer, "null0") == NULL);
	CHECK(txq_server_free(server) == 0 && txq_server_free(NULL) == 0);
	CHECK(access(path, F_OK) != 0 && rmdir(folder) == 0);
}

static void opened_twice(void)
{
	for (int round = 0; round < 2; round++) {
		void *one = dlopen("libtxq.so.0", RTLD_NOW | RTLD_LOCAL), *two = dlopen("libtxq.so.0", RTLD_NOW);
		CHECK(one != NULL && one == two);
		uint32_t (*abi)(void);
		*(void **)&abi = dlsym(one, "txq_abi");
		CHECK(abi != NULL && abi() == TXQ_ABI);
		CHECK(dlclose(two) == 0 && dlclose(one) == 0);
		CHECK(abi() == TXQ_ABI);
	}
}

int main(void)
{
	sends();
	grows();
	waits_for_room();
	limits();
	refuses();
	misused(0, 0, 0);
	misused(8, 0, 0);
	misused(0, 1, 0);
	misused(8, 1, 0);
	misused(8, 0, 1);
	freed_early();
	threads();
	forks();
	serves();
	opened_twice();
	puts("device: all as expected");
	return 0;
}
