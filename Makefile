# `make` alone lists the targets.

PREFIX ?= /usr/local
PORT ?= 8080
ROUNDS ?= 3
# Folders of experiments/; what is not named keeps its figures.
EXPERIMENTS ?= zds zimg symfony zstd download
QUICK ?=
FUZZ_SECONDS ?= 300
# The compiler whose warnings are errors. A newer one knows lints that this one does not: it shows them and fails nothing.
LINTED_WITH := 1.95
STRICT = $$(rustc --version | grep -q '^rustc $(LINTED_WITH)[.]' && echo '-D warnings' || true)
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# A Debian 13, if setup/debian-13.sh has laid it out: haulier is compiled for its PHP too.
DEBIAN_13 = $(realpath $(TARGET_DIR)/debian-13)
export HAULIER_PHP_ROOTS = $(DEBIAN_13)

# Where rustup puts cargo, for shells that have not been told yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.NOTPARALLEL:
.PHONY: help demo test check newer web pictures build bench experiments fuzz reloads sanitizer endurance deb tarball container install setup-build setup-demo setup-test setup-bench

help:                  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

# The program of the demo is built without the features that its site does not use, and without link-time optimisation.
demo: setup-build setup-demo ## build quickly, then serve examples/site on http://127.0.0.1:8080/ (PORT=…)
	@echo "Compiling haulier for a first look: 3 to 5 minutes on two cores. 'make build' makes the fast program."
	cargo build --profile demo --locked -p haulier --no-default-features --features mimalloc,turbo
	$(TARGET_DIR)/demo/haulier serve examples/site --listen 127.0.0.1:$(PORT)

test: setup-build setup-test check ## install what the tests need, then check

check: setup-build     ## format, clippy, all tests, docs; installs nothing but a compiler
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- $(STRICT)
	RUSTDOCFLAGS="$(STRICT)" cargo doc --workspace --no-deps --locked --quiet
	python3 -m unittest discover --start-directory bench --pattern '*_test.py'
	python3 -m unittest discover --start-directory experiments --pattern '*_test.py'
	cargo test --workspace --locked --no-fail-fast
	@$(MAKE) --no-print-directory newer
	@$(MAKE) --no-print-directory web

# The programs that `make check` has compiled, with the PHP, the C library and the accounts of Debian 13.
NEWER = cargo test --workspace --locked --no-fail-fast \
	--config 'target."cfg(all())".runner = ["$(abspath setup/inside.sh)", "$(DEBIAN_13)"]'
newer:                 ## the tests of PHP on PHP 8.4, inside the Debian 13 that `make setup-test` lays out
	@if [ -n "$(DEBIAN_13)" ]; then \
		$(NEWER) --test embedded && \
		$(NEWER) --test pool --test end_to_end -- facts:: finish:: handoff:: octane:: own_workers_load:: \
			php_failures:: php_requests:: php_responses:: symfony:: worker_mode:: zend_functions::; \
	else echo "SKIPPED: the tests on PHP 8.4 need $(TARGET_DIR)/debian-13 (setup/debian-13.sh lays it out, as root)"; fi

# The program comes out of the same build as for the other tests: of one package alone it has other features, and takes minutes.
web:                   ## the tests in a browser, where Node.js 20 or newer is there to drive it
	@if command -v npm >/dev/null && node -e 'process.exit(+process.versions.node.split(".")[0] < 20 ? 1 : 0)'; then \
		cargo test --workspace --locked --no-run --quiet --test end_to_end && cd tests/web && npm ci --silent && HAULIER=$(abspath $(TARGET_DIR)/debug/haulier) node --test; \
	else echo "SKIPPED: the tests in a browser (tests/web) need Node.js 20 or newer with npm"; fi

pictures: build setup-test ## the chart and the screenshots of README.md, docs/images/ (MINUTES=16: how long the dashboard is fed)
	cargo run --locked -p haulier-charts --example peers -- bench/results.json docs/images
	cd tests/web && npm ci --silent && HAULIER=$(abspath $(TARGET_DIR)/release/haulier) node screenshots.js

build: setup-build     ## the release binary, target/release/haulier; its symbols beside it, in haulier.debug
	@echo "Compiling the release: 10 to 15 minutes on two cores. All crates are optimised together, which uses one core."
	cargo build --release --locked -p haulier --features avif
	@packaging/symbols.sh $(TARGET_DIR)/release/haulier

bench: setup-bench build ## compare with the peers, write docs/benchmarks.md (W="hello 10k" ROUNDS=3)
	$(TARGET_DIR)/release/haulier bench run bench/plan.toml --rounds $(ROUNDS) $(patsubst %,--only "%",$(W)) \
		--keep bench/results.json -o docs/benchmarks.md -o $(TARGET_DIR)/benchmarks.html

experiments: setup-bench build ## experiments of others beside the peers, docs/experiments.md (EXPERIMENTS="zds zstd" QUICK=--quick)
	$(if $(QUICK),,cargo build --release --locked -p haulier-image --example thumbnails)
	experiments/run.py --haulier $(TARGET_DIR)/release/haulier --output $(TARGET_DIR) $(QUICK) $(EXPERIMENTS)

fuzz: setup-build      ## damage every parser's input for FUZZ_SECONDS in all (300)
	HAULIER_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --locked -p haulier-proto --test mutation
	HAULIER_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --locked -p haulier-image --test hostile damaged

reloads: setup-build setup-test ## 50,000 requests across 20 reloads, over HTTP/1.1, HTTP/2, TLS and in worker mode, none of which may fail
	HAULIER_RELOADS=20 HAULIER_REQUESTS=50000 HAULIER_KILLS=200 cargo test --locked -p haulier --test end_to_end -- --nocapture \
		reload::requests_across_reloads reload::streams_of_http2_across reload::certificates_are_exchanged own_workers_load::

sanitizer: setup-build setup-test ## the C part of our own PHP workers under AddressSanitizer, with its tests
	tests/sanitizer/run.sh

endurance: setup-build setup-test ## 100,000 requests through one worker of each application, which must not grow
	HAULIER_REQUESTS=100000 cargo test --locked -p haulier --test end_to_end -- --nocapture endurance::

deb: build             ## a Debian package of the release binary, in target/
	@packaging/deb.sh $(TARGET_DIR)/release/haulier $(TARGET_DIR)

tarball: build         ## the release binary with manual pages, completions and docs as a tar.gz, in target/
	@packaging/tarball.sh $(TARGET_DIR)/release/haulier $(TARGET_DIR)

container: build       ## the container image, built by podman or docker, and tried
	@packaging/container.sh $(TARGET_DIR)/release/haulier

install: build         ## copy the binary to PREFIX/bin (/usr/local), and what php-fpm may read to PREFIX/share/haulier
	install -D -m 755 $(TARGET_DIR)/release/haulier $(DESTDIR)$(PREFIX)/bin/haulier
	install -D -m 644 crates/haulier/src/prelude.php $(DESTDIR)$(PREFIX)/share/haulier/prelude.php

setup-build:
	@setup/build.sh

setup-demo:
	@setup/demo.sh

setup-test:
	@setup/test.sh

setup-bench:
	@setup/bench.sh
