#!/bin/sh
# How much "after" sends of what "before" does, by what the ways of lines cost and by how long a contended line is kept: a
# table each, and a picture beside this file. Takes some minutes. Needs jq, and txq-lab on the PATH.
set -e
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for by in lines hold; do
    while read -r name change; do
        txq-lab sim sweep "$name" --quiet --vary "scale.$by=0.5..1.5+0.25" --vary "$change" --out "$dir/$name" >"$dir/table"
        jq -cs --arg name "$name" 'sort_by(.index) | range(0; length; 2) as $i | .[$i:$i+2]
            | {name: $name, at: .[0].at, ratio: (.[1].figures.mpps / .[0].figures.mpps)}' "$dir/$name"
    done >"$dir/ratios" <<-'END'
	p0-unpinned path.discipline=busylock,llist
	p0-pinned path.discipline=busylock,llist
	p1 path.pool=keep,defer
	p3-pktgen path.discipline=spinlock,lockless
	p4 steering=hash,near
	END
    jq -cs --arg by "scale.$by" 'length as $of | to_entries[] | {scenario: "published", variant: "after", of: $of,
        index: .key, at: {($by): .value.at[$by], ratio: .value.name}, figures: {ratio: .value.ratio}}' \
        "$dir/ratios" >"$dir/lines"
    txq-lab sim merge "$dir/lines" --figure ratio --svg "$here/by-$by.svg"
    echo
done
