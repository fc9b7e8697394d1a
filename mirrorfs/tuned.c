// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Mount with the module fusetuned. libfuse and fusermount3 only use /dev/fuse, so
 * mount here and pass the open device to libfuse.
 */
#include "mirrorfs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define DEVICE "/dev/fusetuned"
#define FILESYSTEM "fusetuned.mirrorfs"

/* Returns the data for mount(2), or NULL when there is no memory. */
static char *mount_data(const struct options *opts, int fd)
{
	const char *more = opts->tuned_options;
	char *data, *c;

	if (asprintf(&data, "fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions%s%s",
		     fd, getuid(), getgid(), more ? "," : "", more ? more : "") == -1)
		return NULL;
	for (c = data; *c; c++)
		if (*c == '+')
			*c = ',';
	return data;
}

int tuned_mount(const struct options *opts)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	char *data;

	if (fd == -1) {
		fprintf(stderr, "mirrorfs: %s: %s; load the module fusetuned, as root\n",
			DEVICE, strerror(errno));
		return -1;
	}
	data = mount_data(opts, fd);
	if (!data || mount(opts->source, opts->mountpoint, FILESYSTEM, MS_NOSUID | MS_NODEV,
			   data) == -1) {
		fprintf(stderr, "mirrorfs: %s: cannot mount: %s; see the end of dmesg\n",
			opts->mountpoint, strerror(errno));
		close(fd);
		fd = -1;
	}
	free(data);
	return fd;
}

void tuned_unmount(const struct options *opts, int fd)
{
	struct pollfd device = { .fd = fd };

	/* It has been unmounted already; what is mounted there now is not ours. */
	if (poll(&device, 1, 0) == 1 && (device.revents & POLLERR))
		return;
	umount2(opts->mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW);
}
