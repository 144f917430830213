#!/bin/sh
# Draws the picture of a planted error beside this file:
#
#   crates/txq-lab/errors/patches.sh lost-wakeup|unbounded|shared-counter TXQ PATCHED
#
# TXQ and PATCHED are two builds of `txq-lab`, without the patch and with it. Needs jq.
set -eu
if [ $# -ne 3 ]; then
    echo "usage: $0 lost-wakeup|unbounded|shared-counter TXQ PATCHED" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
lab=$here/../../../docs/lab/lab.toml
name=$1 plain=$2 patched=$3 set=
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
case $name in
unbounded)
    "$plain" sim run "$lab" --point one --quiet --json >"$dir/plain"
    "$patched" sim run "$lab" --point one --quiet --json >"$dir/patched"
    jq -rs -f "$here/hist.jq" "$dir/plain" "$dir/patched" >"$here/$name.svg"
    exit
    ;;
lost-wakeup)
    point=one vary='milliseconds=1..32*2'
    set='--set workload.senders=64 --set workload.credit=16 --set warmup=0'
    title='Throughput by measured time: a queue that loses a wake-up stops for ever'
    ;;
shared-counter)
    point=own vary='workload.senders=1..64*2'
    title='Throughput by senders: a counter on one line for all is a queue with one server'
    ;;
esac
# Each build has half of a sweep over a field that changes nothing here, and its value becomes the build's name.
for part in 1 2; do
    if [ $part = 1 ]; then txq=$plain; else txq=$patched; fi
    # shellcheck disable=SC2086 # several words
    "$txq" sim sweep "$lab" --point "$point" --quiet $set --vary "$vary" --vary path.txqueuelen=1000,1001 \
        --shard "$part/2" --out "$dir/$part" >"$dir/table"
done
"$plain" sim merge "$dir/1" "$dir/2" --svg "$dir/svg" --title "$title"
sed 's/^1000$/as it is/; s/^1001$/with the patch/' "$dir/svg" >"$here/$name.svg"
