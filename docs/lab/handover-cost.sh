#!/usr/bin/env bash
# What Linux does with a packet between qdisc and driver, as a part of a sendto() of 120 bytes: sch_direct_xmit() with
# validate_xmit_skb_list() and dev_hard_start_xmit(), without the driver (here ifb's, which drops). Needs root, perf and a C
# compiler. The interface is in a network namespace of its own.
set -euo pipefail
command -v perf >/dev/null && command -v cc >/dev/null && [ "$(id -u)" = 0 ] || { echo "SKIP: needs root, perf and a C compiler"; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -o "$work/send" "$here/send.c"
cat >"$work/run" <<'SH'
ip link add d0 type ifb
ip addr add 10.9.9.1/24 dev d0
ip link set d0 up
ip neigh add 10.9.9.2 lladdr 2:2:2:2:2:2 dev d0
tc qdisc replace dev d0 root pfifo_fast
perf record -q -o "$1/perf" -F 5000 -e cpu-clock:k -g "$1/send" 10.9.9.2 5000000
SH
unshare -n sh "$work/run" "$work" >/dev/null
perf report -i "$work/perf" --children --no-call-graph --stdio 2>/dev/null | awk '
    / sch_direct_xmit$/ { all = $1 + 0 }
    / ifb_xmit$/ { driver = $1 + 0 }
    / __sys_sendto$/ { send = $1 + 0 }
    END { printf "from qdisc to driver: %.1f %% of sendto()\n", 100 * (all - driver) / send }'
