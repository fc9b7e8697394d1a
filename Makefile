# SPDX-License-Identifier: GPL-2.0-or-later
PYTHON = /usr/bin/python3
VENV = build/venv
MIRRORFS = build/mirrorfs
INTERCEPT = build/fusetune-intercept
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' fusetune/__init__.py)

RUN_PACKAGES = python3 python3-click python3-jinja2 python3-prometheus-client python3-pyudev \
	python3-rich python3-systemd python3-tomlkit fio fuse3 util-linux gcc libc6-dev libfuse3-dev libseccomp-dev \
	pkg-config
TEST_PACKAGES = python3-pytest python3-pytest-xdist python3-html5lib python3-hypothesis \
	python3-jsonschema python3-markdown-it python3-venv \
	archivemount attr bindfs bpftool bpftrace btrfs-progs e2fsprogs encfs fish fuse-overlayfs gocryptfs kmod less mandoc mergerfs \
	ntfs-3g openssh-client openssh-server patch procps prometheus prometheus-node-exporter rclone \
	shellcheck squashfs-tools squashfuse sshfs strace systemd unionfs-fuse xfsprogs libasan8 \
	libubsan1 zsh
# Chromium opens the HTML report.
SYSTEM_PACKAGES = mmdebstrap systemd-container util-linux chromium chromium-driver python3-pil \
	python3-selenium
KERNEL_PACKAGES = coccinelle e2fsprogs mmdebstrap perl sparse tar util-linux xz-utils
# For fsx and pjdfstest; Debian 12's own cargo is too old for them.
ifeq ($(shell command -v cargo),)
KERNEL_PACKAGES += $(if $(shell apt-cache --quiet=0 show cargo-web 2>/dev/null),cargo-web,cargo)
endif
# Go builds Helm, and the S3 server of the virtual machines and of make bench. Kubernetes' programs
# need a newer Go, which comes with their tree.
GO_PACKAGES = $(if $(shell command -v go),,golang-go)
KERNEL_PACKAGES += $(GO_PACKAGES)
LIBFUSE_PACKAGES = coccinelle mmdebstrap util-linux
IMAGE_PACKAGES = dpkg-dev mmdebstrap umoci
SYSEXT_PACKAGES = dpkg-dev patchelf squashfs-tools
FLEET_PACKAGES = ansible-core ansible-lint debhelper dh-python podman python3-yaml runc \
	systemd-container $(IMAGE_PACKAGES) $(SYSEXT_PACKAGES) $(GO_PACKAGES)
SITE_PACKAGES = mandoc mkdocs-material
PACKAGING_PACKAGES = coccinelle dpkg-dev gnupg mmdebstrap perl piuparts reprepro util-linux xz-utils \
	$(SITE_PACKAGES)
DIST_PACKAGES = dpkg-dev debian-archive-keyring
RPM_PACKAGES = rpm abigail-tools coccinelle meson python3-html5lib python3-hypothesis \
	python3-jsonschema python3-markdown-it python3-pytest
REPO_PACKAGES = reprepro createrepo-c rpm gnupg
FUZZ_PACKAGES = clang libclang-rt-14-dev
BENCH_PACKAGES = python3-optuna
# More servers that make bench mounts.
ADVISED_PACKAGES = s3fs
S3_SERVER = build/gofakes3

PREFIX = /usr
MODULES = $(PREFIX)/share/fusetune

.DEFAULT_GOAL = all
.PHONY: all deps test-deps all-deps docs site pictures demo check quick lint install install-completion \
	install-dkms test test-long test-versions test-system test-kernel test-debug-kernel \
	fuzz-kernel test-libfuse test-packaging test-fleet ansible fuzz mutants bench bench-tuner bench-search dist deb rpm repo \
	sysext image clean

all: $(MIRRORFS) $(INTERCEPT)

# Debian's package names. Run by root, installs them; otherwise prints the missing ones.
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

$(VENV)/.done: tests/lint-requirements.txt tests/axe-requirements.txt tests/grafana-requirements.txt
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check -r $<
	$(VENV)/bin/pip install -q --disable-pip-version-check --no-deps \
		-r tests/axe-requirements.txt -r tests/grafana-requirements.txt
	touch $@

# Compares manifests with Kubernetes' schemas.
build/kubernetes/.done: tests/kubernetes-requirements.txt
	$(PYTHON) -m venv build/kubernetes
	build/kubernetes/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

$(MIRRORFS): deps $(wildcard mirrorfs/*.[ch]) mirrorfs/Makefile
	$(MAKE) -C mirrorfs

$(INTERCEPT): deps $(wildcard intercept/*.[ch]) intercept/Makefile
	$(MAKE) -C intercept

# Fill in the tables of the manual, README and docs from those in the code.
docs: test-deps
	$(PYTHON) -B -m docs.generate

# The documentation as plain files in build/site.
site: deps
	$(call install,$(SITE_PACKAGES))
	$(PYTHON) -B -m docs.site build/site

# The pictures of docs/: a curve measured by auto, and its report in Chromium.
pictures: $(MIRRORFS) test-deps
	$(call install,$(SYSTEM_PACKAGES))
	unshare --mount --propagation private $(PYTHON) -m tests.pictures

demo: $(MIRRORFS)
	$(PYTHON) -m tests.demo

lint: test-deps $(VENV)/.done
	$(VENV)/bin/ruff check -q .
	$(VENV)/bin/ruff format -q --check .
	$(VENV)/bin/mypy
	$(PYTHON) -B -m docs.generate --check
	mandoc -Tlint -Wwarning man/*.[1-8]
	git ls-files -z '*.sh' .ci/run debian/*.in debian/*.prerm debian/*.postrm debian/tests/auto \
		debian/tests/module | xargs -0 shellcheck

# mypy uses one process; meanwhile the tests use the other processors.
check: $(VENV)/.done $(MIRRORFS) $(INTERCEPT)
	$(MAKE) --no-print-directory --output-sync -j 2 lint quick

# The trees of these tests are many small files. They are made in memory if it has room, and removed
# afterwards; pytest would keep those of three runs, and removing the oldest takes long on a disk.
quick: test-deps
	room=$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1); \
	scratch=$$(mktemp -d -p "$$([ "$${room:-0}" -gt 1000000 ] && echo /dev/shm || echo /tmp)"); \
	trap 'rm -rf "$$scratch"' EXIT INT TERM; \
	$(PYTHON) -m pytest -q -n auto --basetemp="$$scratch/unit" -m "not slow and not long" tests/unit

test: lint $(MIRRORFS) $(INTERCEPT)
	$(PYTHON) -m pytest -q -n auto tests/unit
	$(MAKE) -C mirrorfs SANITIZE=1
	$(PYTHON) -m pytest -n 3 --dist loadgroup -m "not long and not alone" tests/native
	$(PYTHON) -m pytest -m "alone and not long" tests/native

# Tests that are too long to run for each change, or repeat another; docs/testing.md lists them.
test-long: all-deps $(MIRRORFS) $(INTERCEPT)
	$(PYTHON) -m pytest -s -m long tests/native tests/kernel tests/libfuse tests/packaging tests/fleet

# mirrorfs with the libfuse of newer Debian suites, in the trees of test-libfuse.
test-versions:
	$(call install,$(LIBFUSE_PACKAGES))
	trees=$$($(PYTHON) -c 'from tests.libfuse.suites import SUITES; \
		print(*(suite.tree() for suite in SUITES[1:]))') && mirrorfs/test-versions.sh $$trees

# Units and rules, in a container with its own systemd and udevd; the HTML report in Chromium.
test-system: test-deps $(VENV)/.done $(MIRRORFS) $(INTERCEPT)
	$(call install,$(SYSTEM_PACKAGES))
	$(PYTHON) -m pytest tests/system

# The modules: imported from the kernel sources of four Debian suites, built there, and run on their
# kernels in virtual machines.
test-kernel: test-deps
	$(call install,$(KERNEL_PACKAGES))
	$(PYTHON) -m pytest tests/kernel

# The same checks on debug kernels and with failing allocations; takes hours. docs/testing.md says
# what they found.
test-debug-kernel: test-deps
	$(call install,$(KERNEL_PACKAGES))
	$(PYTHON) -m pytest tests/kernel/debug_checks.py

# A hostile server under KASAN: with the module, with all of the module's options, and with the same
# kernel's own FUSE. It sends FUZZ_REPLIES replies for each seed.
FUZZ_SERIES = 6.12
FUZZ_SEEDS = 1 2 3 4 5 6 7 8 9 10
FUZZ_REPLIES = 100000
fuzz-kernel: test-deps
	$(call install,$(KERNEL_PACKAGES))
	@failed=0; for type in fusetuned "fusetuned every" fuse; do \
		$(PYTHON) -m tests.kernel.debug $(FUZZ_SERIES) $$type $(FUZZ_SEEDS) $(FUZZ_REPLIES) || \
			failed=1; done; exit $$failed

# The tuned libfuse3: imported from the sources of three Debian suites, built there, and used by
# their servers.
test-libfuse: test-deps
	$(call install,$(LIBFUSE_PACKAGES))
	nice $(PYTHON) -m pytest tests/libfuse

# The packages: built and installed in trees of their suites.
test-packaging: test-deps
	$(call install,$(PACKAGING_PACKAGES))
	nice $(PYTHON) -m pytest tests/packaging

# The Ansible collection, a TuneD profile, the images for systemd-sysext and Kubernetes, and the Helm
# chart, on containers.
test-fleet: test-deps $(MIRRORFS) $(INTERCEPT) build/kubernetes/.done
	$(call install,$(FLEET_PACKAGES))
	$(PYTHON) -m pytest -n 2 --dist loadfile tests/fleet

# The Ansible collection as an archive, in build.
ansible:
	$(call install,ansible-core)
	ansible-galaxy collection build --force --output-path build ansible

# The packages of all these targets, so that the targets can run in parallel.
all-deps: test-deps
	$(call install,$(sort $(SYSTEM_PACKAGES) $(KERNEL_PACKAGES) $(LIBFUSE_PACKAGES) \
		$(PACKAGING_PACKAGES) $(FLEET_PACKAGES)))

# Fuzzes the parsers of the tuned libfuse3, for FUZZ_SECONDS each.
FUZZ_SECONDS = 60
fuzz:
	$(call install,$(FUZZ_PACKAGES))
	$(MAKE) -C tests/libfuse/fuzz SECONDS=$(FUZZ_SECONDS)

# Make one small mistake in the code at a time, and list those that no unit test finds. MUTANTS:
# modules, such as 'changes/*'; or -n 30 for 30 mutants of each module.
MUTANTS =
mutants: test-deps
	nice $(PYTHON) tests/mutants.py $(MUTANTS)

# ONLY: one section of docs/benchmarks.md, such as advice.
ONLY =
bench: $(MIRRORFS) test-deps
	$(call install,$(SYSTEM_PACKAGES) $(KERNEL_PACKAGES) $(ADVISED_PACKAGES) $(BENCH_PACKAGES))
	$(MAKE) $(S3_SERVER)
	$(PYTHON) -m tests.bench $(if $(ONLY),--only $(ONLY))

# The last version that Debian 12's Go can build.
$(S3_SERVER):
	CGO_ENABLED=0 GOBIN=$(CURDIR)/build go install \
		github.com/johannesboyne/gofakes3/cmd/gofakes3@v0.0.0-20240217095638-c55a48f17be6

# auto on real mounts: beside the grid, how often it misses a gain, deployed again, on live traffic.
bench-tuner: $(MIRRORFS) test-deps
	@failed=0; for section in contests against-grid misses deployed live; do \
		$(PYTHON) -m tests.bench --only $$section || failed=1; done; exit $$failed

# The search on simulated mounts; `make bench ONLY=search` writes it to docs/benchmarks.md.
# LANDSCAPES: how many of each family at each noise; by default RUNS of tests/bench/bench_search.py.
bench-search: test-deps
	$(call install,$(BENCH_PACKAGES))
	$(PYTHON) -m tests.bench.bench_search $(if $(LANDSCAPES),--runs $(LANDSCAPES))

# Private modules; no versioned site-packages path is needed.
# -I: environment and working directory do not change what root runs. -B: Python writes no bytecode
# beside the modules, which no package would remove; packages compile their own.
define LAUNCHER
#!$(PYTHON) -IB
# SPDX-License-Identifier: GPL-2.0-or-later
import sys

sys.path.insert(0, "$(MODULES)")

from fusetune.cli import main

main()
endef
export LAUNCHER

put = install -D -m 644 -t $(DESTDIR)$(1)

# A manual page can be found by the name of each command that it describes.
define aliases
	for page in man/fusetune-*.8; do \
		for name in $$(sed -n 's/^\.Nm \(fusetune-[a-z]*\).*/\1/p' $$page); do \
			[ $$name = $$(basename $$page .8) ] || echo ".so man8/$$(basename $$page)" | \
				install -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/man/man8/$$name.8; \
		done; \
	done
endef

install:
	find fusetune -name '*.py' -printf '%P\0' -o -name '*.fio' -printf '%P\0' \
		-o -path 'fusetune/report/templates/*' -printf '%P\0' | \
		xargs -0 -I{} install -D -m 644 fusetune/{} $(DESTDIR)$(MODULES)/fusetune/{}
	install -d $(DESTDIR)$(PREFIX)/bin
	printf '%s\n' "$$LAUNCHER" >$(DESTDIR)$(PREFIX)/bin/fusetune
	chmod 755 $(DESTDIR)$(PREFIX)/bin/fusetune
	install -d $(DESTDIR)$(PREFIX)/sbin
	printf '%s\n' "$$LAUNCHER" | sed 's/fusetune.cli/fusetune.mount_helper/' \
		>$(DESTDIR)$(PREFIX)/sbin/mount.fusetune
	chmod 755 $(DESTDIR)$(PREFIX)/sbin/mount.fusetune
	$(call put,$(PREFIX)/lib/fusetune) fusetune/fusetune.toml
	$(call put,$(PREFIX)/lib/fusetune/recipes) fusetune/recipes/*.toml
	$(call put,$(MODULES)/monitoring) monitoring/alerts.yml monitoring/dashboard.json
	$(call put,$(MODULES)/tuned/fusetune) tuned/fusetune/tuned.conf
	install -D -t $(DESTDIR)$(MODULES)/tuned/fusetune tuned/fusetune/script.sh
	$(call put,$(PREFIX)/share/man/man4) man/*.4
	$(call put,$(PREFIX)/share/man/man5) man/*.5
	$(call put,$(PREFIX)/share/man/man8) man/*.8
	$(aliases)
	$(call put,$(PREFIX)/lib/systemd/system) systemd/*.service systemd/*.timer systemd/*.mount
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system/sysinit.target.wants
	ln -sf ../sys-fs-fusetuned-connections.mount \
		$(DESTDIR)$(PREFIX)/lib/systemd/system/sysinit.target.wants
	$(call put,$(PREFIX)/lib/systemd/system-preset) systemd/*.preset
	$(call put,$(PREFIX)/lib/tmpfiles.d) systemd/tmpfiles.d/*.conf
	$(call put,$(PREFIX)/lib/udev/rules.d) udev/60-fusetune.rules
	$(call put,$(PREFIX)/share/doc/fusetune/examples) udev/61-fusetune-max-ratio.rules \
		systemd/modules-load.d/fusetuned.conf

# click generates the completions; these are the files where each shell looks for them.
BASH_COMPLETION = $(PREFIX)/share/bash-completion/completions/fusetune
ZSH_COMPLETION = $(PREFIX)/share/zsh/vendor-completions/_fusetune
FISH_COMPLETION = $(PREFIX)/share/fish/vendor_completions.d/fusetune.fish
define complete
	install -d $(DESTDIR)$(dir $(2))
	_FUSETUNE_COMPLETE=$(1)_source $(PYTHON) -B -c 'import sys; sys.argv[0] = "fusetune"; \
		from fusetune.cli import main; main()' >$(DESTDIR)$(2)
	chmod 644 $(DESTDIR)$(2)
endef

install-completion:
	$(call complete,bash,$(BASH_COMPLETION))
	$(call complete,zsh,$(ZSH_COMPLETION))
	$(call complete,fish,$(FISH_COMPLETION))

# The source of a module for DKMS, which only reads /usr/src. MODULE: a directory in dkms/. SOURCES:
# Linux source packages (.deb, .tar.xz) or trees, one for each series.
MODULE = fusetuned
SOURCES = $(wildcard /usr/src/linux-source-*.tar.*)
dkms_name = $(shell sed -n 's/^package = "\(.*\)"/\1/p' dkms/$(MODULE)/rules.toml)
linux_sources = $(shell sed -n 's/^\([0-9.]*\) .*/linux-source-\1/p' dkms/series)

install-dkms:
	@[ -n "$(SOURCES)" ] || { echo "no Linux sources; apt-get install one of $(linux_sources)," \
		"or name them: make install-dkms SOURCES='FILE...'" >&2; exit 1; }
	$(PYTHON) dkms/import_kernel.py $(MODULE) $(DESTDIR)/usr/src/$(dkms_name)-$(VERSION) \
		$(SOURCES)

# Source packages, in build/dist. DIST_SOURCES: Linux and fuse3 sources for packaging/dist.py, by
# default downloaded. SUITE: the Debian suite for the package's version.
SUITE = $(shell . /etc/os-release && echo $$VERSION_CODENAME)
DIST_SOURCES =

dist:
	$(if $(DIST_SOURCES),,$(call install,$(DIST_PACKAGES)))
	rm -rf build/dist
	sources='$(DIST_SOURCES)'; \
	packaging/dist.py --suite $(SUITE) build/dist $${sources:-$$(packaging/fetch.sh build/sources)}

# Debian packages for this host's suite, in build/packages/SUITE.
deb: dist
	rm -rf build/deb build/packages/$(SUITE)
	mkdir -p build/deb build/packages/$(SUITE)
	dpkg-source -x build/dist/*.dsc build/deb/tree
	[ "$$(id -u)" != 0 ] || apt-get -qy --no-install-recommends build-dep ./build/deb/tree
	cd build/deb/tree && dpkg-buildpackage -us -uc -b
	mv build/deb/*.deb build/packages/$(SUITE)

# A container image with the package fusetune from build/packages/SUITE, in build: an archive in the
# OCI layout.
image:
	$(call install,$(IMAGE_PACKAGES))
	kubernetes/image.sh build/packages/$(SUITE) build/fusetune-image.tar

# RPM packages for this host's system, in build/packages/rpm. On Debian their build dependencies
# have other names. RPM_OPTIONS: more options for rpmbuild, such as --without tests.
RPM_OPTIONS =

rpm: dist
	$(if $(wildcard /etc/debian_version),$(call install,$(RUN_PACKAGES) $(RPM_PACKAGES)))
	rm -rf build/rpm build/packages/rpm
	rpmbuild -ba $(if $(wildcard /etc/debian_version),--nodeps) $(RPM_OPTIONS) \
		--define '_topdir $(CURDIR)/build/rpm' --define '_sourcedir $(CURDIR)/build/dist' \
		--define '_rpmdir $(CURDIR)/build/packages/rpm' \
		--define '_srcrpmdir $(CURDIR)/build/packages/rpm/source' \
		--define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
		build/dist/fusetune.spec

# Repositories for apt and dnf, in build/repo, of all packages in build/packages, signed with KEY.
KEY =

repo:
	$(call install,$(REPO_PACKAGES))
	packaging/repo.sh build/packages build/repo $(KEY)

# The command and the service as an image for systemd-sysext, for hosts without packages.
sysext:
	$(call install,$(SYSEXT_PACKAGES))
	rm -rf build/sysext
	$(MAKE) install DESTDIR=$(CURDIR)/build/sysext/tree PYTHON=/usr/lib/fusetune/python/bin/python3
	rm -rf build/sysext/tree/usr/share/man build/sysext/tree/usr/share/doc
	packaging/sysext.sh build/sysext/tree build/sysext/fusetune.raw

clean:
	rm -rf build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
