#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# repo.sh PACKAGES OUTPUT [KEY]
#
# Makes new repositories for apt and dnf, OUTPUT/apt and OUTPUT/dnf, from built
# packages. PACKAGES has a directory of .deb files for each suite, with its name
# (`make deb` makes them), and a directory rpm of .rpm files; either may be missing.
# Signs everything with the GnuPG key KEY, by default the first one, and puts the
# public key into OUTPUT/fusetune.asc.
set -euo pipefail
export LC_ALL=C

# Without a trailing slash, or $output.new would be inside $output, which is removed.
packages=$(realpath "$1") output=$(realpath -m "$2") key=${3-}
[[ -n $key ]] || key=$(gpg --list-secret-keys --with-colons | sed -n 's/^fpr:*\([0-9A-F]*\):/\1/p' |
	head -n 1)
[[ -n $key ]] || { echo "repo.sh: no GnuPG key to sign with; make one: gpg --quick-gen-key NAME" >&2
	exit 1; }

new=$output.new
rm -rf "$new"
mkdir -p "$new"
gpg --armor --export "$key" >"$new/fusetune.asc"

suites=()
for dir in "$packages"/*/; do
	! compgen -G "$dir*.deb" >/dev/null || suites+=("$(basename "$dir")")
done
if ((${#suites[@]})); then
	mkdir -p "$new/apt/conf"
	for suite in "${suites[@]}"; do
		cat <<DISTRIBUTION
Origin: fusetune
Label: fusetune
Codename: $suite
Architectures: $(dpkg --print-architecture)
Components: main
Description: Tuning of FUSE mounts
SignWith: $key

DISTRIBUTION
	done >"$new/apt/conf/distributions"
	for suite in "${suites[@]}"; do
		reprepro --silent --basedir "$new/apt" includedeb "$suite" "$packages/$suite"/*.deb
	done
	# Only reprepro needs these.
	rm -r "$new/apt/conf" "$new/apt/db"
fi

if compgen -G "$packages/rpm/*.rpm" >/dev/null; then
	mkdir -p "$new/dnf"
	cp "$packages"/rpm/*.rpm "$new/dnf"
	# By default, Debian's rpm runs gpg2.
	rpmsign --define "__gpg $(command -v gpg)" --define "_gpg_name $key" --addsign "$new"/dnf/*.rpm \
		>/dev/null
	createrepo_c --quiet "$new/dnf"
	gpg --batch --yes --local-user "$key" --detach-sign --armor "$new/dnf/repodata/repomd.xml"
fi
[[ -d $new/apt || -d $new/dnf ]] || { echo "repo.sh: $1: no packages in it" >&2; exit 1; }
rm -rf "$output"
mv "$new" "$output"
