#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# rpm-build.sh SOURCES OUTPUT
#
# Builds the packages from dist.py's files in SOURCES into OUTPUT, without anything
# else from outside the tree. Always builds in the same directory, because a source rpm
# contains its path.
set -eu

build() {
	rpmbuild --nodeps -ba --without tests --define "_topdir /tmp/top" --define "_sourcedir $1" \
		--define "_rpmdir $2" --define "_srcrpmdir $2/source" \
		--define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' "$1/fusetune.spec"
}

mkdir -p "$2"
build "$1" "$2" >"$2.log" 2>&1 || { tail -n 50 "$2.log"; exit 1; }
rm -r /tmp/top
