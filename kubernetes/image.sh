#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# image.sh PACKAGES OUTPUT
#
# Makes OUTPUT, an archive in the OCI layout with one image: the Debian suite that the directory
# PACKAGES is named after, without manuals, and in it the package fusetune of PACKAGES (`make deb`
# makes it), node_exporter, which serves the metrics, and OpenSSH, which checks signatures. The same
# packages give the same image: its time is SOURCE_DATE_EPOCH, by default the day of CHANGELOG's
# last version. Packages are those of the archive that this host's apt uses, or of ARCHIVE.
set -euo pipefail
export LC_ALL=C TZ=UTC

root=$(realpath "$(dirname "$0")/..")
packages=$(realpath "$1") output=$(realpath -m "$2")
suite=$(basename "$packages")
compgen -G "$packages/fusetune_*.deb" >/dev/null ||
	{ echo "image.sh: $packages has no package fusetune; run make deb" >&2; exit 1; }
# shellcheck disable=SC2016  # apt fills that in
archive=${ARCHIVE-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
	'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)}
[[ -n $archive ]] || { echo "image.sh: no Debian archive in apt's sources; name one: ARCHIVE=" >&2; exit 1; }
read -r version day < <(sed -n '1s/^fusetune \(.*\) (\(.*\))$/\1 \2/p' "$root/CHANGELOG")
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH-$(date -d "$day" +%s)}
created=$(date -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/repository"
cp "$packages"/fusetune_*.deb "$work/repository"
(cd "$work/repository" && dpkg-scanpackages . 2>/dev/null >Packages)

sources=("deb [trusted=yes] copy:$work/repository ./" "deb $archive $suite main")
[[ $suite == sid ]] || sources+=("deb ${archive%/}-security $suite-security main")
# Cleared: logs, caches and lists, which differ each time.
# shellcheck disable=SC2016  # mmdebstrap runs these with the tree as $1
mmdebstrap --quiet --variant=apt --include=fusetune,openssh-client,prometheus-node-exporter \
	--keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
	--aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--customize-hook='rm -rf "$1"/var/log/* "$1"/var/cache/* "$1"/var/lib/dpkg/*-old' \
	--customize-hook='rm -f "$1"/etc/apt/sources.list.d/* "$1"/etc/apt/apt.conf.d/99mmdebstrap' \
	--customize-hook="echo 'deb $archive $suite main' >\"\$1\"/etc/apt/sources.list" \
	--customize-hook='mkdir -p "$1"/etc/fusetune "$1"/var/lib/fusetune "$1"/run/fusetune "$1"/var/lib/kubelet "$1"/metrics "$1"/results' \
	"$suite" "$work/tree.tar" "${sources[@]}"

image=$work/image:$version
umoci init --layout "$work/image"
umoci new --image "$image"
umoci raw add-layer --image "$image" --history.created "$created" --history.author fusetune \
	--history.created_by "Debian $suite with fusetune $version" "$work/tree.tar"
umoci config --image "$image" --no-history --created "$created" --config.entrypoint /usr/bin/fusetune \
	--config.env LANG=C.UTF-8 --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	--config.label org.opencontainers.image.title=fusetune \
	--config.label "org.opencontainers.image.version=$version" \
	--config.label org.opencontainers.image.licenses=GPL-2.0-or-later
umoci gc --layout "$work/image"

mkdir -p "$(dirname "$output")"
tar -C "$work/image" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
	--mode=u=rwX,go=rX -cf "$output.new" .
mv "$output.new" "$output"
