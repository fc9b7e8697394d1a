// SPDX-License-Identifier: GPL-2.0-only
/*
 * Direct writes to a backing file at once (after Fellows 2026).
 *
 * Stock: where a server passes a file's reads and writes through to a backing
 * file, each write holds the inode's lock exclusively, so direct writes of one
 * file go one by one, whatever the backing file system could do.
 *
 * Here: with parallel_direct_writes, a direct write within the file shares the
 * lock, if it has no privileges to remove.
 *
 * Why it is safe:
 * - The data is the backing file system's, which has a lock of its own and takes
 *   writers of several files and mounts at once anyway. fs/fuse only notes the
 *   size and that attributes have changed, under fuse_inode.lock.
 * - Appends, writes past the end and cached writes hold the lock exclusively, and
 *   so does what needs a size that does not change (truncate, fallocate). The
 *   size is looked at again when the lock is held.
 * - Privileges are removed with the lock held exclusively: two writers who removed
 *   a capability at once would get ENODATA. fs/fuse would have to ask the server
 *   whether there is one, so the lock is shared only on mounts that have none.
 */
#include "fuse_i.h"

#include <linux/stat.h>
#include <linux/uio.h>

static bool has_privileges(struct inode *inode)
{
	const struct fuse_conn *fc = get_fuse_conn(inode);

	return inode->i_mode & (S_ISUID | S_ISGID) ||
	       !(fc->tuned.options.no_file_caps || fc->no_getxattr);
}

static bool within_file(struct kiocb *iocb, struct iov_iter *iter)
{
	return iocb->ki_pos + iov_iter_count(iter) <= i_size_read(file_inode(iocb->ki_filp));
}

static bool may_share(struct kiocb *iocb, struct iov_iter *iter)
{
	struct inode *inode = file_inode(iocb->ki_filp);

	return get_fuse_conn(inode)->tuned.options.parallel_direct_writes &&
	       iocb->ki_flags & IOCB_DIRECT && !(iocb->ki_flags & IOCB_APPEND) &&
	       within_file(iocb, iter) && !has_privileges(inode);
}

bool tuned_passthrough_lock(struct kiocb *iocb, struct iov_iter *iter)
{
	struct inode *inode = file_inode(iocb->ki_filp);

	if (may_share(iocb, iter)) {
		inode_lock_shared(inode);
		if (may_share(iocb, iter))
			return true;
		inode_unlock_shared(inode);
	}
	inode_lock(inode);
	return false;
}

void tuned_passthrough_unlock(struct inode *inode, bool shared)
{
	if (shared)
		inode_unlock_shared(inode);
	else
		inode_unlock(inode);
}
