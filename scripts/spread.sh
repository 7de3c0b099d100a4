#!/usr/bin/env bash
# How far the figures spread that tests hold their tolerances against: runs those of the throttle and of the hog
# (`agent/tests/faults.rs`) and of the cost (`agent/tests/cost.rs`) again and again, and prints the table of
# docs/accuracy.md. Needs root and what the tests need.
#
#   scripts/spread.sh [REPETITIONS]     30 by default, some 50 s each
set -euo pipefail
cd "$(dirname "$0")/.."
readonly repetitions=${1:-30}
readonly tests=(
    a_throttles_delay_lies_before_the_submission
    a_hogs_bursts_are_the_time_that_a_journal_waits_for_its_cpu
    a_hogs_bursts_are_the_time_that_a_commit_waits_for_its_cpu
    probes_run_as_often_as_what_they_stand_on
    probes_run_no_oftener_where_every_cpu_is_busy
)
figures=$(mktemp)
trap 'rm -f "$figures"' EXIT
cargo test --quiet --release --test faults --test cost --no-run
for repetition in $(seq "$repetitions"); do
    # A repetition that the test calls a failure has its figures as well.
    said=$(cargo test --quiet --release --no-fail-fast --test faults --test cost -- --exact "${tests[@]}" --nocapture --test-threads=1 2>&1) || true
    grep -oE '^figure .*' <<<"$said" | tee -a "$figures" | sed "s/^/$repetition: /" >&2 || true
    grep -E '^(skipped: |test result: FAILED)|panicked at' <<<"$said" | sed "s/^/$repetition: /" >&2 || true
done
echo "| figure | repetitions | min | p10 | median | p90 | max |"
echo "|---|---|---|---|---|---|---|"
for name in $(cut -d' ' -f2 "$figures" | sort -u); do
    grep "^figure $name " "$figures" | cut -d' ' -f3 | sort -g | awk -v name="$name" '
        { value[NR] = $1 }
        function at(share) { return sprintf("%.3f", value[1 + int(share * (NR - 1) + 0.5)]) }
        END { printf "| `%s` | %d | %s | %s | %s | %s | %s |\n", name, NR, at(0), at(0.1), at(0.5), at(0.9), at(1) }'
done
