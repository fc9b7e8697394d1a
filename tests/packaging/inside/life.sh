#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Installs an earlier version, upgrades it with an administrator's changes, uses,
# downgrades, removes, reinstalls and purges it: nothing may be left behind.
# shellcheck source=/dev/null
. /inside/common.sh

packages="fusetune fusetune-intercept fusetune-mirrorfs fusetuned-dkms f2fs-tuned-dkms libfuse3-tuned"
mount -t sysfs sysfs /sys
mount -t fusectl fusectl /sys/fs/fuse/connections
snapshot >/tmp/before

offer /old
# shellcheck disable=SC2086
install $packages
[ "$(fusetune --version)" = "fusetune $OLD" ] || fail "not $OLD: $(fusetune --version)"
[ -e "/usr/src/fusetuned-$OLD/dkms.conf" ] || fail "no source of fusetuned"

# The administrator's changes.
mkdir -p /etc/fusetune/mounts.d
printf '[[mount]]\npath = "/mirror"\nread_ahead_kb = 512\n' >/etc/fusetune/mounts.d/mirror.toml
echo "# changed" >>/etc/kernel/postinst.d/00-fusetuned

offer /repo
# shellcheck disable=SC2086
install $packages
[ "$(fusetune --version)" = "fusetune $NEW" ] || fail "not $NEW: $(fusetune --version)"
[ ! -e "/usr/src/fusetuned-$OLD" ] || fail "source of $OLD left"
grep -q 512 /etc/fusetune/mounts.d/mirror.toml || fail "the administrator's file"
grep -q '^# changed' /etc/kernel/postinst.d/00-fusetuned || fail "the administrator's conffile"
dkms status | grep "fusetuned/$NEW" || fail "dkms: $(dkms status)"

# Normal use.
mkdir /source /mirror
mirrorfs /source /mirror
fusetune apply /mirror
[ "$(cat "/sys/class/bdi/$(mountpoint -d /mirror)/read_ahead_kb")" = 512 ] || fail "not applied"
umount /mirror
rmdir /source /mirror
BUDGET=20 sh -x /debian-tests/auto >/tmp/auto 2>&1 || { cat /tmp/auto; fail "debian/tests/auto"; }
fusetune lib enable --system >/dev/null
ldconfig -p | grep -q "/fusetune/libfuse3.so" || fail "lib enable --system"

offer /old
# shellcheck disable=SC2046
apt-get -qy --allow-downgrades install $(for each in $packages; do echo "$each=$OLD-1*"; done) \
	>/tmp/apt 2>&1 || { cat /tmp/apt; fail downgrade; }
healthy
[ "$(fusetune --version)" = "fusetune $OLD" ] || fail "not down to $OLD"
offer /repo

# shellcheck disable=SC2086
apt-get -qy remove $packages >/tmp/apt 2>&1 || { cat /tmp/apt; fail remove; }
healthy
[ -e /etc/fusetune/mounts.d/mirror.toml ] || fail "configuration removed with the packages"
# shellcheck disable=SC2086
install $packages
fusetune list >/dev/null || fail "reinstalled"
ldconfig -p | grep -q "/fusetune/libfuse3.so" || fail "lib enable --system was forgotten"

# Remove it while a mount is tuned; its values must be restored, and what is saved must stay.
mkdir /source /mirror
mirrorfs /source /mirror
bdi=$(mountpoint -d /mirror)
fusetune set /mirror max_ratio=7 >/dev/null
fusetune save /mirror >/dev/null
metrics=/var/lib/prometheus/node-exporter
mkdir -p $metrics
fusetune report --format prometheus --output $metrics/fusetune.prom
# shellcheck disable=SC2086
apt-get -qy remove $packages >/tmp/apt 2>&1 || { cat /tmp/apt; fail remove; }
[ "$(cat "/sys/class/bdi/$bdi/max_ratio")" = 1 ] || fail "a value stayed: $(cat /tmp/apt)"
[ -n "$(ls /var/lib/fusetune/saved)" ] || fail "saved results removed with the packages"
[ ! -e $metrics/fusetune.prom ] || fail "node_exporter has the last metrics for ever"
rmdir -p --ignore-fail-on-non-empty $metrics
umount /mirror
rmdir /source /mirror
# shellcheck disable=SC2086
apt-get -qy purge $packages >/tmp/apt 2>&1 || { cat /tmp/apt; fail purge; }
healthy
ldconfig
snapshot >/tmp/after
diff /tmp/before /tmp/after || fail "left behind or changed"
echo passed
