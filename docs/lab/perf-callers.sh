#!/bin/sh
# Which caller `perf lock contention` names for a wait in Linux' transmit path. Four senders on one pfifo behind a bridge; the
# function that takes the lock, and the one that perf names by default: it skips a frame more. Needs root, perf, cc, and a
# kernel before 6.19 (with busylock).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cc -O2 -o "$dir/send" "$here/send.c"
unshare -n sh -eu -c '
    ip link add br0 type bridge forward_delay 0
    ip link add e0 numtxqueues 1 type veth peer name e1
    ip link set e0 master br0
    for dev in e0 e1 br0; do ip link set $dev up; done
    tc qdisc replace dev e0 root pfifo limit 1000
    ip addr add 10.9.8.1/24 dev br0
    ip neigh add 10.9.8.2 lladdr 2:2:2:2:2:3 dev br0
    sleep 2
    for sender in 1 2 3 4; do timeout 4 "$1/send" 10.9.8.2 100000000 & done
    sleep 0.3
    perf lock record -a -g -o "$1/data" sleep 3 >"$1/log" 2>&1
    wait || true
' sh "$dir"
for skip in 2 3; do
    echo "--stack-skip $skip"
    perf lock contention --stack-skip $skip -i "$dir/data" 2>&1 | grep -E 'caller|spinlock' | head -5
done
