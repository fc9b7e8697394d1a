#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# rpm-host.sh DIRECTORY
#
# Adds an empty package to DIRECTORY, which has our packages. It provides their other
# dependencies, which the tree has as Debian packages.
set -eu

need=$(rpm -qp --qf '[%{REQUIRENAME}\n]' "$1"/*.rpm | grep -v '^rpmlib(' | sort -u)
for name in $need; do
	case $name in
	fusetune* | libfuse3-tuned) ;;
	python3) echo "Provides: python3 = 3.11" ;;
	# Dependencies on paths need no package name.
	*) echo "Provides: $name" ;;
	esac
done >/tmp/provides
cat >/tmp/host.spec <<SPEC
Name: host
Version: 1
Release: 1
Summary: What the tree has
License: none
BuildArch: noarch
$(cat /tmp/provides)
%description
What the tree has.
%files
SPEC
rpmbuild -bb --define "_topdir /tmp/host" --define "_rpmdir $1" --define "_rpmfilename host.rpm" \
	/tmp/host.spec >/tmp/host.log 2>&1 || { cat /tmp/host.log; exit 1; }
