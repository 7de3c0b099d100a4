#!/usr/bin/env bash
# Lists what a tracer or its tests could leave on a machine: loop devices, mounts, loaded tracing programs, processes of
# a marked run, files in the temporary folder. The same command before and after a run, compared, tells what was left.
#
#   scripts/leftovers.sh MARK    MARK stands in the environment of every process that the run started
set -euo pipefail

mark=$1

loops() { losetup --list --noheadings --output NAME,BACK-FILE | sed 's/^/loop device: /'; }
mounts() { awk '{ print "mount: " $2 " (" $3 ")" }' /proc/self/mounts; }
programs() {
    command -v bpftool >/dev/null || return 0
    bpftool prog list 2>/dev/null | grep -E '^[0-9]+: (tracing|raw_tracepoint|tracepoint|kprobe|perf_event)' | sed 's/  *tag.*//; s/^/program: /' || true
}
processes() {
    local environment pid
    for environment in /proc/[0-9]*/environ; do
        pid=${environment//[!0-9]/}
        grep -qzx "$mark" "$environment" 2>/dev/null || continue
        # This shell, its pipe and whoever called it carry the mark too.
        is_ancestor "$pid" || echo "process: $pid $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | cut -c1-120)"
    done
}
# Whether the process is this script, descends from it (its own pipes) or is one of those that called it.
is_ancestor() {
    local at=$1
    while [ "${at:-0}" -gt 1 ]; do
        [ "$at" != $$ ] || return 0
        at=$(awk '/^PPid:/ { print $2 }' "/proc/$at/status" 2>/dev/null || true)
    done
    at=$$
    while [ "${at:-0}" -gt 1 ]; do
        [ "$at" != "$1" ] || return 0
        at=$(awk '/^PPid:/ { print $2 }' "/proc/$at/status" 2>/dev/null || true)
    done
    return 1
}
# The lock by which test programs take turns is empty and stays.
files() { find /tmp /run /dev/shm -maxdepth 1 -name '*fsyncscope*' ! -name fsyncscope-tests.lock 2>/dev/null | sed 's/^/file: /'; }

{ loops; mounts; programs; processes; files; } | sort
