#!/bin/sh
# Runs a sweep in parts by GNU parallel, and prints what the whole sweep would have printed:
#
#   contrib/sweep/parallel.sh PARTS FOLDER SCENARIO --vary PATH=VALUES..
#
# Options of parallel go into its variable. This runs the parts on two machines, which need txq-lab on their PATH:
#
#   PARALLEL='--sshlogin big1,big2' contrib/sweep/parallel.sh 64 results p0-pinned --vary workload.senders=1..480*2 --seeds 5
#
# A part that failed, or that a signal ended, runs when the script is called again.
set -eu
if [ $# -lt 3 ]; then
    echo "usage: $0 PARTS FOLDER SCENARIO --vary PATH=VALUES.." >&2
    exit 2
fi
parts=$1 folder=$2
shift 2
mkdir -p "$folder"
# Points come on stdout, so nothing has to be copied from other machines.
seq "$parts" | parallel --quote --joblog "$folder/log" --resume-failed \
    txq-lab sim sweep "$@" --quiet --threads 1 --json --shard "{}/$parts" >>"$folder/points.jsonl"
txq-lab sim merge "$folder/points.jsonl"
