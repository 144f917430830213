/* A scheduler: what it does with right calls, and that it refuses every wrong one. */
#include <stdint.h>

#include "check.h"

#define SECOND 1000000000ull

static txq_item item_of(uintptr_t value, uint32_t len)
{
	txq_item item = {.size = sizeof item, .len = len, .value = value};
	return item;
}

/* Values come back in the order of their classes, at their times; each value exactly once. */
static void schedules(void)
{
	int values[20];
	txq_item items[20];
	txq_departed out[32];
	txq_dropped dropped[32];
	uint64_t now = 1, at = 0;
	int seen[20] = {0}, sent = 0, high = 0;

	txq_sched *s = txq_sched_new("handle 1: tbf rate 1mbit burst 1600 latency 10s", NULL);
	CHECK(s != NULL);
	CHECK(txq_sched_tc(s, now, "tc qdisc add dev x parent 1:1 handle 10: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1") == 0);
	CHECK(txq_sched_tc(s, now, "filter add parent 10: handle 7 fw classid 10:1") == 0);
	CHECK(txq_sched_next(s, &at) == 0);
	for (int i = 0; i < 20; i++) {
		values[i] = i;
		items[i] = item_of((uintptr_t)&values[i], 1500);
		items[i].mark = i >= 10 ? 7 : 0;
	}
	CHECK(txq_sched_enqueue(s, now, items, 20) == 20);
	CHECK(txq_sched_len(s) == 20);
	out[0].size = sizeof out[0];
	while (txq_sched_len(s) > 0) {
		int64_t n = txq_sched_dequeue(s, now, out, 32, 0);
		CHECK(n >= 0 && n <= 32);
		for (int64_t i = 0; i < n; i++) {
			int value = *(int *)out[i].value;
			CHECK(out[i].len == 1500 && out[i].tos == -1 && seen[value]++ == 0);
			high += sent++ < 10 && value >= 10;
		}
		if (n == 0) {
			CHECK(txq_sched_next(s, &at) == 1 && at > now);
			now = at;
		}
	}
	CHECK(sent == 20 && high == 10);
	/* 19 packets of 12 ms each, as the burst lets the first one out at once. */
	CHECK(now > 200 * SECOND / 1000 && now < 240 * SECOND / 1000);

	txq_qdisc_stats stats = {.size = sizeof stats};
	CHECK(txq_sched_stats(s, &stats) == 0);
	CHECK(stats.size == sizeof stats && stats.packets == 20 && stats.bytes == 30000 && stats.qlen == 0);
	dropped[0].size = sizeof dropped[0];
	CHECK(txq_sched_dropped(s, dropped, 32) == 0);
	CHECK(txq_sched_free(s) == 0);
}

/* Every value that does not depart is handed back with its reason. */
static void drops(void)
{
	txq_item items[8];
	txq_departed out = {.size = sizeof out};
	txq_dropped dropped[3] = {{.size = sizeof dropped[0]}};
	int back[8] = {0}, seen = 0;
	txq_sched_config config = {.size = sizeof config, .packets = 4};
	txq_sched *s = txq_sched_new("pfifo limit 3", &config);

	CHECK(s != NULL);
	for (int i = 0; i < 8; i++)
		items[i] = item_of(i + 1, 100);
	/* Three are queued and four dropped; then as many dropped ones wait as packets may be queued. */
	CHECK(txq_sched_enqueue(s, 1, items, 8) == 7);
	CHECK(txq_sched_enqueue(s, 1, items + 7, 1) == 0);
	CHECK(txq_sched_drops(s, TXQ_DROP_QDISC_OVERLIMIT) == 4);
	for (int64_t n; (n = txq_sched_dropped(s, dropped, 3)) > 0; seen += n)
		for (int64_t i = 0; i < n; i++) {
			CHECK(dropped[i].reason == TXQ_DROP_QDISC_OVERLIMIT && dropped[i].size == sizeof dropped[i]);
			back[dropped[i].value - 1]++;
		}
	CHECK(seen == 4);
	CHECK(txq_sched_enqueue(s, 1, items + 7, 1) == 1);
	CHECK(txq_sched_dropped(s, dropped, 3) == 1);
	back[7]++;
	CHECK(txq_sched_dequeue(s, 1, &out, 1, 0) == 1);
	back[out.value - 1]++;
	CHECK(txq_sched_purge(s, 2) == 0);
	CHECK(txq_sched_dropped(s, dropped, 3) == 2);
	for (int i = 0; i < 2; i++) {
		CHECK(strcmp(txq_drop_reason(dropped[i].reason), "QUEUE_PURGE") == 0);
		back[dropped[i].value - 1]++;
	}
	for (int i = 0; i < 8; i++)
		CHECK(back[i] == 1);
	CHECK(txq_sched_len(s) == 0);
	CHECK(txq_sched_free(s) == 0);
}

/* Headers are read: flows are told apart, a filter chooses by DSCP, and congestion is marked. */
static void headers(void)
{
	uint8_t ip[28] = {0x45, 0x02, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88, 0x13, 0x89, 0, 8};
	txq_departed out[64];
	int marked = 0;
	txq_sched *s = txq_sched_new("handle 1: codel limit 1000 target 1ms interval 10ms ecn", NULL);

	CHECK(s != NULL);
	for (int i = 0; i < 64; i++) {
		txq_item item = item_of((uintptr_t)ip, 1500);
		item.header = ip;
		item.header_len = sizeof ip;
		item.link = TXQ_LINK_IP;
		CHECK(txq_sched_enqueue(s, 1000, &item, 1) == 1);
	}
	out[0].size = sizeof out[0];
	for (int i = 0; i < 64; i++) {
		CHECK(txq_sched_dequeue(s, 1000 + (i + 1) * (SECOND / 100), out, 1, 0) == 1);
		CHECK(out[0].tos == -1 || out[0].tos == 3);
		marked += out[0].tos == 3;
	}
	CHECK(marked > 0 && ip[1] == 0x02);
	CHECK(txq_sched_free(s) == 0);

	s = txq_sched_new("handle 1: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", NULL);
	CHECK(s != NULL);
	CHECK(txq_sched_tc(s, 1, "filter add parent 1: protocol ip flower ip_tos 0xb8/0xfc classid 1:1") == 0);
	for (int i = 0; i < 2; i++) {
		txq_item item = item_of(i, 1500);
		ip[1] = i == 1 ? 0xb8 : 0;
		item.header = ip;
		item.header_len = sizeof ip;
		item.link = TXQ_LINK_IP;
		CHECK(txq_sched_enqueue(s, 1, &item, 1) == 1);
	}
	CHECK(txq_sched_dequeue(s, 2, out, 2, 0) == 2);
	CHECK(out[0].value == 1 && out[1].value == 0);
	CHECK(txq_sched_free(s) == 0);
}

static void shows(void)
{
	char text[4096], small[8];
	txq_sched *s = txq_sched_new("handle 1: htb default 10", NULL);

	CHECK(s != NULL);
	CHECK(txq_sched_tc(s, 1, "class add parent 1: classid 1:10 htb rate 1mbit") == 0);
	CHECK(txq_sched_tc(s, 1, "filter add parent 1: handle 7 fw classid 1:10") == 0);
	int64_t n = txq_sched_show(s, TXQ_SHOW_QDISCS, NULL, 0, text, sizeof text);
	CHECK(n > 0 && (size_t)n == strlen(text) && strncmp(text, "qdisc htb 1: root", 17) == 0);
	CHECK(txq_sched_show(s, TXQ_SHOW_QDISCS, NULL, 0, NULL, 0) == n);
	CHECK(txq_sched_show(s, TXQ_SHOW_QDISCS, NULL, 0, small, sizeof small) == n);
	CHECK(strcmp(small, "qdisc h") == 0);
	CHECK(txq_sched_show(s, TXQ_SHOW_CLASSES, NULL, TXQ_SHOW_STATS, text, sizeof text) > 0);
	CHECK(strstr(text, "class htb 1:10 root") != NULL && strstr(text, "Sent 0 bytes") != NULL);

	/* A priority names a class of its own. */
	txq_item item = item_of(7, 100);
	txq_departed out = {.size = sizeof out};
	item.priority = TXQ_CLASS(1, 0x20);
	CHECK(item.priority == 0x10020 && TXQ_CLASS(0xffff, 0xffff) == 0xffffffff);
	CHECK(txq_sched_tc(s, 1, "class add parent 1: classid 1:20 htb rate 1mbit") == 0);
	CHECK(txq_sched_enqueue(s, 1, &item, 1) == 1 && txq_sched_dequeue(s, 1, &out, 1, 0) == 1 && out.value == 7);
	CHECK(txq_sched_show(s, TXQ_SHOW_CLASSES, NULL, TXQ_SHOW_STATS, text, sizeof text) > 0);
	CHECK(strstr(strstr(text, "class htb 1:20"), "Sent 100 bytes 1 pkt") != NULL);

	CHECK(txq_sched_show(s, TXQ_SHOW_FILTERS, "1:", TXQ_SHOW_JSON, text, sizeof text) > 0);
	CHECK(text[0] == '[' && strstr(text, "\"kind\":\"fw\"") != NULL);
	CHECK(txq_sched_show(s, TXQ_SHOW_QDISCS, NULL, TXQ_SHOW_JSON | TXQ_SHOW_STATS, text, sizeof text) > 0);
	CHECK(strstr(text, "\"handle\":\"1:\"") != NULL);

	CHECK_ERROR(txq_sched_show(s, 99, NULL, 0, text, sizeof text), TXQ_E_INVALID, "99");
	CHECK_ERROR(txq_sched_show(s, TXQ_SHOW_QDISCS, NULL, 64, text, sizeof text), TXQ_E_INVALID, "0x40");
	CHECK_ERROR(txq_sched_show(s, TXQ_SHOW_FILTERS, "one", 0, text, sizeof text), TXQ_E_TC, "one");
	CHECK_ERROR(txq_sched_show(s, TXQ_SHOW_QDISCS, "1:", 0, text, sizeof text), TXQ_E_INVALID, "NULL");
	CHECK_ERROR(txq_sched_show(s, TXQ_SHOW_QDISCS, NULL, 0, NULL, 5), TXQ_E_NULL, "buffer");
	CHECK(txq_sched_free(s) == 0);
}

/* Commands of several lines: warnings, the line of an error, and the packets that each command drops. */
static void batches(void)
{
	txq_dropped dropped[4] = {{.size = sizeof dropped[0]}};
	txq_item items[2] = {item_of(1, 100), item_of(2, 100)};
	txq_sched *s = txq_sched_new("handle 1: htb default 10", NULL);

	CHECK(s != NULL);
	CHECK(txq_sched_tc_batch(s, 1, "# a class and its leaf\n\nclass add parent 1: classid 1:10 htb rate 1mbit\n"
				       "  tc qdisc add parent 1:10 handle 10: pfifo") == 0);
	CHECK(txq_sched_tc_batch(s, 1, "") == 0 && txq_sched_tc_batch(s, 1, "# nothing\n") == 0);
	CHECK(txq_sched_tc_batch(s, 1, "class add parent 1: classid 1:20 htb rate 10gbit\n"
				       "class add parent 1: classid 1:30 htb rate 10gbit\n") == 1);
	const char *first = strstr(txq_last_error(), "Warning: sch_htb: quantum of class 10020 is big");
	CHECK(first != NULL && strstr(first, "\nWarning: sch_htb: quantum of class 10030 is big") != NULL);
	CHECK_ERROR(txq_sched_tc_batch(s, 1, "class add parent 1: classid 1:40 htb rate 1mbit\n#\nclass explode\nx"),
		    TXQ_E_TC, "line 3: ");
	CHECK(strstr(txq_last_error(), "explode") != NULL);
	CHECK(txq_sched_tc(s, 1, "class del classid 1:40") == 0);

	/* The first command drops two packets, and the second none. */
	CHECK(txq_sched_enqueue(s, 1, items, 2) == 2);
	CHECK(txq_sched_tc_batch(s, 2, "qdisc replace parent 1:10 handle 11: pfifo limit 5\nclass del classid 1:30") == 0);
	CHECK(txq_sched_dropped(s, dropped, 4) == 2 && dropped[0].value + dropped[1].value == 3);
	CHECK(txq_sched_len(s) == 0);
	CHECK(txq_sched_free(s) == 0);
}

static void refuses(void)
{
	static const char not_utf8[] = {'p', (char)0xff, 0};
	uint64_t at;
	txq_item item = item_of(0, 100);
	txq_departed out = {.size = sizeof out};
	txq_dropped dropped = {.size = sizeof dropped};
	txq_qdisc_stats stats = {.size = sizeof stats};
	txq_sched_config config = {.size = sizeof config - 4};

	CHECK(txq_abi() == TXQ_ABI && txq_version()[0] != 0);
	CHECK(txq_last_error() != NULL);
	CHECK(strcmp(txq_drop_reason(12345), "UNKNOWN") == 0);

	CHECK_ERROR(txq_sched_new(NULL, NULL), NULL, "NULL");
	CHECK_ERROR(txq_sched_new(not_utf8, NULL), NULL, "UTF-8");
	CHECK_ERROR(txq_sched_new("nosuch", NULL), NULL, "nosuch");
	CHECK_ERROR(txq_sched_new("noqueue", NULL), NULL, "holds no packets");
	CHECK_ERROR(txq_sched_new("pfifo", &config), NULL, "sizeof");
	config.size = sizeof config;
	config.packets = UINT32_MAX;
	CHECK_ERROR(txq_sched_new("pfifo", &config), NULL, "buffers");

	/* No scheduler. */
	CHECK_ERROR(txq_sched_tc(NULL, 1, "qdisc add"), TXQ_E_NULL, "txq_sched");
	CHECK(txq_sched_tc_batch(NULL, 1, "qdisc add") == TXQ_E_NULL);
	CHECK(txq_sched_enqueue(NULL, 1, &item, 1) == TXQ_E_NULL);
	CHECK(txq_sched_dequeue(NULL, 1, &out, 1, 0) == TXQ_E_NULL);
	CHECK(txq_sched_dropped(NULL, &dropped, 1) == TXQ_E_NULL);
	CHECK(txq_sched_purge(NULL, 1) == TXQ_E_NULL);
	CHECK(txq_sched_next(NULL, &at) == TXQ_E_NULL);
	CHECK(txq_sched_len(NULL) == TXQ_E_NULL);
	CHECK(txq_sched_stats(NULL, &stats) == TXQ_E_NULL);
	CHECK(txq_sched_drops(NULL, 0) == TXQ_E_NULL);
	CHECK(txq_sched_show(NULL, 0, NULL, 0, NULL, 0) == TXQ_E_NULL);
	CHECK(txq_sched_free(NULL) == 0);
	uint64_t other[64] = {0};
	CHECK_ERROR(txq_sched_len((txq_sched *)other), TXQ_E_INVALID, "no txq_sched");
	CHECK(txq_sched_free((txq_sched *)other) == TXQ_E_INVALID);
	CHECK(txq_sched_free((txq_sched *)((char *)other + 1)) == TXQ_E_INVALID);

	txq_sched *s = txq_sched_new("pfifo limit 10", NULL);
	CHECK(s != NULL);
	CHECK(txq_sched_tc(s, 1, NULL) == TXQ_E_NULL);
	CHECK(txq_sched_tc(s, 1, not_utf8) == TXQ_E_TEXT);
	CHECK(txq_sched_tc_batch(s, 1, NULL) == TXQ_E_NULL && txq_sched_tc_batch(s, 1, not_utf8) == TXQ_E_TEXT);
	CHECK_ERROR(txq_sched_tc(s, 1, "qdsic add"), TXQ_E_TC, "qdsic");
	CHECK(txq_sched_tc(s, 1, "") == TXQ_E_TC);
	CHECK(txq_sched_enqueue(s, 1, NULL, 1) == TXQ_E_NULL);
	CHECK(txq_sched_enqueue(s, 1, NULL, 0) == 0);
	CHECK(txq_sched_enqueue(s, 1, &item, SIZE_MAX / 2) == TXQ_E_INVALID);
	CHECK(txq_sched_enqueue(s, 1, (txq_item *)((char *)&item + 1), 1) == TXQ_E_INVALID);
	CHECK(txq_sched_dequeue(s, 1, NULL, 4, 0) == TXQ_E_NULL);
	CHECK(txq_sched_dequeue(s, 1, &out, SIZE_MAX / 2, 0) == TXQ_E_INVALID);
	CHECK(txq_sched_dropped(s, NULL, 4) == TXQ_E_NULL);
	CHECK(txq_sched_next(s, NULL) == TXQ_E_NULL);
	CHECK(txq_sched_stats(s, NULL) == TXQ_E_NULL);
	CHECK(txq_sched_drops(s, 999) == TXQ_E_INVALID);

	/* One wrong item of several: none is taken. */
	txq_item two[2] = {item, item};
	two[1].size = 0;
	CHECK_ERROR(txq_sched_enqueue(s, 1, two, 2), TXQ_E_SIZE, "txq_item");
	two[1] = item;
	two[1].header_len = 20;
	CHECK_ERROR(txq_sched_enqueue(s, 1, two, 2), TXQ_E_NULL, "header");
	two[1] = item;
	two[1].link = 7;
	CHECK_ERROR(txq_sched_enqueue(s, 1, two, 2), TXQ_E_INVALID, "item 1: its link");
	two[1] = item;
	two[1].segments = 65536;
	CHECK_ERROR(txq_sched_enqueue(s, 1, two, 2), TXQ_E_INVALID, "segments");
	two[1] = item;
	two[1].header = (const uint8_t *)"header";
	two[1].header_len = 6;
	two[1].len = 5;
	CHECK_ERROR(txq_sched_enqueue(s, 1, two, 2), TXQ_E_INVALID, "longer than its packet");
	CHECK(txq_sched_len(s) == 0);

	out.size = 1;
	dropped.size = 1;
	stats.size = 1;
	CHECK_ERROR(txq_sched_dequeue(s, 1, &out, 1, 0), TXQ_E_SIZE, "txq_departed");
	CHECK_ERROR(txq_sched_stats(s, &stats), TXQ_E_SIZE, "txq_qdisc_stats");
	for (int i = 0; i < 11; i++)
		CHECK(txq_sched_enqueue(s, 1, &item, 1) == 1);
	CHECK_ERROR(txq_sched_dropped(s, &dropped, 1), TXQ_E_SIZE, "txq_dropped");
	dropped.size = sizeof dropped;
	CHECK(txq_sched_dropped(s, &dropped, 1) == 1);
	/* A length of 0, and times that go back, are no reason to fail. */
	item.len = 0;
	CHECK(txq_sched_enqueue(s, UINT64_MAX, &item, 1) == 1);
	CHECK(txq_sched_purge(s, 0) == 0);
	CHECK(txq_sched_free(s) == 0);
}

int main(void)
{
	schedules();
	drops();
	headers();
	shows();
	batches();
	refuses();
	puts("sched: all as expected");
	return 0;
}
