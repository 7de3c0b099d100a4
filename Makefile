# The commands of this project; scripts/ holds what each does. Run them as root on Debian 12.
.PHONY: setup build

# Installs what the build needs and this machine lacks, and says so; does nothing where nothing is missing.
setup:
	@scripts/setup.sh

build: setup
	cargo build --release
