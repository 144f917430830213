#!/bin/sh
#SBATCH --job-name=txq-sweep
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --time=01:00:00
# Runs a sweep in parts as an array job of Slurm. FOLDER is on a file system that all nodes share:
#
#   sbatch --array=1-64 contrib/sweep/slurm.sh 64 FOLDER SCENARIO --vary PATH=VALUES..
#   txq-lab sim merge FOLDER/*.jsonl                              once all parts have ended
#   sbatch --array=7,12 contrib/sweep/slurm.sh 64 FOLDER ..   again, for parts that failed
set -eu
if [ $# -lt 3 ]; then
    echo "usage: sbatch --array=1-PARTS $0 PARTS FOLDER SCENARIO --vary PATH=VALUES.." >&2
    exit 2
fi
parts=$1 folder=$2
shift 2
part=${SLURM_ARRAY_TASK_ID:?this is the script of an array job: sbatch --array=1-$parts}
mkdir -p "$folder"
exec txq-lab sim sweep "$@" --quiet --threads "${SLURM_CPUS_PER_TASK:-1}" --shard "$part/$parts" --out "$folder/$part.jsonl"
