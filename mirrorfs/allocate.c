// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Allocate blocks for one large write at a time (Yu 2015, for any file system).
 *
 * Concurrent writers allocate blocks from the same free space, so the blocks of one
 * write may be interleaved with those of others.
 */
#include "mirrorfs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* Whether a write to this range needs new blocks. */
static bool wants_blocks(int fd, off_t offset, off_t size)
{
	struct stat st;
	off_t hole;

	if (fstat(fd, &st) < 0 || st.st_size < offset + size)
		return true;
	hole = lseek(fd, offset, SEEK_HOLE);
	return hole < offset + size;
}

void allocate_whole(int fd, off_t offset, off_t size)
{
	if (!wants_blocks(fd, offset, size))
		return;
	pthread_mutex_lock(&one_at_a_time);
	/* Ignore errors: the write that follows reports them. */
	while (fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, size) < 0 && errno == EINTR)
		;
	pthread_mutex_unlock(&one_at_a_time);
}
