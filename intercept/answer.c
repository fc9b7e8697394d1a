// SPDX-License-Identifier: GPL-2.0-or-later
/* Dispatch one trapped call, and reply to it. */
#include "intercept.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

/* Set in the call numbers of x32, which otherwise equal those of x86-64. */
#define X32_CALL 0x40000000

static bool reply(int listener, uint64_t id, int error, uint32_t flags)
{
	struct seccomp_notif_resp response = { .id = id, .error = error, .flags = flags };

	return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response) == 0;
}

bool answer_send(int listener, uint64_t id, int error)
{
	return reply(listener, id, error, 0);
}

bool answer_awaited(int listener, uint64_t id)
{
	return ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

enum verdict answer_failed(const struct caller *caller, int error, const char *why)
{
	if (*why)
		tell(caller->errors, "%s: %s", why, strerror(-error));
	answer_send(caller->listener, caller->call->id, error);
	return ANSWERED;
}

enum verdict answer_stock(const struct caller *caller, const char *why)
{
	const struct settings *settings = caller->settings;

	if (!settings->required) {
		tell(caller->errors, "cannot mount %s with %s: %s; the kernel's own FUSE is used",
		     settings->type, settings->device, why);
		return CONTINUED;
	}
	tell(caller->errors, "cannot mount %s with %s: %s; refused, because of tuned_required",
	     settings->type, settings->device, why);
	return answer_failed(caller, -ENODEV, "");
}

bool is_fuse(const char *type, bool *block)
{
	size_t length = strcspn(type, ".");

	*block = length == 7 && !strncmp(type, "fuseblk", length);
	return *block || (length == 4 && !strncmp(type, "fuse", length));
}

/* fsopen(2) and fsconfig(2) have the same numbers on all architectures; mount(2) has not. */
static enum verdict of_call(struct caller *caller)
{
	switch (caller->call->data.nr & ~X32_CALL) {
	case SYS_fsopen:
		return context_open(caller);
	case SYS_fsconfig:
		return context_configure(caller);
	default:
		return mount_answer(caller);
	}
}

void answer(const struct settings *settings, int listener, int channel,
	    const struct seccomp_notif *call)
{
	struct caller caller = {
		.settings = settings,
		.listener = listener,
		.call = call,
		.channel = channel,
		.errors = -1,
	};

	if (caller_find(&caller) ? of_call(&caller) == CONTINUED :
	    answer_stock(&caller, "a process that mounts cannot be seen in /proc") == CONTINUED)
		reply(listener, call->id, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
}
