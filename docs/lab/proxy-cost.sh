#!/usr/bin/env bash
# What a small request costs a web server and the proxy in front of it: microseconds of CPU time, for several numbers of
# connections. Both are lighttpd with one thread, its default. They run in a network namespace of their own.
set -euo pipefail
command -v lighttpd >/dev/null && command -v wrk >/dev/null || { echo "SKIP: needs lighttpd and wrk"; exit 0; }
if [ $# -eq 0 ]; then exec unshare -rn "$0" inside; fi
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
ip link set lo up
ulimit -n 8192
head -c 500 /dev/zero >"$work/a"
common="server.document-root = \"$work\"
server.bind = \"127.0.0.1\"
server.max-keep-alive-requests = 1000000
server.max-connections = 2048
server.max-fds = 8192"
echo "$common
server.port = 8081" >"$work/server"
echo "$common
server.port = 8080
server.modules = ( \"mod_proxy\" )
proxy.server = ( \"\" => (( \"host\" => \"127.0.0.1\", \"port\" => 8081 )) )" >"$work/proxy"
lighttpd -D -f "$work/server" 2>/dev/null & server=$!
lighttpd -D -f "$work/proxy" 2>/dev/null & proxy=$!
sleep 1
# Hundredths of a second, as Linux counts a process' time.
cpu() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
echo "connections  proxy us  server us"
for connections in 16 32 64 1024; do
    before=$(cpu $proxy) server_before=$(cpu $server)
    requests=$(wrk -t 1 -c $connections -d 3 http://127.0.0.1:8080/a | awk '/requests in/ { print $1 }')
    awk -v c=$connections -v p=$(($(cpu $proxy) - before)) -v s=$(($(cpu $server) - server_before)) -v n="$requests" \
        'BEGIN { printf "%11d  %8.1f  %9.1f\n", c, p * 1e4 / n, s * 1e4 / n }'
done
