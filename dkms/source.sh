# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Determines the Linux version of a module's source and of a kernel, for dkms.conf,
# build.sh and the packages' hooks. A version looks like "6.12.117 6.12.117-1": the
# Linux version and, if known, the package's.

# In this file the administrator allows an older copy to replace the kernel's own module.
older_conf=${older_conf-/etc/fusetune/older.conf}
# Where the packages linux-source-SERIES install their archives.
sources=${sources-/usr/src}

# packaged_source DIRECTORY SERIES: print the version of the source in an import's directory.
packaged_source() {
	cut -d ' ' -f 1,3 "$1/$2.source" 2>/dev/null
}

# upstream VERSION: print the Linux version of a package version: 6.12.117 for 6.12.117-1. A release
# and its candidates, 7.3 and 7.3~rc7, become 7.3.0, as in their Makefile.
upstream() {
	echo "${1%%-*}" | sed 's/^\([0-9]*\.[0-9]*\)\(~rc.*\)\{0,1\}$/\1.0/'
}

# kernel_source KERNEL HEADERS: print a kernel's version. It comes from the headers, or from the
# kernel's packages if they are newer, because an image may be updated without its headers.
kernel_source() {
	said=$(awk '/define LINUX_VERSION_(MAJOR|PATCHLEVEL|SUBLEVEL) / { printf "%s%s", dot, $3; dot = "." }' \
		"$2/include/generated/uapi/linux/version.h" 2>/dev/null)
	# shellcheck disable=SC2016  # dpkg-query expands it
	package=$(dpkg-query -Wf '${Version}\n' "linux-image-$1" "linux-headers-$1" 2>/dev/null |
		sort -V | tail -n 1)
	version=$(upstream "$package")
	case $version in
	"$said") said="$said $package" ;;
	"${said%.*}".*) ! older "$said" "$version" || said="$version $package" ;;
	esac
	echo "$said"
}

# older ONE OTHER: succeed if version ONE is lower than OTHER.
older() {
	if [ "${1%% *}" != "${2%% *}" ]; then
		[ "$(printf '%s\n' "${1%% *}" "${2%% *}" | sort -V | head -n 1)" = "${1%% *}" ]
		return
	fi
	case "$1,$2" in
	*" "*,*" "*) dpkg --compare-versions "${1#* }" lt "${2#* }" ;;
	*) return 1 ;;
	esac
}

# linux_source SERIES: print the version of the package linux-source-SERIES, if it is installed.
linux_source() {
	[ -e "$sources/linux-source-$1.tar.xz" ] || return 0
	# shellcheck disable=SC2016  # dpkg-query expands it
	said=$(dpkg-query -Wf '${Version}' "linux-source-$1" 2>/dev/null) || return 0
	echo "$(upstream "$said") $said"
}

# choose DIRECTORY KERNEL HEADERS: set $packaged to the version of the source in the directory, and
# $theirs to the kernel's. If the former is older, set $fresh to the version of the linux-source to
# import instead, or $why to the reason why there is none.
choose() {
	series=$(echo "$2" | sed 's/^\([0-9]*\.[0-9]*\).*/\1/')
	packaged=$(packaged_source "$1" "$series")
	theirs=$(kernel_source "$2" "$3")
	fresh="" why=""
	{ [ -n "$packaged" ] && older "$packaged" "$theirs"; } || return 0
	available=$(linux_source "$series")
	if [ -z "$available" ]; then
		why="linux-source-$series is not installed"
	elif ! older "$packaged" "$available"; then
		why="linux-source-$series is not newer"
	elif ! command -v spatch >/dev/null; then
		why="coccinelle is not installed"
	elif ! command -v python3 >/dev/null; then
		why="python3 is not installed"
	else
		# shellcheck disable=SC2034  # for the caller
		fresh=$available
	fi
}

# refuse NAME SOURCE: print why version SOURCE may not replace the kernel's own module NAME; print
# nothing if it is not older than $theirs, or if $older_conf has the line NAME=yes.
refuse() {
	{ [ -n "$2" ] && [ -n "$theirs" ] && older "$2" "$theirs"; } || return 0
	! grep -qsx "$1=yes" "$older_conf" || return 0
	echo "its source, Linux ${2#* }, is older than the kernel's own $1, ${theirs#* }${why:+, and $why};" \
		"to use the older one anyway, put the line '$1=yes' into $older_conf"
}
