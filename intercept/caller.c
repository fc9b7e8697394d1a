// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The calling thread, by its TID and through /proc/TID. A file in an open /proc/TID
 * always belongs to this thread, and fails once the thread has ended. If
 * caller_waits() returns true, the TID has been this thread's all the time, because
 * the kernel ends the call of a thread that ends.
 */
#include "intercept.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/uio.h>
#include <unistd.h>

/* Every page size is a multiple of this. */
#define LEAST_PAGE 4096

bool caller_waits(const struct caller *caller)
{
	return reply_awaited(caller->listener, caller->call->id);
}

int proc_open(const struct settings *settings)
{
	if (settings->proc != -1)
		return fcntl(settings->proc, F_DUPFD_CLOEXEC, 0);
	return open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

bool caller_find(struct caller *caller)
{
	char name[16], process[16];
	int pidfd;

	caller->proc = proc_open(caller->settings);
	snprintf(name, sizeof(name), "%u", caller->call->pid);
	caller->thread = openat(caller->proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (caller->thread == -1)
		return false;
	caller_value(caller, "status", "Tgid", process, sizeof(process));
	pidfd = pidfd_open(atoi(process), 0);
	/* The TID is its own only if it still waits. */
	if (!caller_waits(caller))
		return false;
	caller->errors = pidfd_getfd(pidfd, STDERR_FILENO, 0);
	return true;
}

/*
 * Memory is read page by page, because the page after the end of the text need not
 * exist. As in a system call, only memory that the caller can read is read.
 */
bool caller_text(const struct caller *caller, uint64_t address, char *text, size_t size)
{
	size_t done = 0, part;
	bool ended = false;
	ssize_t got;

	while (done < size - 1 && !ended) {
		part = LEAST_PAGE - (address + done) % LEAST_PAGE;
		if (part > size - 1 - done)
			part = size - 1 - done;
		got = process_vm_readv(caller->call->pid, &(struct iovec){ text + done, part }, 1,
				       &(struct iovec){ (void *)(uintptr_t)(address + done), part }, 1, 0);
		if (got <= 0)
			break;
		ended = memchr(text + done, 0, got);
		done += got;
	}
	text[done] = 0;
	return ended;
}

int caller_path(const struct caller *caller, const char *path)
{
	static const struct { const char *own, *same; } links[] = {
		{ "/proc/self/", "" },
		{ "/proc/thread-self/", "" },
		{ "/dev/fd/", "fd/" },
	};
	char inside[PATH_MAX + 4];

	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
		if (!strncmp(path, links[i].own, strlen(links[i].own))) {
			snprintf(inside, sizeof(inside), "%s%s", links[i].same,
				 path + strlen(links[i].own));
			return openat(caller->thread, *inside ? inside : ".", O_PATH | O_CLOEXEC);
		}
	return open(path, O_PATH | O_CLOEXEC);
}

void caller_value(const struct caller *caller, const char *file, const char *name,
		  char *text, size_t size)
{
	int fd = openat(caller->thread, file, O_RDONLY | O_CLOEXEC);
	FILE *lines = fd == -1 ? NULL : fdopen(fd, "re");
	size_t length = strlen(name), room = 0;
	char *line = NULL;

	*text = 0;
	if (!lines)
		return;
	while (getline(&line, &room, lines) > 0)
		if (!strncmp(line, name, length) && line[length] == ':') {
			snprintf(text, size, "%s", line + length + 1 + strspn(line + length + 1, " \t"));
			text[strcspn(text, "\n")] = 0;
			break;
		}
	free(line);
	fclose(lines);
}
