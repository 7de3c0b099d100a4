# The commands of this project; scripts/ holds what each does. Run them as root, on Debian 12 with Rust 1.95 or newer.
.PHONY: demo test build image setup lint clean

# One explained spike: the tracer over a journal workload and a writer that disturbs it, on a scratch loop ext4.
demo:
	@scripts/demo.sh

# Every test, those that need the kernel among them; the last line counts them.
test:
	@scripts/test.sh

build: setup
	cargo build --release

# The container image fsyncscope:VERSION, by podman, buildah or docker; deploy/README.md.
image: setup
	@deploy/build-image.sh

# Installs what the build needs and this machine lacks, and says so; does nothing where nothing is missing.
setup:
	@scripts/setup.sh

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings

# Keeps target/tools, which took minutes to build and does not depend on the sources.
clean:
	@scripts/setup.sh --undo
	find target -mindepth 1 -maxdepth 1 ! -name tools -exec rm -rf {} +
