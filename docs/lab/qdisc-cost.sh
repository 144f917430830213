#!/usr/bin/env bash
# What a qdisc costs Linux: nanoseconds for a UDP packet of 120 bytes to a dummy device, of one CPU that does nothing else.
# The kernel runs as a process (Debian's user-mode-linux), so that each qdisc is there and nothing of this machine is changed.
# Only the differences between the rows mean something.
set -euo pipefail
command -v linux.uml >/dev/null && command -v cc >/dev/null || { echo "SKIP: needs user-mode-linux and a C compiler"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/send.c" <<'C'
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
enum { BATCH = 1024, BATCHES = 100, ROUNDS = 7 };
int main(void)
{
    static char data[120];
    static struct iovec vec = { data, sizeof data };
    static struct mmsghdr batch[BATCH];
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
    struct timespec a, b;
    double best = 1e9;
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    inet_pton(AF_INET, "10.9.9.2", &to.sin_addr);
    if (connect(s, (void *)&to, sizeof to)) return 1;
    for (int i = 0; i < BATCH; i++) batch[i].msg_hdr.msg_iov = &vec, batch[i].msg_hdr.msg_iovlen = 1;
    for (int r = 0; r < ROUNDS; r++) {
        clock_gettime(CLOCK_MONOTONIC, &a);
        /* So many in a call that the call, which is slow here, does not count. */
        for (int i = 0; i < BATCHES; i++) sendmmsg(s, batch, BATCH, 0);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ns = ((b.tv_sec - a.tv_sec) * 1e9 + b.tv_nsec - a.tv_nsec) / (BATCH * BATCHES);
        if (ns < best) best = ns;
    }
    printf("%.0f\n", best);
}
C
cc -O2 -static -o "$work/send" "$work/send.c"
cat >"$work/init" <<INIT
#!/bin/bash
mount -t proc proc /proc
for m in drivers/net/dummy net/sched/sch_fq net/sched/sch_fq_codel net/sched/sch_cake; do
    insmod /usr/lib/uml/modules/\$(uname -r)/kernel/\$m.ko
done
ip link add d0 type dummy
ip addr add 10.9.9.1/24 dev d0
ip link set d0 up
ip neigh add 10.9.9.2 lladdr 2:2:2:2:2:2 dev d0
for q in noqueue pfifo_fast fq_codel fq cake noqueue; do tc qdisc replace dev d0 root \$q && echo "ROW \$q \$($work/send)"; done
echo o >/proc/sysrq-trigger
sleep 5
INIT
chmod +x "$work/init"
echo "qdisc       ns a packet"
timeout 120 linux.uml mem=512M rootfstype=hostfs rw "init=$work/init" con=null con0=fd:0,fd:1 </dev/null 2>/dev/null |
    tr -d '\r' | awk '/^ROW/ { printf "%-10s  %11s\n", $2, $3 }'
