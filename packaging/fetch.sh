#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# fetch.sh FOLDER
#
# Downloads what dist.py takes from the Debian archive, security updates included:
# the kernel's source of each series, as FOLDER/linux-source-SERIES_*.deb, and the
# source of each suite's fuse3, patches applied, as FOLDER/fuse3-VERSION. Prints
# the names of all. The archive is that of this host's apt, or else ARCHIVE.
set -euo pipefail

folder=$(realpath -m "$1")
# shellcheck disable=SC2016  # apt fills that in
archive=${ARCHIVE-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
	'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)}
[[ -n $archive ]] || { echo "fetch.sh: no Debian archive in apt's sources; name one: ARCHIVE=" >&2; exit 1; }
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

while read -r suite series; do
	state=$folder/.apt/$suite
	mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
	: >"$state/status"
	security=${archive%/}-security
	for kind in deb deb-src; do
		echo "$kind [signed-by=$keyring] $archive $suite main"
		[[ $suite == sid ]] || echo "$kind [signed-by=$keyring] $security $suite-security main"
	done >"$state/sources.list"
	apt=(apt-get -q -y -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=-
		-o "Dir::State::lists=$state/lists" -o "Dir::State::status=$state/status"
		-o "Dir::Cache=$state/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none)
	cd "$folder"
	"${apt[@]}" update >&2
	"${apt[@]}" download "linux-source-$series" >&2
	"${apt[@]}" source fuse3 >&2
	rm -f fuse3_*
done <<SUITES
bookworm 6.1
trixie 6.12
sid 7.2
SUITES
printf '%s\n' "$folder"/linux-source-*.deb "$folder"/fuse3-*/
