// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A process for each call. It replies by itself, even if the listener has been
 * killed. If the process is killed before it has replied, the caller would wait
 * forever. So the listener then replies with an error, and undoes the mount, of
 * which that process had sent it a descriptor.
 */
#include "intercept.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 64

static struct {
	pid_t process;		/* 0: free */
	uint64_t id;
	pid_t caller;
	int channel;
} requests[MOST];
static unsigned int running;

bool requests_full(void)
{
	return running == MOST;
}

/*
 * In a forked process. Otherwise it would hold the mounts that other requests have
 * sent, for as long as it runs itself.
 */
static void close_channels(void)
{
	for (int i = 0; i < MOST; i++)
		if (requests[i].process)
			close(requests[i].channel);
}

void requests_begin(const struct settings *settings, int listener,
		    const struct seccomp_notif *call)
{
	int channel[2], free = 0;
	pid_t process;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel)) {
		reply_send(listener, call->id, -errno);
		return;
	}
	process = fork();
	if (!process) {
		close(channel[0]);
		close_channels();
		call_handle(settings, listener, channel[1], call);
		_exit(0);
	}
	close(channel[1]);
	if (process == -1) {
		reply_send(listener, call->id, -errno);
		close(channel[0]);
		return;
	}
	while (requests[free].process)
		free++;
	requests[free].process = process;
	requests[free].id = call->id;
	requests[free].caller = call->pid;
	requests[free].channel = channel[0];
	running++;
}

static void undo(int proc, int mount, int space)
{
	pid_t process = fork();

	if (process == -1)
		return;
	if (process) {
		waitpid(process, NULL, 0);
		return;
	}
	close_channels();
	if (!setns(space, CLONE_NEWNS))
		mount_undo(proc, mount);
	_exit(0);
}

/*
 * If nobody waits, the caller got its reply or is gone too. The mount is undone
 * before the reply, so that the caller does not find it when it retries.
 */
static void abandoned(const struct settings *settings, int listener, int request)
{
	int mount = receive_fd(requests[request].channel, MSG_DONTWAIT), space;
	int proc = proc_open(settings);
	char path[32];

	snprintf(path, sizeof(path), "%d/ns/mnt", requests[request].caller);
	space = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (reply_awaited(listener, requests[request].id) && mount != -1 && space != -1)
		undo(proc, mount, space);
	reply_send(listener, requests[request].id, -EIO);
	if (proc != -1)
		close(proc);
	if (mount != -1)
		close(mount);
	if (space != -1)
		close(space);
}

void requests_reap(const struct settings *settings, int listener)
{
	pid_t process;
	int status;

	while ((process = waitpid(-1, &status, WNOHANG)) > 0)
		for (int i = 0; i < MOST; i++)
			if (requests[i].process == process) {
				if (WIFSIGNALED(status))
					abandoned(settings, listener, i);
				close(requests[i].channel);
				requests[i].process = 0;
				running--;
				break;
			}
}
