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
 *
 * What is the same already is not set again: a service may be allowed to mount, but
 * neither to change its root or groups nor to enter a namespace.
 *
 * From then on the caller could trace this process, and use its descriptors through
 * /proc, such as /proc itself, which leads out of the caller's root. So this process
 * is not dumpable (ptrace(2), "Ptrace access mode checking"): only who has
 * CAP_SYS_PTRACE in the interceptor's user namespace may do that.
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
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORDS _LINUX_CAPABILITY_U32S_3
/* An ID and a space for each of the most groups that a process may have. */
#define GROUPS_TEXT (NGROUPS_MAX * 11)

struct rights {
	int root, directory, mounts, own_mounts, users, own_users;
	uint64_t capabilities;
	unsigned int user, fs_user, group, fs_group;
	gid_t *groups;
	size_t count;
};

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

/* Returns false on error. */
static bool read_groups(const struct caller *caller, struct rights *rights)
{
	char *text = malloc(GROUPS_TEXT), *at = text, *end;

	rights->groups = malloc(NGROUPS_MAX * sizeof(*rights->groups));
	if (!text || !rights->groups) {
		free(text);
		return false;
	}
	caller_value(caller, "status", "Groups", text, GROUPS_TEXT);
	for (; rights->count < NGROUPS_MAX; at = end, rights->count++) {
		rights->groups[rights->count] = strtoul(at, &end, 10);
		if (end == at)
			break;
	}
	free(text);
	return true;
}

/* The line has the real, effective, saved and file system ID. */
static bool read_numbers(const struct caller *caller, const char *name, unsigned int *effective,
			 unsigned int *file_system)
{
	char text[64];

	caller_value(caller, "status", name, text, sizeof(text));
	return sscanf(text, "%*u %u %*u %u", effective, file_system) == 2;
}

/* Returns 0 or -errno. */
static int read_rights(const struct caller *caller, struct rights *rights)
{
	char capabilities[32];

	rights->root = openat(caller->thread, "root", O_PATH | O_CLOEXEC);
	rights->directory = openat(caller->thread, "cwd", O_PATH | O_CLOEXEC);
	rights->mounts = openat(caller->thread, "ns/mnt", O_RDONLY | O_CLOEXEC);
	rights->own_mounts = openat(caller->proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
	rights->users = openat(caller->thread, "ns/user", O_RDONLY | O_CLOEXEC);
	rights->own_users = openat(caller->proc, "self/ns/user", O_RDONLY | O_CLOEXEC);
	if (rights->root == -1 || rights->directory == -1 || rights->mounts == -1 ||
	    rights->own_mounts == -1 || rights->users == -1 || rights->own_users == -1)
		return -errno;
	caller_value(caller, "status", "CapEff", capabilities, sizeof(capabilities));
	rights->capabilities = strtoull(capabilities, NULL, 16);
	if (!read_numbers(caller, "Uid", &rights->user, &rights->fs_user) ||
	    !read_numbers(caller, "Gid", &rights->group, &rights->fs_group))
		return -EPERM;
	return read_groups(caller, rights) ? 0 : -ENOMEM;
}

static bool has_groups(const struct rights *rights)
{
	gid_t *own = malloc(NGROUPS_MAX * sizeof(*own));
	int count = own ? getgroups(NGROUPS_MAX, own) : -1;
	bool same = count == (int)rights->count && !memcmp(own, rights->groups, count * sizeof(*own));

	free(own);
	return same;
}

static int take_ids(const struct rights *rights)
{
	uint64_t all = own_capabilities();
	uid_t user = rights->user;
	gid_t group = rights->group;

	if ((!has_groups(rights) && setgroups(rights->count, rights->groups)) ||
	    setresgid(group, group, group))
		return -1;
	setfsgid(rights->fs_group);
	/* Changing the user clears the effective capabilities; set them again. */
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setresuid(user, user, user) ||
	    set_capabilities(all))
		return -1;
	setfsuid(rights->fs_user);
	/* These return the previous ID; an invalid ID changes nothing. */
	if (setfsgid(-1) != (int)rights->fs_group || setfsuid(-1) != (int)rights->fs_user)
		return -1;
	return set_capabilities(all);
}

static bool same_file(int one, int other)
{
	struct stat a, b;

	return !fstat(one, &a) && !fstat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Whether it is this process's root: on the same mount, and the same file there. */
static bool is_root(int directory)
{
	/* No server is asked. */
	int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
	struct statx a, b;

	return !statx(directory, "", flags, STATX_INO | STATX_MNT_ID, &a) &&
	       !statx(AT_FDCWD, "/", flags, STATX_INO | STATX_MNT_ID, &b) &&
	       a.stx_mask & b.stx_mask & STATX_MNT_ID && a.stx_mnt_id == b.stx_mnt_id &&
	       a.stx_dev_major == b.stx_dev_major && a.stx_dev_minor == b.stx_dev_minor &&
	       a.stx_ino == b.stx_ino;
}

static int take_place(const struct rights *rights)
{
	if (!same_file(rights->mounts, rights->own_mounts) && setns(rights->mounts, CLONE_NEWNS))
		return -1;
	if (!is_root(rights->root) && (fchdir(rights->root) || chroot(".")))
		return -1;
	return fchdir(rights->directory);
}

static int take_rights(const struct rights *rights)
{
	errno = EPERM;
	if (take_place(rights) || take_ids(rights))
		return -errno;
	if (!same_file(rights->users, rights->own_users) && setns(rights->users, CLONE_NEWUSER))
		return -errno;
	/* The kernel has set it to fs.suid_dumpable with the IDs, which may be 1 (commit_creds()). */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return -errno;
	return set_capabilities(rights->capabilities & own_capabilities()) ? -errno : 0;
}

int rights_take(const struct caller *caller)
{
	struct rights rights = { 0 };
	int err = read_rights(caller, &rights);

	/* After reading: if the caller is gone, these may be the rights of a set-uid program. */
	if (!caller_waits(caller))
		err = -ESRCH;
	if (!err)
		err = take_rights(&rights);
	free(rights.groups);
	return err;
}
