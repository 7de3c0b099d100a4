#!/usr/bin/env bash
# Builds the container image from this checkout: the agent as one static file. Asks no registry for anything.
#
#   deploy/build-image.sh [NAME:TAG]    fsyncscope:VERSION if not given
#
# IMAGE_TOOL   the program that builds, with its own flags: podman, buildah or docker; the first that is installed.
#              For instance IMAGE_TOOL="podman --root /srv/images --storage-driver vfs".
# The build of the agent itself needs what `make setup` installs.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "build-image: $*" >&2; exit 1; }

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
readonly version name=${1:-fsyncscope:$version} folder=target/image

tool() {
    local candidate
    for candidate in podman buildah docker; do
        ! command -v $candidate >/dev/null || { echo $candidate; return; }
    done
    fail "found neither podman nor buildah nor docker; install one of them"
}

# Only the last step of the build differs from `cargo build --release`: the libraries of the C world go into the file,
# too. The names of functions stay, for a panic's backtrace; lines of source do not.
static_agent() {
    cargo rustc --release --package fsyncscope --bin fsyncscope -- -Ctarget-feature=+crt-static -Cstrip=debuginfo
    # The file takes its place in one step: a build that breaks leaves the last one.
    rm -rf $folder
    mkdir -p $folder
    cp "${CARGO_TARGET_DIR:-target}/release/fsyncscope" $folder/
    ! readelf --program-headers $folder/fsyncscope | grep -q INTERP \
        || fail "the agent still asks for a dynamic loader; install the C library's static part (libc6-dev)"
}

static_agent
# Words on purpose: the tool comes with its flags.
read -ra tool <<<"${IMAGE_TOOL:-$(tool)}"
arguments=(--file deploy/Containerfile --tag "$name" --label "org.opencontainers.image.version=$version")
revision=$(git rev-parse HEAD 2>/dev/null || true)
[ -z "$revision" ] || arguments+=(--label "org.opencontainers.image.revision=$revision")
case ${tool[0]##*/} in
    docker) ;;
    # Nothing runs in this build, so it needs neither a runtime nor namespaces. The same commit gives the same image.
    podman|buildah) arguments+=(--isolation chroot --timestamp "$(git log -1 --format=%ct 2>/dev/null || echo 0)") ;;
    *) fail "IMAGE_TOOL=$IMAGE_TOOL is no tool that this script knows; name podman, buildah or docker" ;;
esac
"${tool[@]}" build "${arguments[@]}" $folder
echo "built $name: one file of $(stat --format=%s $folder/fsyncscope) bytes"
