#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# older.sh DIRECTORY OUTPUT VERSION OLDER
#
# Makes copies of the packages in DIRECTORY, which have VERSION, with version OLDER, to
# test upgrades from it.
set -euo pipefail

mkdir -p "$2"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for package in "$1"/*.deb; do
	tree=$scratch/tree
	dpkg-deb -R "$package" "$tree"
	for directory in "$tree"/usr/src/*-"$3"; do
		[[ ! -e $directory ]] || mv "$directory" "${directory%"$3"}$4"
	done
	find "$tree/DEBIAN" "$tree/usr" -type f ! -name '*.gz' ! -name '*.so.*' ! -path '*/bin/mirrorfs' \
		! -name fusetune-intercept \
		-exec sed -i "s/${3//./\\.}/$4/g" {} +
	name=$(basename "$package")
	dpkg-deb --root-owner-group -b "$tree" "$2/${name/$3/$4}" >/dev/null
	rm -rf "$tree"
done
