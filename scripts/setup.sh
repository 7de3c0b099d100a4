#!/usr/bin/env bash
# Brings a fresh Debian 12 with Rust to where `make build` works, and with --tests to where `make test` does.
#
# Says each thing that it installs or mounts, and does nothing where nothing is missing. It must not start a daemon,
# remove a package or change a toolchain: it says what to do instead.
#
#   scripts/setup.sh          what the build and the demo need
#   scripts/setup.sh --tests  that, and what the tests need
#   scripts/setup.sh --undo   unmounts what an earlier call mounted
set -euo pipefail
cd "$(dirname "$0")/.."

readonly rust_oldest=1.95 linker_version=0.13.0
readonly tools=target/tools
readonly mounted_mark=$tools/tracefs-was-mounted

# Debian's compiler with a core prebuilt for bpf; the one that Debian 12's browsers are built with.
readonly compiler=(rustc-web libstd-rust-web-dev-bpf)
# bpf-linker speaks to the same LLVM as that compiler: 22.
readonly linker_build=(llvm-22-dev)
# Both builds: a C linker for rustc. The demo: a scratch ext4 on a loop device.
readonly agent_build=(gcc libc6-dev make git ca-certificates e2fsprogs mount util-linux kmod procps)
# What the tests bring to life or ask as an oracle.
readonly tests=(strace bpftool systemd postgresql postgresql-contrib redis-server etcd-server etcd-client mariadb-server
    rabbitmq-server prometheus podman buildah runc catatonit xfsprogs btrfs-progs python3 python3-venv python3-pip
    qemu-system-x86 cpio xz-utils binutils dmsetup rust-web-src)

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }
at_least() { printf '%s\n%s\n' "$1" "$2" | sort --check=quiet --version-sort; }

# Those of the named packages that dpkg does not have.
missing() {
    local package
    for package in "$@"; do
        case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true) in
            installed) ;;
            *) echo "$package" ;;
        esac
    done
}

# install REASON PACKAGE...: one apt run for what is missing among them.
install() {
    local reason=$1; shift
    local wanted; mapfile -t wanted < <(missing "$@")
    [ ${#wanted[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "${wanted[*]} missing for $reason and this is no Debian; install their likes by hand (CONTRIBUTING.md)"
    [ "$(id -u)" = 0 ] || fail "installing ${wanted[*]} for $reason needs root; run make as root"
    say "installing ${wanted[*]} for $reason"
    refresh_lists
    without_daemons apt-get -o DPkg::Lock::Timeout=600 install --yes --quiet=2 --no-install-recommends --no-remove "${wanted[@]}" >"$tools/apt.log" 2>&1 \
        || { tail -n 20 "$tools/apt.log" >&2; fail "apt-get could not install ${wanted[*]}; see its words above"; }
}

refresh_lists() {
    [ -z "${lists_fresh:-}" ] || return 0
    say "refreshing apt's lists"
    apt-get -o DPkg::Lock::Timeout=600 update --quiet=2 || fail "apt-get update failed; see its words above"
    lists_fresh=yes
}

# A package's daemon is a tool of the tests, which start it themselves: Debian's policy hook keeps it down.
without_daemons() {
    local hook=/usr/sbin/policy-rc.d status=0
    if [ -e $hook ]; then DEBIAN_FRONTEND=noninteractive "$@"; return; fi
    printf '#!/bin/sh\nexit 101\n' >$hook && chmod 755 $hook
    DEBIAN_FRONTEND=noninteractive "$@" || status=$?
    rm -f $hook
    return $status
}

check_rust() {
    local cargo_version
    cargo_version=$(cargo --version 2>/dev/null | cut -d' ' -f2) || true
    [ -n "$cargo_version" ] || fail "found no cargo; install Rust $rust_oldest or newer with rustup, then run again"
    at_least "$rust_oldest" "$cargo_version" || fail "cargo is $cargo_version and the agent needs $rust_oldest or newer; update it (rustup update)"
}

set_up_compiler() {
    case ${FSYNCSCOPE_BPF_ROUTE:-debian} in
        debian) install "the bpf target's compiler" "${compiler[@]}" ;;
        nightly)
            [ -e "$(rustup run nightly rustc --print sysroot)/lib/rustlib/src/rust/library/core" ] \
                || fail "nightly has no rust-src; run rustup toolchain install nightly --component rust-src" ;;
        *) fail "FSYNCSCOPE_BPF_ROUTE=$FSYNCSCOPE_BPF_ROUTE is no route; set it to debian or nightly, or unset it" ;;
    esac
}

right_linker() { [ "$("$1" --version 2>/dev/null)" = "bpf-linker $linker_version" ]; }

set_up_linker() {
    local found
    for found in "${BPF_LINKER:-}" $tools/bin/bpf-linker "$(command -v bpf-linker || true)"; do
        [ -z "$found" ] || ! right_linker "$found" || return 0
    done
    [ -z "${BPF_LINKER:-}" ] || fail "BPF_LINKER=$BPF_LINKER is not bpf-linker $linker_version; correct or unset it"
    install "building bpf-linker" "${linker_build[@]}"
    say "building bpf-linker $linker_version against LLVM 22 into $tools (two to four minutes, once)"
    LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker --version $linker_version --locked \
        --no-default-features --features llvm-22 --root $tools --target-dir $tools/build --no-track --force --quiet
    rm -rf $tools/build
    right_linker $tools/bin/bpf-linker || fail "bpf-linker was built but does not run; see $tools/bin/bpf-linker --version"
}

mount_tracefs() {
    local folder=/sys/kernel/tracing
    ! mountpoint --quiet $folder || return 0
    [ -d $folder ] && [ "$(id -u)" = 0 ] || { say "tracefs is not mounted and cannot be from here; the probes do without"; return 0; }
    if mount -t tracefs tracefs $folder; then
        say "mounted tracefs at $folder"
        touch $mounted_mark
    fi
}

undo() {
    [ -e $mounted_mark ] || return 0
    ! mountpoint --quiet /sys/kernel/tracing || umount /sys/kernel/tracing
    rm $mounted_mark
    say "unmounted tracefs"
}

set_up_tests() {
    install "the tests" "${tests[@]}"
    command -v javac >/dev/null || install "the tests' JVM" openjdk-17-jdk-headless
    command -v mvn >/dev/null || install "fetching the tests' broker" maven
}

mkdir -p $tools
case ${1:-} in
    --undo) undo; exit ;;
    ''|--tests) ;;
    *) fail "$1 is no option; give --tests, --undo or nothing" ;;
esac
check_rust
install "the build" "${agent_build[@]}"
if [ -z "${FSYNCSCOPE_PROBES_OBJECT:-}" ]; then
    set_up_compiler
    set_up_linker
fi
mount_tracefs
[ -z "${1:-}" ] || set_up_tests
