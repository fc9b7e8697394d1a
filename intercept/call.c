// SPDX-License-Identifier: GPL-2.0-or-later
/* Dispatches one trapped call. */
#include "intercept.h"

#include <sys/syscall.h>

/* Set in the call numbers of x32, which otherwise equal those of x86-64. */
#define X32_CALL 0x40000000

/* fsopen(2) and fsconfig(2) have the same numbers on all architectures; mount(2) has not. */
static enum verdict of_call(struct caller *caller)
{
	switch (caller->call->data.nr & ~X32_CALL) {
	case SYS_fsopen:
		return context_open(caller);
	case SYS_fsconfig:
		return context_configure(caller);
	default:
		return mount_call(caller);
	}
}

void call_handle(const struct settings *settings, int listener, int channel,
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
	    reply_stock(&caller, "a process that mounts cannot be seen in /proc") == CONTINUED)
		reply_continue(listener, call->id);
}
