#!/usr/bin/env bash
# Installs what the build needs and this machine lacks: Debian's compiler for the bpf target and a bpf-linker.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -x target/tools/bin/bpf-linker ] || [ -n "${BPF_LINKER:-}" ] || {
    apt-get install -y --no-install-recommends rustc-web libstd-rust-web-dev-bpf llvm-22-dev libpolly-22-dev \
        zlib1g-dev libzstd-dev libxml2-dev libffi-dev
    LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker --version 0.13.0 --locked \
        --no-default-features --features llvm-22 --root target/tools
}
