# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-only
#
# The Linux versions of a module's source and of a kernel, for dkms.conf, build.sh
# and the packages' hooks. A version has the form "6.12.117 6.12.117-1"; the second
# is the package's, and missing if it is not known.

# The administrator's file that lets an older copy replace the kernel's own.
older_conf=${older_conf-/etc/fusetune/older.conf}
# The directory of the archives of the packages linux-source-SERIES.
sources=${sources-/usr/src}

# packaged_source DIRECTORY SERIES: the version in a directory that import_kernel.py made.
packaged_source() {
	cut -d ' ' -f 1,3 "$1/$2.source" 2>/dev/null
}

# upstream VERSION: the kernel's version in a package's, as 6.12.117 in 6.12.117-1. A release and its
# candidates, 7.3 and 7.3~rc7, have none of point releases; their Makefile says 7.3.0.
upstream() {
	echo "${1%%-*}" | sed 's/^\([0-9]*\.[0-9]*\)\(~rc.*\)\{0,1\}$/\1.0/'
}

# kernel_source KERNEL HEADERS: the version of a kernel, from its headers; from its packages if
# those are newer, because an image may be updated without its headers.
kernel_source() {
	said=$(awk '/define LINUX_VERSION_(MAJOR|PATCHLEVEL|SUBLEVEL) / { printf "%s%s", dot, $3; dot = "." }' \
		"$2/include/generated/uapi/linux/version.h" 2>/dev/null)
	# shellcheck disable=SC2016  # dpkg-query fills that in
	package=$(dpkg-query -Wf '${Version}\n' "linux-image-$1" "linux-headers-$1" 2>/dev/null |
		sort -V | tail -n 1)
	version=$(upstream "$package")
	case $version in
	"$said") said="$said $package" ;;
	"${said%.*}".*) ! older "$said" "$version" || said="$version $package" ;;
	esac
	echo "$said"
}

# older ONE OTHER: whether a version is below another.
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

# linux_source SERIES: the version of the package linux-source-SERIES, if it is installed.
linux_source() {
	[ -e "$sources/linux-source-$1.tar.xz" ] || return 0
	# shellcheck disable=SC2016  # dpkg-query fills that in
	said=$(dpkg-query -Wf '${Version}' "linux-source-$1" 2>/dev/null) || return 0
	echo "$(upstream "$said") $said"
}

# choose DIRECTORY KERNEL HEADERS: sets $packaged to the version in the directory, $theirs to the
# kernel's, $fresh to that of the linux-source to import instead, and $why to what prevents the
# import. Nothing is imported if the directory's source is as new as the kernel: it fits.
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

# refuse NAME SOURCE: prints why a source may not replace the kernel's own, or nothing. It must not be
# older than $theirs, unless the administrator's file has the line NAME=yes.
refuse() {
	{ [ -n "$2" ] && [ -n "$theirs" ] && older "$2" "$theirs"; } || return 0
	! grep -qsx "$1=yes" "$older_conf" || return 0
	echo "its source, Linux ${2#* }, is older than the kernel's own $1, ${theirs#* }${why:+, and $why};" \
		"for the older one all the same, put the line '$1=yes' into $older_conf"
}
