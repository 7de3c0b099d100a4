#!/usr/bin/env bash
# How much of the time of syncs stays unexplained, on each filesystem: quiet, and beside a writer that has its pages
# written back. Prints the rows of docs/accuracy.md. Needs root and a release build.
#
#   scripts/accuracy.sh [SYNCS [DISTURBED]]     10000 of each by default
#   scripts/accuracy.sh brokers [SECONDS]       real brokers with their clients: so long for each state, or 10000 syncs
set -euo pipefail
cd "$(dirname "$0")/.."

# Brokers are brought up by the machinery of the tests; their journals lie on ext4, ordered.
if [ "${1:-}" = brokers ]; then
    export FSYNCSCOPE_ACCURACY_SECONDS=${2:-30}
    echo "| broker | state | syncs | mean, us | of all time | of the time blocked |"
    echo "|---|---|---|---|---|---|"
    cargo test --quiet --release --bench unexplained -- --nocapture --test-threads=1 | grep --line-buffered -E '^\||FAILED|skipped: '
    exit "${PIPESTATUS[0]}"
fi
readonly quiet=${1:-10000} disturbed=${2:-${1:-10000}} agent=target/release/fsyncscope
scratch=$(mktemp -d /tmp/fsyncscope-accuracy-XXXXXX)
# The writer is a group of processes; one that waits for the disk ends when that is done.
end_writer() {
    [ -n "${writer:-}" ] || return 0
    kill -- "-$writer" 2>/dev/null || true
    wait "$writer" 2>/dev/null || true
    while pgrep -g "$writer" >/dev/null; do sleep 0.1; done
    writer=
}
cleanup() {
    end_writer
    ! mountpoint -q "$scratch/mount" || umount "$scratch/mount"
    [ -z "${device:-}" ] || losetup -d "$device"
    rm -rf "$scratch"
}
trap cleanup EXIT
mkdir "$scratch/mount"

# journal FILE COUNT: appends 4 KiB and syncs, a millisecond apart at most.
journal() {
    python3 - "$1" "$2" <<'P'
import os, sys, time
open("/proc/self/comm", "w").write("accuracy")
time.sleep(1.5)
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for number in range(int(sys.argv[2])):
    os.pwrite(file, b"x" * 4096, (number % 4096) * 4096)
    os.fdatasync(file)
    time.sleep(0.0005)
P
}

# measure NAME STATE: syncs under the agent, and the shares of their time as a row.
measure() {
    local syncs=${!2}
    journal "$scratch/mount/$2.txn" "$syncs" & local client=$!
    sleep 0.7
    "$agent" watch --threshold 0 --json --ring-bytes 67108864 --process accuracy --count "$syncs" >"$scratch/syncs" 2>"$scratch/said" &
    local watch=$!
    wait "$client"
    sleep 1
    kill -INT "$watch" 2>/dev/null || true
    wait "$watch" || true
    python3 - "$1" "$2" "$scratch/syncs" <<'P'
import json, sys
whole = blocked = left = 0
times = []
for line in open(sys.argv[3]):
    sync = json.loads(line)
    parts = {part["name"]: part["ns"] for part in sync["parts"]}
    times.append(sync["duration_ns"])
    whole += sync["duration_ns"]
    left += parts.get("remainder", 0)
    blocked += sync["duration_ns"] - sum(parts.get(name, 0) for name in ("on_cpu", "preempted", "run_queue"))
times.sort()
print(f"| {sys.argv[1]} | {sys.argv[2]} | {len(times)} | {times[len(times) // 2] / 1e3:.0f} | {left / whole:.2%} | {left / max(blocked, 1):.2%} |", flush=True)
P
}

# filesystem NAME COMMAND...: both states on a fresh one.
filesystem() {
    local name=$1; shift
    truncate -s 1G "$scratch/disk.img"
    "$@" "$scratch/disk.img" >/dev/null
    device=$(losetup --find --show --direct-io=on "$scratch/disk.img")
    mount "$device" "$scratch/mount"
    measure "$name" quiet
    setsid bash -c 'while :; do dd if=/dev/zero of="$0" bs=1M count=64 conv=notrunc,fdatasync status=none; done' "$scratch/mount/other" & writer=$!
    measure "$name" disturbed
    end_writer
    umount "$scratch/mount"
    losetup -d "$device"; device=
    rm "$scratch/disk.img"
}

echo "| filesystem | state | syncs | median, us | of all time | of the time blocked |"
echo "|---|---|---|---|---|---|"
filesystem "ext4, ordered" mkfs.ext4 -q
filesystem "ext4, fast_commit" mkfs.ext4 -q -O fast_commit
filesystem "ext4, no journal" mkfs.ext4 -q -O ^has_journal
filesystem XFS mkfs.xfs -q
filesystem btrfs mkfs.btrfs -q
