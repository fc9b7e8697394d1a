// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The calling thread, by its TID and through /proc/TID. If caller_waits() returns
 * true, the TID has been this thread's all the time, because the kernel ends the call
 * of a thread that ends. Afterwards even an open /proc/TID may refer to another
 * thread: one that calls execve(2) takes over the TID of the thread group's leader
 * (fs/exec.c, de_thread()), and may be root's by then.
 */
#include "intercept.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
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
	caller->errors = pidfd_getfd(pidfd, STDERR_FILENO, 0);
	/* Both are its own only if it still waits. */
	return caller_waits(caller);
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

/* Fails with ELOOP at a link such as /proc/self/fd/3, which here is not the caller's. */
static int resolve(int directory, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };

	return syscall(SYS_openat2, directory, path, &how, sizeof(how));
}

/* The length of the link to a file that begins a path below /proc/TID; 0: none. */
static size_t link_length(const char *path)
{
	size_t length = strcspn(path, "/");

	if (!strncmp(path, "fd/", 3)) {
		length = 3 + strspn(path + 3, "0123456789");
		if (length == 3)
			return 0;
	} else if (!(length == 3 && !strncmp(path, "cwd", 3)) &&
		   !(length == 4 && !strncmp(path, "root", 4))) {
		return 0;
	}
	return path[length] && path[length] != '/' ? 0 : length;
}

/*
 * Opens a path below /proc/TID. Only the link is looked up there, because ".." would
 * lead from there to the listener's root directory rather than to the caller's.
 */
static int thread_path(const struct caller *caller, const char *path)
{
	size_t length = link_length(path);
	char link[16];
	int file;

	if (!length || length >= sizeof(link)) {
		errno = ELOOP;
		return -1;
	}
	snprintf(link, sizeof(link), "%.*s", (int)length, path);
	file = openat(caller->thread, link, O_PATH | O_CLOEXEC);
	path += length;
	if (file == -1 || !*path)
		return file;
	path += strspn(path, "/");
	return resolve(file, *path ? path : ".");
}

int caller_path(const struct caller *caller, const char *path)
{
	/* The path below /proc/TID begins at this place. */
	static const struct { const char *prefix; size_t below; } links[] = {
		{ "/proc/self/", sizeof("/proc/self/") - 1 },
		{ "/proc/thread-self/", sizeof("/proc/thread-self/") - 1 },
		{ "/dev/fd/", sizeof("/dev/") - 1 },
	};

	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
		if (!strncmp(path, links[i].prefix, strlen(links[i].prefix)))
			return thread_path(caller, path + links[i].below);
	return resolve(AT_FDCWD, path);
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
