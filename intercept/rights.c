// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Adopt the caller's root and rights. Paths are resolved from the caller's root and
 * working directory in its mount namespace, and every check in the kernel sees its
 * user, groups and capabilities, in its user namespace. So nothing can be mounted
 * or opened here that the caller could not mount or open itself.
 *
 * User and group IDs are read and set before entering the user namespace, so that
 * both use the same IDs. Entering it grants all capabilities, so the caller's
 * capabilities are set last.
 */
#include "intercept.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORDS _LINUX_CAPABILITY_U32S_3
/* An ID and a space for each of the most groups that a process may have. */
#define GROUPS_TEXT (NGROUPS_MAX * 11)

static int set_capabilities(uint64_t mask)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct words[WORDS] = { 0 };

	for (int i = 0; i < WORDS; i++)
		words[i].effective = words[i].permitted = mask >> (32 * i);
	return syscall(SYS_capset, &header, words);
}

static uint64_t own_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct words[WORDS] = { 0 };

	if (syscall(SYS_capget, &header, words))
		return 0;
	return words[0].permitted | (uint64_t)words[1].permitted << 32;
}

static int take_groups(const struct caller *caller)
{
	gid_t *groups = malloc(NGROUPS_MAX * sizeof(*groups));
	char *text = malloc(GROUPS_TEXT), *at = text, *end;
	size_t count = 0;
	int err = -1;

	if (groups && text) {
		caller_value(caller, "status", "Groups", text, GROUPS_TEXT);
		for (; count < NGROUPS_MAX; at = end, count++) {
			groups[count] = strtoul(at, &end, 10);
			if (end == at)
				break;
		}
		err = setgroups(count, groups);
	}
	free(text);
	free(groups);
	return err;
}

/* The line has the real, effective, saved and file system ID. */
static bool numbers(const struct caller *caller, const char *name, unsigned int *effective,
		    unsigned int *file_system)
{
	char text[64];

	caller_value(caller, "status", name, text, sizeof(text));
	return sscanf(text, "%*u %u %*u %u", effective, file_system) == 2;
}

static int take_ids(const struct caller *caller)
{
	unsigned int user, group, fs_user, fs_group;
	uint64_t all = own_capabilities();

	if (!numbers(caller, "Uid", &user, &fs_user) || !numbers(caller, "Gid", &group, &fs_group))
		return -1;
	if (take_groups(caller) || setresgid(group, group, group))
		return -1;
	setfsgid(fs_group);
	/* Changing the user clears the effective capabilities; set them again. */
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setresuid(user, user, user) ||
	    set_capabilities(all))
		return -1;
	setfsuid(fs_user);
	/* These return the previous ID; an invalid ID changes nothing. */
	if (setfsgid(-1) != (int)fs_group || setfsuid(-1) != (int)fs_user)
		return -1;
	return set_capabilities(all);
}

static int take_place(int root, int directory, int mounts)
{
	if (setns(mounts, CLONE_NEWNS) || fchdir(root) || chroot("."))
		return -1;
	return fchdir(directory);
}

static bool same_file(int one, int other)
{
	struct stat a, b;

	return !fstat(one, &a) && !fstat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int rights_take(const struct caller *caller)
{
	int root = openat(caller->thread, "root", O_PATH | O_CLOEXEC);
	int directory = openat(caller->thread, "cwd", O_PATH | O_CLOEXEC);
	int mounts = openat(caller->thread, "ns/mnt", O_RDONLY | O_CLOEXEC);
	int users = openat(caller->thread, "ns/user", O_RDONLY | O_CLOEXEC);
	int own = openat(caller->proc, "self/ns/user", O_RDONLY | O_CLOEXEC);
	char effective[32];

	if (root == -1 || directory == -1 || mounts == -1 || users == -1 || own == -1)
		return -errno;
	caller_value(caller, "status", "CapEff", effective, sizeof(effective));
	errno = EPERM;
	if (take_place(root, directory, mounts) || take_ids(caller))
		return -errno;
	if (!same_file(users, own) && setns(users, CLONE_NEWUSER))
		return -errno;
	return set_capabilities(strtoull(effective, NULL, 16) & own_capabilities()) ? -errno : 0;
}
