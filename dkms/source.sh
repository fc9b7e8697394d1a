# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Which version of Linux a module's source is, and which one a kernel is: for
# dkms.conf and what the package runs. A version is printed and given as
# "6.12.117 6.12.117-1", the second the package's, left out where it is not known.

# Where an administrator lets an older copy take the place of the kernel's own.
older_conf=${older_conf-/etc/fusetune/older.conf}
# Where the packages linux-source-SERIES have their archives.
sources=${sources-/usr/src}

# packaged_source DIRECTORY SERIES: what is in a directory that import_kernel.py made.
packaged_source() {
	cut -d ' ' -f 1,3 "$1/$2.source" 2>/dev/null
}

# kernel_source KERNEL HEADERS: what a kernel was made from, by its headers; by its packages
# where those are newer, for an image may be updated without its headers.
kernel_source() {
	said=$(awk '/define LINUX_VERSION_(MAJOR|PATCHLEVEL|SUBLEVEL) / { printf "%s%s", dot, $3; dot = "." }' \
		"$2/include/generated/uapi/linux/version.h" 2>/dev/null)
	# shellcheck disable=SC2016  # dpkg-query fills that in
	package=$(dpkg-query -Wf '${Version}\n' "linux-image-$1" "linux-headers-$1" 2>/dev/null |
		sort -V | tail -n 1)
	case ${package%%-*} in
	"$said") said="$said $package" ;;
	"${said%.*}".*) ! older "$said" "${package%%-*}" || said="${package%%-*} $package" ;;
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

# linux_source SERIES: the version of the distribution's package linux-source-SERIES, if it is there.
linux_source() {
	[ -e "$sources/linux-source-$1.tar.xz" ] || return 0
	# shellcheck disable=SC2016  # dpkg-query fills that in
	said=$(dpkg-query -Wf '${Version}' "linux-source-$1" 2>/dev/null) || return 0
	echo "${said%%-*} $said"
}

# choose DIRECTORY KERNEL HEADERS: sets $packaged to what is in the directory, $theirs to the
# kernel's version, $fresh to that of the linux-source that is to be imported instead, and $why to
# what hinders that. Nothing is to be imported where the directory's source is as new as the kernel.
choose() {
	series=$(echo "$2" | cut -d . -f 1,2)
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

# refuse NAME SOURCE: prints why a source may not take the kernel's own place, nothing if it may: it
# must not be older than $theirs, unless the administrator's file has the line NAME=yes.
refuse() {
	{ [ -n "$2" ] && [ -n "$theirs" ] && older "$2" "$theirs"; } || return 0
	! grep -qsx "$1=yes" "$older_conf" || return 0
	echo "its source, Linux ${2#* }, is older than the kernel's own $1, ${theirs#* }${why:+, and $why};" \
		"for the older one all the same, put the line '$1=yes' into $older_conf"
}
