#!/usr/bin/env bash
# `make test`: sets up, builds, then runs every test: the pure ones at once, then those that need the kernel one by one.
#
# A test that cannot be run on this kernel prints a line `skipped: NAME: reason`; that fails the whole, unless
# ALLOW_SKIPS=1 is given and CI is not set: a green run means that every line was seen. (A kernel to boot that cannot be
# fetched is no such test.) The last line of the output is
# the sum over all: `N passed, N failed, N skipped`.
#
#   scripts/test.sh           all
#   scripts/test.sh NAME...   only these files of agent/tests, for instance `scripts/test.sh tidy golden`
set -euo pipefail
cd "$(dirname "$0")/.."

# Files of agent/tests that know nothing of the kernel and so may run side by side; all others trace it, one at a time.
readonly pure=" tidy golden facts metrics names select routes mutants "
# A kernel test that hangs must not eat the time of all others.
readonly limit_seconds=${FSYNCSCOPE_TEST_LIMIT_SECONDS:-1200}

log=$(mktemp)
trap 'rm -f "$log"; scripts/setup.sh --undo' EXIT
broken=()

# run TITLE ARGUMENTS OF CARGO TEST...: streams the output and keeps it for the sum.
run() {
    local title=$1 status=0 started=$SECONDS; shift
    echo "== $title"
    timeout --kill-after=30 "$limit_seconds" cargo test --release --no-fail-fast "$@" </dev/null 2>&1 | tee -a "$log" || status=$?
    echo "== $title: $((SECONDS - started)) s"
    [ $status = 0 ] || broken+=("$title: exit code $status")
}

# Cargo's own rule: a file of agent/tests is a test program, and so is a folder with a main.rs.
test_names() {
    { find agent/tests -maxdepth 1 -name '*.rs' -printf '%f\n'
      find agent/tests -mindepth 2 -maxdepth 2 -name main.rs -printf '%h\n'; } | sed 's|.*/||; s|\.rs$||' | sort
}

run_named() {
    case $pure in
        *" $1 "*) run "$1" --package fsyncscope --test "$1" -- --nocapture ;;
        *) run "$1" --package fsyncscope --test "$1" -- --nocapture --test-threads=1 ;;
    esac
}

# The figures of cargo's result lines, and the lines of tests that were skipped (a skipped test counts as passed there).
count() {
    awk '
        /^test result: / { passed += $4; failed += $6; skipped += $8 }
        /(^|\.\.\. )skipped: / { passed--; skipped++ }
        END { printf "%d %d %d\n", passed, failed, skipped }' "$log"
}

# Other kernels come from a mirror that may have none of them any more: that is said, and no fault of the sources.
skips_allowed() {
    local own
    own=$(grep -cE '(^|\.\.\. )skipped: ' < <(grep -v 'which cannot be had' "$log")) || true
    [ "$own" = 0 ] || { [ -z "${CI:-}" ] && [ "${ALLOW_SKIPS:-}" = 1 ]; }
}

# Prints what went wrong and the sum; succeeds only if everything was seen.
summary() {
    local passed failed skipped
    read -r passed failed skipped < <(count)
    # A run that broke without a failed test (no compile, time-out, abort) is a failure all the same.
    [ ${#broken[@]} -le "$failed" ] || failed=${#broken[@]}
    [ ${#broken[@]} = 0 ] || printf 'broken: %s\n' "${broken[@]}"
    grep -oE '(^|\.\.\. )skipped: .*|^test .* \.\.\. ignored.*' "$log" | sed 's/^\.\.\. //' || true
    echo "$passed passed, $failed failed, $skipped skipped" | tee target/test-sum
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ] && { [ "$skipped" = 0 ] || skips_allowed; }
}

scripts/setup.sh --tests
cargo build --release
if [ $# -gt 0 ]; then
    for name in "$@"; do run_named "$name"; done
else
    run "unit tests" --workspace --lib --bins -- --nocapture
    tests=$(test_names)
    for name in $tests; do case $pure in *" $name "*) run_named "$name" ;; esac; done
    for name in $tests; do case $pure in *" $name "*) ;; *) run_named "$name" ;; esac; done
fi
summary
