// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fsopen(2) and fsconfig(2), with which newer libraries mount. fsopen(2) of FUSE's
 * types returns a context of our type that already has our options. From there the
 * caller continues by itself: its other options, fsmount(2) and move_mount(2) are
 * not trapped. Only when it passes its descriptor, the device replaces it first.
 *
 * There is no way to ask which context a descriptor stands for. But fsopen(2) and
 * the option with the descriptor get the same treatment: the kernel continues both
 * if the caller may not open the device or a context of our type, and otherwise
 * neither.
 */
#include "intercept.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

/* Opens the device with the caller's rights. Returns NULL, or why it cannot be used. */
static const char *take_device(const struct caller *caller, struct device *device)
{
	int found = device_find(caller), context, err;
	const char *why;

	if (found == -1)
		return strerror(errno);
	err = rights_take(caller);
	if (err)
		return strerror(-err);
	/* A context of the kernel's own FUSE does not take our device. */
	context = mount_context(caller, false, &why);
	if (context != -1)
		close(context);
	if (why)
		return why;
	return device_open(caller, found, device) == -1 ? strerror(errno) : NULL;
}

static enum verdict hand_over(const struct caller *caller, int context, bool closed_on_exec)
{
	struct seccomp_notif_addfd add = {
		.id = caller->call->id,
		.flags = SECCOMP_ADDFD_FLAG_SEND,
		.srcfd = context,
		.newfd_flags = closed_on_exec ? O_CLOEXEC : 0,
	};

	if (ioctl(caller->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0)
		return reply_failed(caller, -errno, "");
	return REPLIED;
}

enum verdict context_open(struct caller *caller)
{
	char name[PATH_MAX];
	const char *why;
	uint64_t flags = caller->call->data.args[1];
	struct device device = { .replaces = -1 };
	int context, err;
	bool block;

	if (flags & ~(uint64_t)FSOPEN_CLOEXEC ||
	    !caller_text(caller, caller->call->data.args[0], name, sizeof(name)) ||
	    !is_fuse(name, &block) || !caller_waits(caller))
		return CONTINUED;
	why = take_device(caller, &device);
	if (why)
		return reply_stock(caller, why);
	close(device.fd);
	context = mount_context(caller, block, &why);
	if (context == -1)
		return why ? reply_stock(caller, why) : reply_failed(caller, -errno, "");
	err = options_set(context, caller->settings->options);
	if (err)
		return mount_refused(caller, context, err);
	return hand_over(caller, context, flags & FSOPEN_CLOEXEC);
}

static bool is_context(const struct caller *caller, unsigned int fd)
{
	static const char link[] = "anon_inode:[fscontext]";
	char name[32], text[sizeof(link)];

	snprintf(name, sizeof(name), "fd/%u", fd);
	return readlinkat(caller->thread, name, text, sizeof(text)) == sizeof(link) - 1 &&
	       !memcmp(text, link, sizeof(link) - 1);
}

/* The descriptor that fsconfig(2) passes as the device; -1: none. */
static int named_descriptor(const struct caller *caller)
{
	const __u64 *arguments = caller->call->data.args;
	char key[16], value[16], *end;
	long fd;

	if (!is_context(caller, arguments[0]) || !caller_text(caller, arguments[2], key, sizeof(key)) ||
	    strcmp(key, "fd"))
		return -1;
	if (arguments[1] == FSCONFIG_SET_FD)
		return (int)arguments[4];
	if (!caller_text(caller, arguments[3], value, sizeof(value)))
		return -1;
	fd = strtol(value, &end, 0);
	return end == value || *end || fd < 0 || fd > INT_MAX ? -1 : (int)fd;
}

enum verdict context_configure(struct caller *caller)
{
	struct device device = { .replaces = named_descriptor(caller) };
	const char *why;
	int err;

	if (device.replaces < 0 || !device_is_stock(caller, device.replaces) || !caller_waits(caller))
		return CONTINUED;
	why = take_device(caller, &device);
	if (why)
		return reply_stock(caller, why);
	err = device_replace(caller, &device);
	return err ? reply_failed(caller, err, "") : CONTINUED;
}
