// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The device. It is looked up in the listener's own /dev, because it may be missing
 * in the caller's root. It is opened with the caller's rights, because a mount in a
 * user namespace only accepts a device that was opened there (fs/fuse/inode.c,
 * fuse_get_tree()). It gets the flags of the descriptor that it replaces.
 */
#include "intercept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* Documentation/admin-guide/devices.txt */
#define STOCK_DEVICE makedev(10, 229)

bool device_is_stock(const struct caller *caller, int fd)
{
	struct stat st;
	char name[32];

	snprintf(name, sizeof(name), "fd/%d", fd);
	return !fstatat(caller->thread, name, &st, 0) && S_ISCHR(st.st_mode) &&
	       st.st_rdev == STOCK_DEVICE;
}

int device_find(const struct caller *caller)
{
	return open(caller->settings->device, O_PATH | O_CLOEXEC);
}

int device_open(const struct caller *caller, int found, struct device *device)
{
	char file[48], flags[16];
	long set;

	snprintf(file, sizeof(file), "fdinfo/%d", device->replaces);
	caller_value(caller, file, "flags", flags, sizeof(flags));
	set = strtol(flags, NULL, 8);
	device->closed_on_exec = set & O_CLOEXEC;
	snprintf(file, sizeof(file), "self/fd/%d", found);
	device->fd = openat(caller->proc, file, O_RDWR | O_CLOEXEC | (set & O_NONBLOCK));
	return device->fd;
}

int device_replace(const struct caller *caller, const struct device *device)
{
	struct seccomp_notif_addfd add = {
		.id = caller->call->id,
		.flags = SECCOMP_ADDFD_FLAG_SETFD,
		.srcfd = device->fd,
		.newfd = device->replaces,
		.newfd_flags = device->closed_on_exec ? O_CLOEXEC : 0,
	};

	return ioctl(caller->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0 ? -errno : 0;
}
