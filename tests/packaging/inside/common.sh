# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Shared by the scripts here. They run as root in a suite's tree, where /repo has the
# results of repo.sh, and /old those of an earlier version.
set -eu
export DEBIAN_FRONTEND=noninteractive

fail() {
	echo "FAILED: $*"
	exit 1
}

# offer DIRECTORY: let apt install only from this repository and from its cache.
offer() {
	cat >/etc/apt/sources.list.d/fusetune.sources <<SOURCES
Types: deb
URIs: file://$1/apt
Suites: $SUITE
Components: main
Signed-By: $1/fusetune.asc
SOURCES
	apt-get -q update -o Dir::Etc::sourcelist=sources.list.d/fusetune.sources \
		-o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 >/tmp/update 2>&1 ||
		{ cat /tmp/update; fail "apt-get update"; }
	! grep -E '^[WE]:' /tmp/update || fail "apt-get update"
}

install() {
	apt-get -qy --no-install-recommends install "$@" >/tmp/apt 2>&1 || { cat /tmp/apt; fail "install $*"; }
	healthy
}

healthy() {
	dpkg --audit >/tmp/audit || true
	[ ! -s /tmp/audit ] || { cat /tmp/apt /tmp/audit; fail "dpkg --audit"; }
	apt-get -qy -f install >/tmp/quiet 2>&1 || { cat /tmp/quiet; fail "apt-get -f install"; }
	grep -q '^0 upgraded, 0 newly installed, 0 to remove' /tmp/quiet || { cat /tmp/quiet; fail "not quiet"; }
}

# Print every file's kind, mode, owner and content, except those of apt, dpkg and this test.
snapshot() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /out -o -path /repo -o -path /old \
		-o -path /tmp -o -path /var/lib/apt -o -path /var/cache/apt -o -path /var/lib/dpkg \
		-o -path /var/log -o -path /var/cache/ldconfig -o -path /etc/apt/sources.list.d -o -name __pycache__ \) -prune \
		-o -type f -printf '%y %m %U %G %p\n' -exec sha256sum {} \; \
		-o ! -type d -printf '%y %m %U %G %p %l\n' -o -printf '%y %m %U %G %p\n' | sort
}
