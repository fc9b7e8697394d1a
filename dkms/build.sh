# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-only
#
# build.sh KERNEL HEADERS JOBS [VARIABLE=VALUE...]
#
# Builds the module in this script's directory for DKMS. If its source is older
# than the kernel and a newer linux-source package is installed, that package is
# imported first. If the import fails or does not compile, the module is built from
# the source in the directory. A line of make.log that begins with "fusetune: "
# says which source was used.
set -eu
umask 022
kernel=$1 headers=$2 jobs=$3
shift 3
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=dkms/source.sh
. "$here/source.sh"
name=$(sed -n 's/^BUILT_MODULE_NAME\[0\]="\(.*\)"/\1/p' "$here/dkms.conf")
replaces=$(sed -n 's/^replaces="\(.*\)"/\1/p' "$here/dkms.conf")
# Keep all temporary files, also those of spatch, out of directories that others can write to.
TMPDIR=$here/scratch
export TMPDIR
mkdir "$TMPDIR"

modules() {
	directory=$1
	shift
	make -j"$jobs" KERNELRELEASE="$kernel" -C "$headers" M="$directory" "$@" modules
}

choose "$here" "$kernel" "$headers"
if [ -n "$fresh" ]; then
	if ! timeout 900 python3 -EsB "$here/import_kernel.py" . "$here/fresh" "$sources/linux-source-$series.tar.xz"; then
		why="linux-source-$series ${fresh#* } cannot be imported"
	elif ! modules "$here/fresh" "$@"; then
		why="linux-source-$series ${fresh#* } does not compile for this kernel"
	else
		mv "$here/fresh/$name.ko" "$here"
		echo "fusetune: imported from linux-source-$series ${fresh#* }"
		exit 0
	fi
fi
if [ -n "$why" ]; then
	if [ -n "$replaces" ] && no=$(refuse "$replaces" "$packaged") && [ -n "$no" ]; then
		echo "fusetune: error: $no"
		exit 1
	fi
	echo "fusetune: older than the kernel, ${theirs#* }: $why"
fi
modules "$here" "$@"
