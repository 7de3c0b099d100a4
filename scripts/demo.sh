#!/usr/bin/env bash
# `make demo`: sets up, builds, runs the demo and leaves nothing behind that was not there before but the build.
set -euo pipefail
cd "$(dirname "$0")/.."

trap 'scripts/setup.sh --undo' EXIT
scripts/setup.sh
cargo build --release
target/release/fsyncscope demo
