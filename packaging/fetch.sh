#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# fetch.sh DIRECTORY
#
# Downloads the sources for dist.py from the Debian archive and its security
# updates: the kernel source of each series in dkms/series, as
# DIRECTORY/linux-source-SERIES_*.deb, and the patched fuse3 of each suite in
# libfuse/series, as DIRECTORY/fuse3-VERSION. Prints their names. Kernel sources that
# are there and current are not downloaded again; other versions are removed. Uses
# ARCHIVE, by default the archive that this host's apt uses.
set -euo pipefail

root=$(realpath "$(dirname "$0")/..")
dir=$(realpath -m "$1")
# shellcheck disable=SC2016  # apt expands it
archive=${ARCHIVE-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
	'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)}
[[ -n $archive ]] || { echo "fetch.sh: no Debian archive in apt's sources; name one: ARCHIVE=" >&2; exit 1; }
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# apt-get would leave an older revision of the same version in place, as if it were the new one.
rm -rf "$dir"/fuse3-*
current=()
while read -r suite; do
	state=$dir/.apt/$suite
	mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
	: >"$state/status"
	security=${archive%/}-security
	for kind in deb deb-src; do
		echo "$kind [signed-by=$keyring] $archive $suite main"
		[[ $suite == @(sid|*-backports) ]] ||
			echo "$kind [signed-by=$keyring] $security $suite-security main"
	done >"$state/sources.list"
	apt=(apt-get -q -y -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=-
		-o "Dir::State::lists=$state/lists" -o "Dir::State::status=$state/status"
		-o "Dir::Cache=$state/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none)
	cd "$dir"
	"${apt[@]}" update >&2
	linux=$(sed -n "s/ $suite\$//p" "$root/dkms/series")
	if [[ -n $linux ]]; then
		"${apt[@]}" download "linux-source-$linux" >&2
		# Elsewhere, because apt-get prints nothing for a file that it finds.
		current+=("$(cd "$state" &&
			"${apt[@]}" --print-uris download "linux-source-$linux" | cut -d ' ' -f 2)")
	fi
	! grep -q " $suite\$" "$root/libfuse/series" || "${apt[@]}" source fuse3 >&2
	rm -f fuse3_*
done < <(sed '/^#/d; s/.* //' "$root/dkms/series" "$root/libfuse/series" | sort -u)
for deb in linux-source-*.deb; do
	[[ " ${current[*]} " == *" $deb "* ]] || rm "$deb"
done
printf '%s\n' "$dir"/linux-source-*.deb "$dir"/fuse3-*/
