// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Mount with the module fusetuned.
 *
 * When root calls mount(2) in fuse_mount_sys(), it gets the module's device, file
 * system type and options. fusermount3 allows only options that it knows, so its
 * mounts are stock.
 */
#define _GNU_SOURCE

#include "fuse_config.h"
#include "fuse_i.h"
#include "fuse_misc.h"
#include "fuse_opt.h"
#include "mount_util.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/*
 * The session that this thread is mounting with the module; no argument of
 * fuse_mount_sys() leads to it.
 */
static __thread struct fuse_session *mounting;

/*
 * Whether the device is the module's. It is not if libfuse fell back to
 * fusermount3, which mounts with the kernel's own FUSE.
 */
static int is_modules(int fd)
{
	struct stat opened, module;

	return !fstat(fd, &opened) && !stat(TUNED_MODULE_DEVICE, &module) &&
	       opened.st_rdev == module.st_rdev;
}

int tuned_kern_mount(struct fuse_session *se, const char *mountpoint)
{
	int fd;

	if (!se->tuned.by_module)
		return fuse_kern_mount(mountpoint, se->mo);
	mounting = se;
	fd = fuse_kern_mount(mountpoint, se->mo);
	mounting = NULL;
	se->tuned.by_module = fd != -1 && is_modules(fd);
	if (fd != -1 && !se->tuned.by_module)
		fuse_log(FUSE_LOG_ERR,
			 "fuse: mounted by fusermount3, and so with the kernel's own FUSE\n");
	return fd;
}

const char *tuned_mount_device(const char *stock)
{
	return mounting ? TUNED_MODULE_DEVICE : stock;
}

const char *tuned_mount_type(const char *stock)
{
	if (!mounting)
		return stock;
	return strcmp(stock, "fuseblk") ? TUNED_MODULE_NAME : TUNED_MODULE_NAME "blk";
}

int tuned_mount_options(char **options, const char *more)
{
	static const enum tuned_option modules[] = {
		TUNED_NO_FILE_CAPS, TUNED_PARALLEL_DIRECT_WRITES, TUNED_ATOMIC_OPEN
	};
	const struct tuned_options *ours;
	unsigned int i;
	char pages[32];

	if (fuse_opt_add_opt(options, more) == -1)
		return -1;
	if (!mounting)
		return 0;
	ours = &mounting->tuned.options;
	snprintf(pages, sizeof(pages), "max_pages=%u", ours->value[TUNED_MAX_PAGES]);
	if (TUNED_GIVEN(ours, TUNED_MAX_PAGES) && fuse_opt_add_opt(options, pages) == -1)
		return -1;
	for (i = 0; i < 3; i++)
		if (TUNED_GIVEN(ours, modules[i]) &&
		    fuse_opt_add_opt(options, tuned_name(modules[i])) == -1)
			return -1;
	return 0;
}

const char *tuned_session_device(const struct fuse_session *se)
{
	return se->tuned.by_module ? TUNED_MODULE_DEVICE : TUNED_STOCK_DEVICE;
}
