# Two histograms of calls of xmit, one beside the other: what txq sim run --json says with and without a patch.
def bars($of; $x; $colour; $all):
  $of[] as $b | ($all | index($b.min)) as $at | ($b.count | if . > 0 then (log10 + 0.3) * 45 else 0 end) as $h
  | "<rect x=\"\(70 + $at * 40 + $x)\" y=\"\(270 - $h)\" width=\"16\" height=\"\($h)\" fill=\"\($colour)\"/>"
  , (if $b.count > 0 then
    "<text x=\"\(78 + $at * 40 + $x)\" y=\"\(266 - $h)\" text-anchor=\"middle\" font-size=\"8\">\($b.count)</text>" else empty end);
(.[0].xmit_ns) as $a | (.[1].xmit_ns) as $b | ([$a[], $b[]] | map(.min) | unique) as $all
| "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"330\" font-family=\"sans-serif\" font-size=\"12\">"
, "<rect width=\"640\" height=\"330\" fill=\"#fff\"/>"
, "<text x=\"70\" y=\"24\">Calls of xmit by the time they took, sixteen senders at one txq</text>"
, "<text x=\"70\" y=\"44\" fill=\"#56B4E9\">as it is</text><text x=\"140\" y=\"44\" fill=\"#000000\">with the patch</text>"
, bars($a; 0; "#56B4E9"; $all), bars($b; 18; "#000000"; $all)
, ($all | to_entries[]
  | "<text x=\"\(87 + .key * 40)\" y=\"288\" text-anchor=\"middle\" font-size=\"10\">\(if .value < 1024 then .value else "\(.value / 1024)K" end)</text>")
, "<text x=\"330\" y=\"312\" text-anchor=\"middle\">time of a call, from so many ns to twice as many, log scale</text>"
, "<text x=\"40\" y=\"165\" text-anchor=\"middle\" transform=\"rotate(-90 40 165)\">calls, log scale</text>", "</svg>"
