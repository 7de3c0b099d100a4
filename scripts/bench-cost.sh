#!/usr/bin/env bash
# What tracing costs a sync, beside what biolatency costs that only counts requests (Debian package libbpf-tools).
#
#   scripts/bench-cost.sh [ROUNDS [SECONDS]]      as root, on a machine that does nothing else
#
# Blocks of {nothing, fsyncscope, biolatency} alternate over one journal workload, since the load of a machine changes
# more from minute to minute than these differ. For each block: runs of BPF programs and their time per sync as the kernel
# counts it, and the syncs' median and 99th percentile as the workload sees them. Once on a scratch loop ext4 with a
# journal, once without, and once for tasks that sync nothing: two processes that wake each other through a pipe.
#   FSYNCSCOPE_BENCH_AGENT    the command to measure; otherwise target/release/fsyncscope watch
set -euo pipefail
cd "$(dirname "$0")/.."

readonly rounds=${1:-5} seconds=${2:-8}
read -ra agent <<<"${FSYNCSCOPE_BENCH_AGENT:-target/release/fsyncscope watch}"
readonly writer=target/release/examples/journal_writer
biolatency=$(PATH=$PATH:/usr/sbin command -v biolatency || true)
readonly biolatency

scratch=$(mktemp -d -t fsyncscope-bench-XXXXXX)
counted=$(cat /proc/sys/kernel/bpf_stats_enabled)
tool=
clean() {
    [ -z "$tool" ] || kill "$tool" 2>/dev/null || true
    echo "$counted" >/proc/sys/kernel/bpf_stats_enabled
    ! mountpoint -q "$scratch/disk" || umount "$scratch/disk"
    rm -rf "$scratch"
}
trap clean EXIT

# Runs and ns so far of the programs whose descriptors a process holds.
usage() {
    cat /proc/"$1"/fdinfo/* 2>/dev/null | awk '
        /^prog_id:/ { id = $2 } /^run_time_ns:/ { ns[id] = $2 } /^run_cnt:/ { runs[id] = $2 }
        END { for (id in ns) { n += ns[id]; r += runs[id] } printf "%d %d\n", r, n }'
}

# start COMMAND...: runs a tool and waits until its programs are there and have found their feet.
start() {
    "$@" >/dev/null 2>"$scratch/said" &
    tool=$!
    local tries=0
    until grep -qs '^run_time_ns:' /proc/$tool/fdinfo/*; do
        tries=$((tries + 1))
        if [ $tries -gt 300 ] || ! kill -0 $tool 2>/dev/null; then
            echo "bench-cost: $1 attaches nothing: $(tail -1 "$scratch/said")" >&2
            exit 1
        fi
        sleep 0.1
    done
    sleep 1.5
}
stop() {
    kill -INT "$tool" 2>/dev/null || true
    wait "$tool" 2>/dev/null || true
    tool=
}

# block NAME ROUND COMMAND...: one line of figures.
block() {
    local name=$1 round=$2 before="0 0" after="0 0" syncs p50 p99; shift 2
    [ $# = 0 ] || start "$@"
    [ -z "$tool" ] || before=$(usage "$tool")
    read -r syncs p50 p99 < <("$writer" "$scratch/disk/journal" "$seconds")
    [ -z "$tool" ] || { after=$(usage "$tool"); stop; }
    echo "$round $name $syncs $before $after $p50 $p99" |
        awk '{ printf "%-6s %-11s %6d syncs  %7.1f runs/sync  %7.2f us/sync  p50 %6d us  p99 %6d us\n", $1, $2, $3, ($6 - $4) / $3, ($7 - $5) / $3 / 1000, $8, $9 }'
}

# compare WHAT MKFS OPTIONS...
compare() {
    local what=$1; shift
    truncate -s 256M "$scratch/image"
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$@" "$scratch/image"
    mkdir -p "$scratch/disk"
    mount -o loop "$scratch/image" "$scratch/disk"
    echo "== $what, load $(cut -d' ' -f1-3 /proc/loadavg)"
    for round in $(seq "$rounds"); do
        block nothing "$round"
        block fsyncscope "$round" "${agent[@]}"
        [ -z "$biolatency" ] || block biolatency "$round" "$biolatency" 3600
    done | tee "$scratch/lines"
    awk '{ runs[$2] = runs[$2] " " $5; us[$2] = us[$2] " " $7 }
        function median(list,   values, n, i, j, held) {
            n = split(list, values, " ")
            for (i = 2; i <= n; i++) { held = values[i] + 0; for (j = i - 1; j > 0 && values[j] + 0 > held; j--) values[j + 1] = values[j]; values[j + 1] = held }
            return values[int((n + 1) / 2)]
        }
        END { for (name in us) printf "median %-11s %7.1f runs/sync %7.2f us/sync\n", name, median(runs[name]), median(us[name]) }' "$scratch/lines"
    umount "$scratch/disk"
    rm "$scratch/image"
}

# Two processes that do nothing but wake each other.
unrelated() {
    local before after
    command -v perf >/dev/null || { echo "bench-cost: the cost for unrelated tasks needs the program perf" >&2; return; }
    echo "== tasks that sync nothing, load $(cut -d' ' -f1-3 /proc/loadavg)"
    for round in $(seq "$rounds"); do
        echo "$round nothing    $(perf bench sched pipe -l 100000 2>/dev/null | grep usecs/op)"
        start "${agent[@]}"
        before=$(usage "$tool")
        echo "$round fsyncscope $(perf bench sched pipe -l 100000 2>/dev/null | grep usecs/op)"
        after=$(usage "$tool")
        stop
        echo "$before $after" | awk '{ printf "%.2f runs per operation (two switches, two wake-ups), %.0f ns per run\n", ($3 - $1) / 100000, ($4 - $2) / ($3 - $1) }'
    done
}

cargo build --release --example journal_writer
echo 1 >/proc/sys/kernel/bpf_stats_enabled
[ -n "$biolatency" ] || echo "bench-cost: no biolatency to compare with; install libbpf-tools" >&2
compare "ext4 with a journal"
compare "ext4 without a journal" -O ^has_journal
unrelated
