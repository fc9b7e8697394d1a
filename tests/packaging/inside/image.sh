#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Makes /out/disk, /out/vmlinuz and /out/initrd of a system in which apt has installed
# all packages and an administrator has configured them; it runs /inside/boot.sh.
# shellcheck source=/dev/null
. /inside/common.sh

offer /repo
install fusetune fusetune-intercept fusetune-mirrorfs fusetuned-dkms f2fs-tuned-dkms libfuse3-tuned
kernel=$(basename /lib/modules/*)
dkms status
[ "$(dkms status -k "$kernel" | grep -c installed)" = 2 ] || { cat /tmp/apt; fail "not built"; }
[ "$(modinfo -k "$kernel" -F filename f2fs)" = "$(find "/lib/modules/$kernel/updates" -name 'f2fs.ko*')" ] ||
	fail "the kernel's f2fs comes first"

echo fusetuned >/etc/modules-load.d/fusetuned.conf
echo 'options fusetuned max_pages_per_req=1024' >/etc/modprobe.d/fusetuned.conf
mkdir -p /source /stock /tuned /etc/fusetune/mounts.d
cat >>/etc/fstab <<'FSTAB'
/dev/vda / ext4 rw 0 1
/source /stock fuse.mirrorfs defaults 0 0
/source /tuned fusetune.mirrorfs tuned,max_pages=512 0 0
FSTAB
# The service must run from boot to the end, however slow the machine is.
printf '[watch]\nidle_seconds = 0\n' >/etc/fusetune/fusetune.toml
cat >/etc/fusetune/mounts.d/boot.toml <<'MOUNTS'
[[mount]]
path = "/stock"
read_ahead_kb = 512
max_ratio = 7

[[mount]]
path = "/tuned"
read_ahead_kb = 2048
max_background = 64
MOUNTS
cp -r /inside/boot.sh /debian-tests /usr/local/lib/
cat >/etc/systemd/system/check.service <<'UNIT'
[Unit]
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/sh /usr/local/lib/boot.sh
StandardOutput=file:/dev/ttyS1
StandardError=inherit
UNIT
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -s ../check.service /etc/systemd/system/multi-user.target.wants/
rm -f /etc/apt/sources.list.d/fusetune.sources
cp "/boot/vmlinuz-$kernel" /out/vmlinuz
update-initramfs -u -k "$kernel" >/dev/null
cp "/boot/initrd.img-$kernel" /out/initrd

# Without mounts, and without what a running system does not need.
rm -rf /var/cache/apt/archives /usr/src/linux-headers-* /usr/lib/gcc /usr/share/doc
mkdir /tmp/root
mount --bind / /tmp/root
mke2fs -q -t ext4 -O ^has_journal -d /tmp/root /out/disk 2500M
echo passed
