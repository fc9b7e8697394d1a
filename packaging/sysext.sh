#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# sysext.sh TREE OUTPUT
#
# Makes the image OUTPUT for systemd-sysext of what `make install DESTDIR=TREE` has
# put in place, with a Python of its own in /usr/lib/fusetune/python: hosts that take
# such images have none. Python, its modules and every library that it needs, the C
# library too, are those of the Debian suite that this host's apt uses.
set -euo pipefail
export LC_ALL=C.UTF-8

tree=$(realpath "$1") output=$2
packages=(python3 python3-{click,jinja2,prometheus-client,pyudev,rich,systemd,tomlkit})
target=/usr/lib/fusetune/python
arch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
# Architectures that systemd names differently (ConditionArchitecture= in systemd.unit(5)).
declare -A names=([amd64]=x86-64 [armhf]=arm [i386]=x86 [ppc64el]=ppc64-le)
debian=$(dpkg-architecture -qDEB_HOST_ARCH)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$work/archives/partial" "$root"
# As if nothing were installed, so that apt finds all that they depend on.
apt-get -qq -o "Dir::Cache::archives=$work/archives" -o Dir::State::status=/dev/null \
	-o Debug::NoLocking=1 -o APT::Sandbox::User=root --no-install-recommends --download-only \
	install "${packages[@]}" >&2
# Up to Debian 12, some libraries are packaged below /lib, later all below /usr/lib.
mkdir -p "$root/usr/lib"
ln -s usr/lib "$root/lib"
for package in "$work"/archives/*.deb; do
	dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink
done
version=$(readlink "$root/usr/bin/python3")

python=$tree$target
rm -rf "$python"
mkdir -p "$python/bin" "$python/lib/$arch" "$python/doc"
cp "$root/usr/bin/$version" "$python/bin/python3"
cp -r "$root/usr/lib/$version" "$root/usr/lib/python3" "$python/lib"
cp -P "$root/usr/lib/$arch"/lib*.so.* "$python/lib/$arch"
# Whoever passes them on passes on their licences.
(cd "$root/usr/share/doc" && cp -L --parents ./*/copyright "$python/doc")
# Never the host's loader or libraries: they may be older, or those of another C library.
loader=$(patchelf --print-interpreter "$python/bin/python3")
cp "$root/usr/lib/$arch/${loader##*/}" "$python/lib"
# In this order: with patchelf 0.18, the program would crash after the reverse or both at once.
patchelf --force-rpath --set-rpath "$target/lib/$arch" "$python/bin/python3"
patchelf --set-interpreter "$target/lib/${loader##*/}" "$python/bin/python3"

# /usr is read-only there, so no byte code is added later.
"$root/usr/bin/$version" -IB -m compileall -q --invalidation-mode unchecked-hash -s "$tree" -p / \
	"$python/lib" "$tree/usr/share/fusetune"
mkdir -p "$tree/usr/lib/extension-release.d"
cat >"$tree/usr/lib/extension-release.d/extension-release.$(basename "$output" .raw)" <<RELEASE
ID=_any
ARCHITECTURE=${names[$debian]-$debian}
EXTENSION_RELOAD_MANAGER=1
RELEASE
# udevd looks for new rules at most every three seconds, and mounts may come before the image: once
# systemd has read its units again, it tells udevd, and the service looks at the mounts there are.
units=$tree/usr/lib/systemd/system
mkdir -p "$units/multi-user.target.d"
cat >"$units/multi-user.target.d/fusetune.conf" <<DROPIN
[Unit]
Upholds=fusetune-merged.service
DROPIN
cat >"$units/fusetune-merged.service" <<UNIT
[Unit]
Description=Tuning of FUSE mounts that are older than the image of fusetune
After=systemd-udevd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=udevadm control --reload
ExecStart=systemctl start --no-block fusetune.service
UNIT
rm -f "$output"
mksquashfs "$tree" "$output" -all-root -all-time 0 -mkfs-time 0 -no-progress -quiet
