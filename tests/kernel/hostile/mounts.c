// SPDX-License-Identifier: GPL-2.0-or-later
/* The life of a mount. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hostile.h"

static int mount_one(int device)
{
	static const char *const more[] = {
		"", "", ",default_permissions", ",allow_other", ",default_permissions,allow_other",
		",max_read=4096",
	};
	static const char *const ours[] = {
		"", ",atomic_open", ",atomic_open,parallel_extend", ",parallel_extend,no_file_caps",
		",parallel_direct_writes,max_pages=64", ",atomic_open,max_pages=1",
		",writeback_cache,big_writes,async_read,async_dio", ",writeback_cache,atomic_open",
		",keep_cache,attr_timeout=9,entry_timeout=9,negative_timeout=9,parallel_dirops",
		",keep_cache,no_xattr,no_access,request_timeout=600,max_background=99",
	};
	static const char all[] =
		",writeback_cache,keep_cache,attr_timeout=9,entry_timeout=9,negative_timeout=9"
		",no_access,no_xattr,no_file_caps,async_read,async_dio,parallel_dirops,big_writes"
		",max_readahead=1048576,max_background=99,congestion_threshold=70"
		",request_timeout=600,parallel_extend,max_pages=64,atomic_open";
	char options[640];
	uint32_t stock = below(COUNT(more)), own = below(COUNT(ours));

	snprintf(options, sizeof(options), "fd=%d,rootmode=%o,user_id=0,group_id=0%s%s", device,
		 one_in(50) ? (unsigned int)(odd() & 0177777) : 040755, more[stock],
		 strcmp(type, "fusetuned") ? "" : every ? all : ours[own]);
	return mount("hostile", point, type, one_in(2) ? MS_NOSUID : 0, options);
}

/* Find the file that aborts the connection of the mount at this point. */
static void find_abort(char *name, size_t size)
{
	char line[1024], at[256];
	unsigned int minor;
	FILE *list = fopen("/proc/self/mountinfo", "re");

	*name = 0;
	while (list && fgets(line, sizeof(line), list))
		if (sscanf(line, "%*d %*d %*d:%u %*s %255s", &minor, at) == 2 && !strcmp(at, point))
			snprintf(name, size, "/sys/fs/%s/connections/%u/abort", type, minor);
	if (list)
		fclose(list);
}

static void abort_by(const char *name)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		(void)!write(fd, "1", 1);
		close(fd);
	}
}

void play_mount(uint32_t number, int *pipe_ends, uint64_t left)
{
	char name[64], abort_file[128];
	uint64_t budget;
	int device;

	seed(number, 0);
	budget = 30 + below(one_in(4) ? 2000 : 300);
	snprintf(name, sizeof(name), "/dev/%s", type);
	device = open(name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (device < 0)
		die(name);
	if (mount_one(device)) {
		tally.mounts_refused++;
		close(device);
		return;
	}
	tally.mounts++;
	find_abort(abort_file, sizeof(abort_file));
	atomic_store(&stage->mount, number);
	syscall(SYS_futex, &stage->mount, FUTEX_WAKE, CLIENTS);
	serve(device, pipe_ends, budget < left ? budget : left, below(60), 1 + below(one_in(2) ? 3 : 30));
	/* Unmount with the server alive, or dead. */
	if (one_in(3)) {
		atomic_store(&stage->unmount, true);
		serve(device, pipe_ends, 100, 0, 3);
		atomic_store(&stage->unmount, false);
	}
	/* A notification may wait for a client, and keeps the device and thus the mount. */
	if (one_in(2) || sem_trywait(&notification_sent))
		abort_by(abort_file);
	else
		sem_post(&notification_sent);
	while (sem_wait(&notification_sent))
		;
	sem_post(&notification_sent);
	atomic_store(&stage->mount, 0);
	close(device);
	umount2(point, MNT_DETACH);
}
