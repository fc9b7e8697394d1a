// SPDX-License-Identifier: GPL-2.0-or-later
/* The kernel's complaints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hostile.h"

/* Open the kernel's log at its end; a negative number if that fails. */
int open_log(void)
{
	int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (log >= 0)
		lseek(log, 0, SEEK_END);
	return log;
}

void read_log(int log, uint32_t mount)
{
	static const char *const signs[] = {
		"WARNING: CPU", "WARNING: possible", "WARNING: inconsistent", "WARNING: bad", "BUG:",
		"BUG ", "suspicious rcu", "Oops", "INFO: ", "refcount_t", "general protection", "UBSAN",
	};
	/*
	 * UML walks a process's VMAs without RCU when it drops their pages. The user of this
	  * program must judge reports of races.
	 */
	static const char *const known[] = { "lib/maple_tree.c", "BUG: KCSAN: data-race" };
	char line[8192];
	ssize_t size;

	while ((size = read(log, line, sizeof(line) - 1)) > 0 || (size < 0 && errno == EPIPE)) {
		const char *said;

		if (size < 0)
			continue; /* overwritten before it was read */
		line[size] = 0;
		line[strcspn(line, "\n")] = 0;
		said = strchr(line, ';') ?: line;
		for (size_t i = 0; i < COUNT(signs); i++) {
			if (strstr(said, signs[i]) && !strstr(said, known[0]) &&
			    !strstr(said, known[1])) {
				tally.complaints++;
				printf("mount %u: kernel%s\n", mount, said);
				fflush(stdout);
				break;
			}
		}
	}
}
