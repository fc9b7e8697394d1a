// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A cgroup for the supervisor and the listener, below the one that they were started
 * in. For Type=forking, systemd takes the only process left in the service's own
 * cgroup as the main process, and gives up if there are two. It does not look into
 * cgroups below (src/core/service.c, service_search_main_pid()). With Delegate=, a
 * service may have such cgroups.
 */
#include "intercept.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup"

/* The line of the cgroup v2 hierarchy is "0::/PATH" (cgroups(7)). */
static bool own_group(char *path, size_t size)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		found = !strncmp(line, "0::/", 4);
	}
	if (file)
		fclose(file);
	return found && snprintf(path, size, ROOT "%s", line + 3) < (int)size;
}

bool cgroup_leave(void)
{
	char path[PATH_MAX], below[PATH_MAX + 32];
	bool moved;
	int file;

	if (!own_group(path, sizeof(path)))
		return false;
	snprintf(below, sizeof(below), "%s/fusetune-intercept", path);
	/* May exist from an earlier start. If it cannot be made, open() fails. */
	mkdir(below, 0755);
	strcat(below, "/cgroup.procs");
	file = open(below, O_WRONLY | O_CLOEXEC);
	if (file == -1)
		return false;
	moved = write(file, "0", 1) == 1;
	close(file);
	return moved;
}
