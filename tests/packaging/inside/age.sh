#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Modules of an older source, and then a newer kernel, linux-source and
# Coccinelle by apt, one after the other: /out/STAGE.json is what `module status` says
# after each, /out/STAGE.said what our packages said meanwhile.
# OLD_KERNEL, NEW_KERNEL: packages of image and headers. RELEASE: the newer kernel's.
# shellcheck source=/dev/null
. /inside/common.sh

stage() {
	fusetune module status --json >"/out/$1.json"
	grep -E '^(fusetuned|f2fs-tuned): ' /tmp/apt >"/out/$1.said" || true
}

# shellcheck disable=SC2086
install /ours/*.deb $OLD_KERNEL
stage installed

# shellcheck disable=SC2086
install $NEW_KERNEL
stage kernel

install /packages/linux-source-*_"$SOURCE"_all.deb
stage source

install coccinelle
stage coccinelle

apt-get -qy purge fusetuned-dkms f2fs-tuned-dkms >/tmp/apt 2>&1 || { cat /tmp/apt; fail purge; }
healthy
left=$(find /lib/modules/*/updates /var/lib/dkms /usr/src /run -name '*fusetuned*' -o -name '*f2fs*' 2>/dev/null |
	grep -v linux-headers || true)
[ -z "$left" ] || fail "left: $left"
echo passed
