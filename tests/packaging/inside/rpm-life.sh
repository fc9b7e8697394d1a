#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Installs an earlier version by dnf from a signed repository, upgrades and uses it,
# reinstalls it with a module that does not build, and removes it: nothing may be left
# behind.
# shellcheck source=/dev/null
. /inside/common.sh

packages="fusetune fusetune-intercept fusetune-mirrorfs fusetuned-dkms f2fs-tuned-dkms libfuse3-tuned"
kernel=$(basename "$(dirname "$(echo /lib/modules/*/build)")")
mount -t sysfs sysfs /sys
mount -t fusectl fusectl /sys/fs/fuse/connections

# offer DIRECTORY: let dnf install only from this repository.
offer() {
	cat >/tmp/dnf.conf <<CONF
[main]
gpgcheck=1
repo_gpgcheck=1
plugins=0
reposdir=/tmp/none
cachedir=/tmp/dnf-cache
persistdir=/tmp/dnf-persist
logdir=/tmp
[fusetune]
name=fusetune
baseurl=file://$1/dnf
gpgkey=file://$1/fusetune.asc
CONF
}

# run COMMAND PACKAGE...: dnf must succeed, and neither it nor a scriptlet may complain.
run() {
	attempt "$@"
	! grep -iE 'warning|error|fail|not built|did not|not all' /tmp/said || { cat /tmp/said; fail "dnf $*: complaints"; }
}

attempt() {
	dnf -c /tmp/dnf.conf --releasever=42 -y "$@" >/tmp/said 2>&1 || { cat /tmp/said; fail "dnf $*"; }
	grep -q '^Complete!' /tmp/said || { cat /tmp/said; fail "dnf $*: not complete"; }
	! grep -iE 'scriptlet failed|error in .*scriptlet|non-fatal' /tmp/said || { cat /tmp/said; fail "dnf $*: scriptlet"; }
}

# states: print dkms's states of both modules.
states() {
	dkms status | sed 's/, x86_64//' | sort | tr '\n' ' '
}

# intact VERSION: check that this version is complete and its modules are installed.
intact() {
	# shellcheck disable=SC2086
	rpm -V $packages || fail "rpm -V"
	[ "$(fusetune --version)" = "fusetune $1" ] || fail "not $1: $(fusetune --version)"
	[ "$(states)" = "f2fs-tuned/$1, $kernel: installed fusetuned/$1, $kernel: installed " ] || fail "dkms: $(states)"
	for name in fusetuned f2fs-tuned; do
		[ "$(echo /usr/src/$name-*)" = "/usr/src/$name-$1" ] || fail "$(echo /usr/src/$name-*)"
	done
}

# Every file's kind, mode, owner, size and time, except those of rpm, dnf and depmod.
files() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /out -o -path /repo -o -path /old \
		-o -path /tmp -o -path /run -o -path /root/.rpmdb -o -path /var/lib/rpm -o -path /var/lib/dnf -o -path /var/cache \
		-o -path /var/log -o -name 'mok.*' -o -name 'modules.*' -o -name __pycache__ \) -prune \
		-o -type f -printf '%y %m %U %G %s %T@ %p\n' -o -printf '%y %m %U %G %p %l\n' | sort
}

# On Fedora the package filesystem has them.
mkdir -p /usr/share/licenses /usr/share/fish/vendor_completions.d \
	/usr/share/zsh/site-functions /usr/share/man/man4
offer /old
run install host
files >/tmp/before
# shellcheck disable=SC2086
run install $packages
intact "$OLD"
[ -e /etc/systemd/system/timers.target.wants/fusetune-verify.timer ] || fail "the preset's timer"
[ ! -e /etc/systemd/system/timers.target.wants/fusetune-report.timer ] || fail "not the preset's timer"

# The administrator's changes.
mkdir -p /etc/fusetune/mounts.d
printf '[[mount]]\npath = "/mirror"\nread_ahead_kb = 512\n' >/etc/fusetune/mounts.d/mirror.toml

offer /repo
run upgrade
intact "$NEW"

mkdir /source /mirror
fusetune run -- mirrorfs -o max_readahead=65536 /source /mirror
fusetune lib status | grep -q tuned || fail "lib status: $(fusetune lib status)"
bdi=$(mountpoint -d /mirror)
[ "$(cat "/sys/class/bdi/$bdi/read_ahead_kb")" = 64 ] || fail "max_readahead"
umount /mirror
mirrorfs /source /mirror
fusetune apply /mirror
bdi=$(mountpoint -d /mirror)
[ "$(cat "/sys/class/bdi/$bdi/read_ahead_kb")" = 512 ] || fail "not applied"
fusetune report --format html --output /tmp/report.html
grep -q "<h3 id=m1>/mirror</h3>" /tmp/report.html || fail "report"

headers=$(echo /usr/src/linux-headers-*-common/include/linux/fs.h)
fusetune enable -o tuned_required mirror.service
grep -q AssertPathExists=/dev/fusetuned /etc/systemd/system/mirror.service.d/50-fusetune-libfuse.conf ||
	fail "not enabled"

cp -p "$headers" /tmp/whole.h
echo "#error forced" >>"$headers"
attempt reinstall fusetuned-dkms
grep -q "^fusetuned: not built for Linux $kernel; 'fusetune module status' says why" /tmp/said ||
	{ cat /tmp/said; fail "silent"; }
case $(states) in *"fusetuned/$NEW: added"*) ;; *) fail "dkms: $(states)" ;; esac
cp -p /tmp/whole.h "$headers"
run reinstall fusetune fusetuned-dkms
intact "$NEW"

# Remove it while a mount is tuned; its values must be restored.
fusetune save /mirror >/dev/null
metrics=/var/lib/prometheus/node-exporter
mkdir -p $metrics
fusetune report --format prometheus --output $metrics/fusetune.prom
# shellcheck disable=SC2086
run remove $packages
[ "$(cat "/sys/class/bdi/$bdi/read_ahead_kb")" = 128 ] || fail "a value stayed: $(cat /tmp/said)"
[ -z "$(dkms status)" ] || fail "dkms: $(dkms status)"
umount /mirror
rmdir /source /mirror
# There is no purge: the administrator's files, the history and saved results stay.
[ -e /etc/fusetune/mounts.d/mirror.toml ] || fail "configuration removed with the packages"
[ -n "$(ls /var/lib/fusetune/history)" ] || fail "history removed with the packages"
[ -n "$(ls /var/lib/fusetune/saved)" ] || fail "saved results removed with the packages"
[ ! -e $metrics/fusetune.prom ] || fail "node_exporter has the last metrics for ever"
rmdir -p --ignore-fail-on-non-empty $metrics
rm -r /etc/fusetune /var/lib/fusetune
files >/tmp/after
diff /tmp/before /tmp/after || fail "left behind or changed"
echo passed
