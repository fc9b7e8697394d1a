# SPDX-License-Identifier: GPL-2.0-or-later
PYTHON = /usr/bin/python3
VENV = build/venv
MIRRORFS = build/mirrorfs

RUN_PACKAGES = python3 python3-click python3-pyudev python3-rich fio fuse3 util-linux \
	gcc libc6-dev libfuse3-dev pkg-config
TEST_PACKAGES = python3-pytest python3-hypothesis python3-jsonschema python3-venv \
	attr bindfs e2fsprogs kmod openssh-client openssh-server procps shellcheck sshfs strace \
	libasan8 libubsan1
BENCH_PACKAGES = python3-optuna

.DEFAULT_GOAL = all
.PHONY: all deps test-deps demo check lint test test-versions bench bench-search clean

all: $(MIRRORFS)

# Names of packages are Debian's. As root they are installed; otherwise what is missing is named.
define install
	@missing=$$(for p in $(1); do \
		dpkg-query -Wf '$${db:Status-Abbrev}' $$p 2>/dev/null | grep -q '^ii' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" != 0 ]; then \
			echo "missing packages; as root: apt-get install" $$missing >&2; exit 1; fi; \
		apt-get -q update && DEBIAN_FRONTEND=noninteractive \
			apt-get -qy install --no-install-recommends $$missing; fi
endef

deps:
	$(call install,$(RUN_PACKAGES))

test-deps: deps
	$(call install,$(TEST_PACKAGES))

$(VENV)/.done: tests/lint-requirements.txt
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

$(MIRRORFS): deps $(wildcard mirrorfs/*.[ch]) mirrorfs/Makefile
	$(MAKE) -C mirrorfs

demo: $(MIRRORFS)
	$(PYTHON) -m tests.demo

lint: test-deps $(VENV)/.done
	$(VENV)/bin/ruff check -q .
	$(VENV)/bin/ruff format -q --check .
	$(VENV)/bin/mypy
	git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck

check: lint $(MIRRORFS)
	$(PYTHON) -m pytest -q tests/unit

test: check
	$(MAKE) -C mirrorfs SANITIZE=1
	$(PYTHON) -m pytest tests/native

# mirrorfs on the libfuse of newer Debian suites, in trees of their own.
test-versions:
	$(call install,mmdebstrap util-linux)
	mirrorfs/test-versions.sh

bench: $(MIRRORFS) test-deps
	$(PYTHON) -m tests.bench

bench-search: test-deps
	$(call install,$(BENCH_PACKAGES))
	$(PYTHON) -m tests.bench.bench_search

clean:
	rm -rf build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
