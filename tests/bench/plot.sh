#!/usr/bin/env bash
# Plots the kernels' lines of bench.jsonl. Usage: plot.sh BENCH.jsonl FOLDER: slots.svg and
# threads.svg (tokens per second), bandwidth.svg (share of the best read, per type), first-token.svg
# (time to the first token over the length of the prompt), and the points of each as .dat.
set -euo pipefail
lines=$1 folder=$2
command -v gnuplot >/dev/null || { echo "skip: gnuplot is not installed, nothing is drawn" >&2; exit 0; }
mkdir -p "$folder"

field() { sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^,\"}]*\\).*/\\1/p" <<<"$2"; }

# One row for each line of the kernels: model, what, slots, threads, prompt, tok_s, share, first token.
rows=$(grep -F '"bench":"cpu",' "$lines" | grep -E '"what":"(prefill|decode)"' | while read -r line; do
    model=$(field model "$line")
    echo "${model%.gguf} $(field what "$line") $(field slots "$line") $(field threads "$line")" \
        "$(field prompt "$line") $(field tok_s "$line") $(field bandwidth_share "$line")" \
        "$(field first_token_ms "$line")"
done)
[ -n "$rows" ] || exit 0
most=$(awk '$4 > m { m = $4 } END { print m }' <<<"$rows")

# points NAME CONDITION X Y: a block of points for each model that has more than one of them.
points() {
    awk "$2 { n[\$1]++; x[\$1, n[\$1]] = \$$3; y[\$1, n[\$1]] = \$$4; if (n[\$1] == 1) order[++models] = \$1 }
         END { for (m = 1; m <= models; m++) { k = order[m]; if (n[k] < 2) continue
               print \"\\n\\n\\\"\" k \"\\\"\"; for (i = 1; i <= n[k]; i++) print x[k, i], y[k, i] } }" \
        <<<"$rows" | sed '1,2{/^$/d}' >"$folder/$1.dat"
}
curve() { # NAME TITLE XLABEL YLABEL [more]
    [ -s "$folder/$1.dat" ] || return 0
    gnuplot <<G
set terminal svg noenhanced size 640,420 background "white"
set output "$folder/$1.svg"
set title "$2"
set xlabel "$3"
set ylabel "$4"
set grid
set key left top
set yrange [0:*]
${5:-}
stats "$folder/$1.dat" using 1 nooutput
plot for [i=0:int(STATS_blocks)-1] "$folder/$1.dat" index i using 1:2 with linespoints pointtype 7 title columnheader(1)
G
}

# Sorted by x: the runs come from several loops.
rows=$(sort -k1,1 -k2,2 -k3,3n -k4,4n -k5,5n -s <<<"$rows")
points slots "\$2 == \"decode\" && \$4 == $most && \$5 == 16" 3 6
points threads '$2 == "decode" && $3 == 1 && $5 == 128' 4 6
points first-token "\$2 == \"prefill\" && \$3 == 1 && \$4 == $most" 5 8
curve slots "tokens per second, slots decoding together ($most threads)" slots tokens/s
curve threads 'tokens per second, one slot' threads tokens/s 'set xtics 1'
curve first-token 'time to the first token' 'tokens of the prompt' ms 'set logscale xy; set yrange [*:*]'

awk "\$2 == \"decode\" && \$3 == 1 && \$4 == $most && \$5 == 128 { print \"\\\"\" \$1 \"\\\"\", \$7 * 100 }" \
    <<<"$rows" >"$folder/bandwidth.dat"
if [ -s "$folder/bandwidth.dat" ]; then
    gnuplot <<G
set terminal svg noenhanced size 640,420 background "white"
set output "$folder/bandwidth.svg"
set title "bytes read by decoding, of the best plain read ($most threads)"
set ylabel "percent"
set yrange [0:100]
set style fill solid 0.7
set boxwidth 0.6
set grid ytics
unset key
plot "$folder/bandwidth.dat" using 0:2:xtic(1) with boxes, "" using 0:(\$2+3):(sprintf("%.0f", \$2)) with labels
G
fi
echo "plots: $(cd "$folder" && echo *.svg) in $folder"
