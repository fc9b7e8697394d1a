// SPDX-License-Identifier: GPL-2.0-or-later
/* Replies to a trapped call. */
#include "intercept.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

static bool reply(int listener, uint64_t id, int error, uint32_t flags)
{
	struct seccomp_notif_resp response = { .id = id, .error = error, .flags = flags };

	return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response) == 0;
}

bool reply_send(int listener, uint64_t id, int error)
{
	return reply(listener, id, error, 0);
}

void reply_continue(int listener, uint64_t id)
{
	reply(listener, id, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
}

bool reply_awaited(int listener, uint64_t id)
{
	return ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

enum verdict reply_failed(const struct caller *caller, int error, const char *why)
{
	if (*why && caller_waits(caller))
		tell(caller->errors, "%s: %s", why, strerror(-error));
	reply_send(caller->listener, caller->call->id, error);
	return REPLIED;
}

enum verdict reply_stock(const struct caller *caller, const char *why)
{
	const struct settings *settings = caller->settings;

	if (!caller_waits(caller))
		return REPLIED;
	if (!settings->required) {
		tell(caller->errors, "cannot mount %s with %s: %s; the kernel's own FUSE is used",
		     settings->type, settings->device, why);
		return CONTINUED;
	}
	tell(caller->errors, "cannot mount %s with %s: %s; refused, because of tuned_required",
	     settings->type, settings->device, why);
	return reply_failed(caller, -ENODEV, "");
}
