#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Installs modules of an older source, and then a newer kernel, linux-source and
# Coccinelle by apt, one after the other. After each, /out/STAGE.json has the output
# of `module status`, and /out/STAGE.said the messages of our packages.
# OLD_KERNEL, NEW_KERNEL: packages of image and headers. RELEASE: the newer kernel's.
# STAGES: "all"; otherwise only those up to the modules of the newer source, with
# linux-source and Coccinelle at once.
# shellcheck source=/dev/null
. /inside/common.sh
export INITRD=No # nothing boots here

stage() {
	fusetune module status --json >"/out/$1.json"
	grep -E '^(fusetuned|f2fs-tuned): ' /tmp/apt >"/out/$1.said" || true
}

# break_import TEXT: add a rule to both modules' sources, and reinstall the kernel.
break_import() {
	for name in fusetuned f2fs-tuned; do
		cp "/usr/src/$name-$NEW/rules.toml" "/tmp/$name.toml"
		printf '%s\n' "$1" | sed "s/@FILE@/$([ $name = fusetuned ] && echo inode.c || echo super.c)/" \
			>>"/usr/src/$name-$NEW/rules.toml"
		dkms unbuild "$name/$NEW" -k "$RELEASE" >/tmp/unbuild 2>&1 || { cat /tmp/unbuild; fail unbuild; }
	done
	# shellcheck disable=SC2086
	install --reinstall $NEW_KERNEL
	for name in fusetuned f2fs-tuned; do mv "/tmp/$name.toml" "/usr/src/$name-$NEW/rules.toml"; done
}

# shellcheck disable=SC2086
install /ours/*.deb $OLD_KERNEL
stage installed

# shellcheck disable=SC2086
install $NEW_KERNEL
stage kernel

set -- /packages/linux-source-*_"$SOURCE"_all.deb
if [ "$STAGES" = all ]; then
	install "$@"
	stage source
	shift
fi
install "$@" coccinelle
stage coccinelle

if [ "$STAGES" = all ]; then
	break_import '
[[hook]]
call = "tuned_nowhere("
sites = ["@FILE@ nobody"]'
	stage hook

	break_import '
[[text]]
file = "@FILE@"
find = "#include <linux/module.h>\n"
replace = "#include <linux/module.h>\n#error forced\n"
times = 1'
	stage compile

	mkdir -p /etc/fusetune
	echo f2fs=yes >/etc/fusetune/older.conf
	apt-get -qy remove "linux-source-$SERIES" >/tmp/apt 2>&1 || { cat /tmp/apt; fail remove; }
	healthy
	# shellcheck disable=SC2086
	install --reinstall $NEW_KERNEL
	stage allowed

	# The next update may keep the kernel's name, so that the built modules become outdated.
	rm /etc/fusetune/older.conf
	# shellcheck disable=SC2086
	install --reinstall $NEW_KERNEL
	stage refused
fi

apt-get -qy purge fusetuned-dkms f2fs-tuned-dkms >/tmp/apt 2>&1 || { cat /tmp/apt; fail purge; }
healthy
left=$(find /lib/modules/*/updates /var/lib/dkms /usr/src /run -name '*fusetuned*' -o -name '*f2fs*' 2>/dev/null |
	grep -v linux-headers || true)
[ -z "$left" ] || fail "left: $left"
echo passed
