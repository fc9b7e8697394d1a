// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mount(2) of a FUSE file system. The mount is made with fsopen(2), fsconfig(2) and
 * fsmount(2), which are equivalent (fs/namespace.c, path_mount() and
 * do_new_mount()). They explain in words why the kernel refuses, and return a
 * descriptor of the mount before it is attached, so that exactly this mount can be
 * undone if the caller dies before it has its device. However, fsconfig(2) takes
 * values of at most 255 bytes. A mount with a longer one, such as the list of
 * branches of mergerfs, is made with mount(2), and is not undone if this process is
 * killed.
 *
 * If a call does not mount FUSE, or if the kernel would refuse its arguments before
 * it looks at the device, the kernel continues it and returns the right error.
 */
#include "intercept.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* A new mount, as the caller requested it. */
struct request {
	char type[PATH_MAX];
	char source[PATH_MAX];
	char target[PATH_MAX];
	char *options;
	bool has_source;
	bool block;
	unsigned long flags;
	struct device device;
};

static const struct { unsigned long flag; const char *name; } super_flags[] = {
	{ MS_RDONLY, "ro" },
	{ MS_SYNCHRONOUS, "sync" },
	{ MS_DIRSYNC, "dirsync" },
	{ MS_MANDLOCK, "mand" },
	{ MS_LAZYTIME, "lazytime" },
};

static const struct { unsigned long flag; unsigned int attribute; } mount_flags[] = {
	{ MS_RDONLY, MOUNT_ATTR_RDONLY },
	{ MS_NOSUID, MOUNT_ATTR_NOSUID },
	{ MS_NODEV, MOUNT_ATTR_NODEV },
	{ MS_NOEXEC, MOUNT_ATTR_NOEXEC },
	{ MS_NODIRATIME, MOUNT_ATTR_NODIRATIME },
	{ MS_NOSYMFOLLOW, MOUNT_ATTR_NOSYMFOLLOW },
};

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* Returns false if the kernel must continue the call. */
static bool read_arguments(const struct caller *caller, struct request *request)
{
	const __u64 *arguments = caller->call->data.args;
	size_t page = sysconf(_SC_PAGESIZE);

	request->flags = arguments[3];
	if ((request->flags & MS_MGC_MSK) == MS_MGC_VAL)
		request->flags &= ~MS_MGC_MSK;
	if (!caller_text(caller, arguments[2], request->type, PATH_MAX) ||
	    !is_fuse(request->type, &request->block))
		return false;
	request->has_source = arguments[0];
	if (request->has_source && !caller_text(caller, arguments[0], request->source, PATH_MAX))
		return false;
	if (!caller_text(caller, arguments[1], request->target, PATH_MAX))
		return false;
	/* At most a page, or what can be read of it, as in copy_mount_options(). */
	request->options = malloc(page);
	if (!request->options ||
	    (!caller_text(caller, arguments[4], request->options, page) && !*request->options))
		return false;
	request->device.replaces = options_descriptor(request->options);
	return request->device.replaces != -1 && device_is_stock(caller, request->device.replaces) &&
	       caller_waits(caller);
}

static unsigned int attributes(unsigned long flags)
{
	unsigned int found = MOUNT_ATTR_RELATIME;

	if (flags & MS_STRICTATIME)
		found = MOUNT_ATTR_STRICTATIME;
	else if (flags & MS_NOATIME)
		found = MOUNT_ATTR_NOATIME;
	for (size_t i = 0; i < LENGTH(mount_flags); i++)
		if (flags & mount_flags[i].flag)
			found |= mount_flags[i].attribute;
	return found;
}

static int set(int context, const char *key, const char *value)
{
	return fsconfig(context, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0) ?
		-errno : 0;
}

static int configure(int context, const struct caller *caller, const struct request *request)
{
	const char *subtype = strchr(request->type, '.');
	char descriptor[16];
	int err = 0;

	snprintf(descriptor, sizeof(descriptor), "%d", request->device.fd);
	for (size_t i = 0; i < LENGTH(super_flags) && !err; i++)
		if (request->flags & super_flags[i].flag)
			err = set(context, super_flags[i].name, NULL);
	if (!err && subtype)
		err = subtype[1] ? set(context, "subtype", subtype + 1) : -EINVAL;
	if (!err && request->has_source)
		err = set(context, "source", request->source);
	if (!err)
		err = set(context, "fd", descriptor);
	if (!err)
		err = options_set(context, request->options);
	return err ? err : options_set(context, caller->settings->options);
}

/* Kernel messages begin with their kind, such as "e " (fs/fsopen.c, fscontext_read()). */
enum verdict mount_refused(const struct caller *caller, int context, int error)
{
	char text[512], why[768];
	ssize_t length = read(context, text, sizeof(text) - 1);

	if (length < 3)
		return reply_failed(caller, error, "");
	text[length] = 0;
	text[strcspn(text, "\n")] = 0;
	snprintf(why, sizeof(why), "cannot mount with the additional options \"%s\": %s",
		 caller->settings->options, text + 2);
	return reply_failed(caller, error, why);
}

int mount_context(const struct caller *caller, bool block, const char **why)
{
	char type[PATH_MAX];
	int context, stock, err;

	snprintf(type, sizeof(type), "%s%s", caller->settings->type, block ? "blk" : "");
	context = fsopen(type, FSOPEN_CLOEXEC);
	err = errno;
	*why = NULL;
	if (context == -1 && err == ENODEV)
		*why = strerror(err);
	if (context == -1 && err == EPERM) {
		/* Fails as well if the caller may not mount at all, which is not the module's choice. */
		stock = fsopen(block ? "fuseblk" : "fuse", FSOPEN_CLOEXEC);
		if (stock != -1) {
			*why = "it is not allowed in this user namespace";
			close(stock);
		}
	}
	errno = err;
	return context;
}

/* Configures the context as for mount(2), and creates the super block. Returns 0 or -errno. */
static int create(const struct caller *caller, const struct request *request, int context)
{
	int err = configure(context, caller, request);

	if (!err && fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		err = -errno;
	return err;
}

/*
 * Mounts with values that are too long for fsconfig(2). Returns 0 or -errno. The
 * caller's path is not used again: it may have changed, and /proc/self/fd/3 would be
 * a descriptor of this process.
 */
static int mount_long(const struct caller *caller, const struct request *request, int target)
{
	const char *ours = caller->settings->options, *subtype = strchr(request->type, '.');
	char type[PATH_MAX], path[32], *others, *options = NULL;
	int err;

	if (snprintf(type, sizeof(type), "%s%s%s", caller->settings->type,
		     request->block ? "blk" : "", subtype ? subtype : "") >= (int)sizeof(type))
		return -EINVAL;
	/*
	 * Newer kernels refuse a second fd=, and look up each one here, where the caller's
	 * is not open (fuse_parse_param()). Our options have none.
	 */
	others = options_without_descriptor(request->options);
	if (!others || asprintf(&options, "%sfd=%d%s%s", others, request->device.fd,
				*ours ? "," : "", ours) == -1)
		options = NULL;
	free(others);
	if (!options)
		return -ENOMEM;
	err = (long)strlen(options) < sysconf(_SC_PAGESIZE) ? 0 : -EINVAL;
	snprintf(path, sizeof(path), "self/fd/%d", target);
	if (!err && (fchdir(caller->proc) ||
		     mount(request->has_source ? request->source : NULL, path, type,
			   request->flags, options)))
		err = -errno;
	free(options);
	return err;
}

void mount_undo(int proc, int mount)
{
	char path[32];

	snprintf(path, sizeof(path), "self/fd/%d", mount);
	if (!fchdir(proc))
		umount2(path, MNT_DETACH);
}

/* For a directory on a file or a file on a directory, move_mount(2) returns EINVAL. */
static int attach_error(int mount, int target, int error)
{
	struct statx a, b;
	/* Cached attributes suffice; the server does not reply to requests yet. */
	int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;

	if (error == EINVAL && !statx(mount, "", flags, STATX_TYPE, &a) &&
	    !statx(target, "", flags, STATX_TYPE, &b) && S_ISDIR(a.stx_mode) != S_ISDIR(b.stx_mode))
		return -ENOTDIR;
	return -error;
}

/* Gives the caller its device; undoes the mount if that fails. */
static enum verdict hand_over(const struct caller *caller, const struct request *request, int mount)
{
	int err = device_replace(caller, &request->device);

	if (!err && reply_send(caller->listener, caller->call->id, 0))
		return REPLIED;
	/* Before the reply, so that the caller never finds this mount when it retries. */
	mount_undo(caller->proc, mount);
	return reply_failed(caller, err, "");
}

static enum verdict attach(const struct caller *caller, const struct request *request, int mount,
			   int target)
{
	/* The listener undoes the mount if this process is killed. */
	pass_fd(caller->channel, mount);
	if (move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		return reply_failed(caller, attach_error(mount, target, errno), "");
	return hand_over(caller, request, mount);
}

static enum verdict make_long(const struct caller *caller, const struct request *request,
			      int target)
{
	int err;

	/* mount_long() leaves the working directory, where the device would be looked up. */
	if (request->block && *request->source != '/')
		return reply_stock(caller, "its options are long and its block device is relative "
				   "to a directory");
	err = mount_long(caller, request, target);
	return err ? reply_failed(caller, err, "") : hand_over(caller, request, target);
}

static enum verdict make_new(const struct caller *caller, const struct request *request, int target,
			     int context)
{
	int mount, err = create(caller, request, context);

	if (err)
		return mount_refused(caller, context, err);
	mount = fsmount(context, FSMOUNT_CLOEXEC, attributes(request->flags));
	if (mount == -1)
		return mount_refused(caller, context, -errno);
	return attach(caller, request, mount, target);
}

static enum verdict make_here(const struct caller *caller, struct request *request, int found)
{
	int target = caller_path(caller, request->target), context;
	const char *why;

	if (target == -1 && errno == ELOOP)
		return reply_stock(caller, "its mount point is behind a link in /proc");
	/* The kernel knows better: "//proc/self/fd/3" is looked up in this process. */
	if (target == -1 && !caller->settings->required)
		return CONTINUED;
	if (target == -1)
		return reply_failed(caller, -errno, "");
	if (device_open(caller, found, &request->device) == -1)
		return reply_stock(caller, strerror(errno));
	context = mount_context(caller, request->block, &why);
	if (context == -1)
		return why ? reply_stock(caller, why) : reply_failed(caller, -errno, "");
	if (strlen(request->source) > OPTIONS_LONGEST || !options_fit(request->options))
		return make_long(caller, request, target);
	return make_new(caller, request, target, context);
}

enum verdict mount_call(struct caller *caller)
{
	struct request *request = calloc(1, sizeof(*request));
	int found;

	if (!request)
		return reply_failed(caller, -ENOMEM, "");
	if (!read_arguments(caller, request))
		return CONTINUED;
	found = device_find(caller);
	if (found == -1)
		return reply_stock(caller, strerror(errno));
	if (rights_take(caller))
		return reply_stock(caller, "cannot take the rights of the process that mounts");
	return make_here(caller, request, found);
}
