// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded, it shifts a program's wall clock by the seconds in the file CLOCK_OFFSET, which may
 * change at any time. The monotonic clock is not shifted. A container has no wall clock of its own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void)
{
	const char *path = getenv("CLOCK_OFFSET");
	char text[32] = "";
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fd);
	return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	long failed = syscall(SYS_clock_gettime, clock, now);

	if (!failed && clock == CLOCK_REALTIME)
		now->tv_sec += offset();
	return (int)failed;
}

int gettimeofday(struct timeval *now, void *zone)
{
	long failed = syscall(SYS_gettimeofday, now, zone);

	if (!failed)
		now->tv_sec += offset();
	return (int)failed;
}

time_t time(time_t *now)
{
	struct timespec found;

	clock_gettime(CLOCK_REALTIME, &found);
	if (now)
		*now = found.tv_sec;
	return found.tv_sec;
}
