// SPDX-License-Identifier: GPL-2.0-or-later
/* What all opens share: flags for the source, the reply, and backing files. */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>

/*
 * O_DIRECT is not passed on, because the source would need aligned memory, and
 * requests are not aligned. With the writeback cache the kernel also reads from
 * write-only files, to fill pages, and chooses the position of appended data.
 */
int source_flags(const struct options *opts, int flags)
{
	flags &= ~(O_DIRECT | O_NOFOLLOW | O_CREAT | O_EXCL | O_NOCTTY);
	if (opts->writeback) {
		if ((flags & O_ACCMODE) == O_WRONLY)
			flags = (flags & ~O_ACCMODE) | O_RDWR;
		flags &= ~O_APPEND;
	}
	return flags | O_CLOEXEC;
}

#ifdef HAVE_PASSTHROUGH
/* All opens of a file share one backing ID, as the kernel requires. */
static int backing_get(struct call *call, struct inode *inode, struct fuse_file_info *fi)
{
	int err = 0;

	pthread_mutex_lock(&call->mirror->open_lock);
	if (!inode->nopen) {
		errno = 0;
		inode->backing_id = fuse_passthrough_open(call->req, (int)fi->fh);
	}
	if (inode->backing_id > 0) {
		inode->nopen++;
		fi->backing_id = inode->backing_id;
		fi->keep_cache = 0;
	} else {
		err = errno ? errno : EOPNOTSUPP;
	}
	pthread_mutex_unlock(&call->mirror->open_lock);
	return err;
}

void backing_put(struct call *call, struct inode *inode)
{
	pthread_mutex_lock(&call->mirror->open_lock);
	if (!--inode->nopen) {
		fuse_passthrough_close(call->req, inode->backing_id);
		inode->backing_id = 0;
	}
	pthread_mutex_unlock(&call->mirror->open_lock);
}
#else
static int backing_get(struct call *call, struct inode *inode, struct fuse_file_info *fi)
{
	(void)call, (void)inode, (void)fi;
	return EOPNOTSUPP;
}

void backing_put(struct call *call, struct inode *inode)
{
	(void)call, (void)inode;
}
#endif

int fill_open(struct call *call, struct inode *inode, int fd, struct fuse_file_info *fi)
{
	const struct options *opts = &call->mirror->opts;

	fi->fh = (uint64_t)fd;
	fi->keep_cache = opts->keep_cache;
	fi->direct_io = opts->direct_io;
	if (opts->passthrough)
		return backing_get(call, inode, fi);
#ifdef HAVE_PARALLEL_DIRECT_WRITES
	if (opts->parallel_direct_writes) {
		fi->parallel_direct_writes = 1;
		/* The kernel honours the first flag only together with the second. */
		if (fi->flags & O_DIRECT)
			fi->direct_io = 1;
	}
#endif
	return 0;
}
