#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Kernels that are installed after the modules' packages, and failing builds: apt must not fail.
# shellcheck source=/dev/null
. /inside/common.sh

packages="fusetuned-dkms f2fs-tuned-dkms"
offer /repo
# shellcheck disable=SC2086
install $packages

# states: print dkms's states of both modules for kernel $kernel.
states() {
	for name in fusetuned f2fs-tuned; do
		dkms status -m "$name" -k "$kernel" | sed 's/.*: *//; s/ (.*//'
	done | tr '\n' ' '
}

# By dkms's own trigger.
install linux-headers-amd64
kernel=$(basename "$(dirname "$(echo /lib/modules/*/build)")")
[ "$(states)" = "installed installed " ] || { cat /tmp/apt; fail "$kernel: $(states)"; }
echo "$kernel: $(states)"

# An unsupported kernel, installed as by its packages' scripts.
mkdir /lib/modules/5.10.0-1-amd64
ln -s "$(readlink -f "/lib/modules/$kernel/build")" /lib/modules/5.10.0-1-amd64/build
for when in header_postinst postinst; do
	run-parts --arg=5.10.0-1-amd64 "/etc/kernel/$when.d" >/tmp/apt 2>&1 ||
		{ cat /tmp/apt; fail "$when: an unsupported kernel is an error"; }
done
! dkms status -k 5.10.0-1-amd64 | grep -E "built|installed" || fail "built for 5.10"
rm -r /lib/modules/5.10.0-1-amd64

# attempt WHAT: reinstall the kernel's headers and the module's package; neither may fail, and the
# module must not be built.
attempt() {
	for package in "linux-headers-$kernel" fusetuned-dkms; do
		dkms remove "fusetuned/$NEW" --all >/dev/null 2>&1 || true
		dkms add "fusetuned/$NEW" >/dev/null 2>&1 || true
		install --reinstall "$package"
		grep -q '^fusetuned: not built' /tmp/apt || { cat /tmp/apt; fail "$1, $package: silent"; }
		case $(dkms status -m fusetuned -k "$kernel") in
		*installed* | *built*) fail "$1, $package: built" ;;
		esac
	done
	echo "$1: apt goes on"
}

headers=$(echo /usr/src/linux-headers-*-common/include/linux/fs.h)
# A hook that breaks the package's source, as a changed kernel would.
printf '#!/bin/sh\necho "#error forced" >>%s\n' "$headers" >/etc/kernel/header_postinst.d/00-break
chmod 755 /etc/kernel/header_postinst.d/00-break
sh /etc/kernel/header_postinst.d/00-break
attempt "compile error"
rm /etc/kernel/header_postinst.d/00-break
sed -i '/^#error forced$/d' "$headers"

for name in /usr/bin/*gcc*; do mv "$name" "$name.gone"; done
attempt "no compiler"
for name in /usr/bin/*gcc*.gone; do mv "$name" "${name%.gone}"; done

mv /var/lib/dkms /var/lib/dkms.whole
mkdir /var/lib/dkms
mount -t tmpfs -o size=64k tmpfs /var/lib/dkms
head -c 1M /dev/zero >/var/lib/dkms/full 2>/dev/null || true
attempt "no room in /var/lib/dkms"
# dkms 3.2 leaves a sleep process of 3 s behind.
for _ in 1 2 3 4 5; do ! umount /var/lib/dkms 2>/tmp/umount || break; sleep 1; done
mountpoint -q /var/lib/dkms && { cat /tmp/umount; fail umount; }
rmdir /var/lib/dkms
mv /var/lib/dkms.whole /var/lib/dkms

# Without the obstacle.
install --reinstall "linux-headers-$kernel"
install --reinstall fusetuned-dkms
[ "$(states)" = "installed installed " ] || { cat /tmp/apt; fail "afterwards: $(states)"; }

# An upgrade that fails, as on a full disk.
dpkg-deb -R "$(find /repo -name 'fusetuned-dkms_*.deb')" /tmp/broken
printf '#!/bin/sh\nexit 1\n' >/tmp/broken/DEBIAN/preinst
chmod 755 /tmp/broken/DEBIAN/preinst
dpkg-deb -b /tmp/broken /tmp/broken.deb >/dev/null
! dpkg -i /tmp/broken.deb >/tmp/apt 2>&1 || fail "a broken package was installed"
healthy
[ "$(states)" = "installed installed " ] || { cat /tmp/apt; fail "after a failed upgrade: $(states)"; }
echo "a failed upgrade: $(states)"

# shellcheck disable=SC2086
apt-get -qy purge $packages >/tmp/apt 2>&1 || { cat /tmp/apt; fail purge; }
healthy
left=$(find /lib/modules/*/updates /var/lib/dkms /usr/src /run -name '*fusetuned*' -o -name '*f2fs*' 2>/dev/null |
	grep -v linux-headers || true)
[ -z "$left" ] || fail "left: $left"
echo passed
