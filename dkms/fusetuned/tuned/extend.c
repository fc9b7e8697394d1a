// SPDX-License-Identifier: GPL-2.0-only
/*
 * Direct writes that extend a file run at once (after Singh 2022).
 *
 * Stock: parallel direct writes share the inode's lock, but an append, or a write
 * past the end of the file, takes it exclusively. i_size then cannot change
 * between the choice of an append's position and the end of the write.
 *
 * Here: with parallel_extend these writes share the lock, too. Each direct write
 * is listed in its inode while it is in flight, and an append is placed behind
 * i_size and behind all writes in the list.
 *
 * Why it is safe:
 * - The position is chosen, and the write listed, under fuse_inode.lock, so no
 *   two appends get the same place.
 * - i_size changes as it does in stock: when a write has succeeded, and only
 *   upwards. No order of completion makes it wrong. A write that failed leaves
 *   the list, and its end with it.
 * - Whatever needs a size that does not change (truncate, fallocate, cached
 *   writes) takes the inode's lock exclusively and so excludes these writes.
 * - When an asynchronous write of several requests fails, stock cuts off what it
 *   has extended on the server. Here that waits for the exclusive lock, when
 *   i_size is past everything that succeeded (tuned_write_finish()).
 * - O_APPEND is not passed to the server. A server that appends by itself would
 *   put the data where the kernel does not expect it.
 * - From 6.12 on, a file that is also open through the page cache has its writers
 *   one by one, as in stock. Linux 6.1 lets cached and parallel direct writes of
 *   one file run together, and hits a BUG_ON in fuse_set_nowrite() when two
 *   direct writers wait for the same writeback; here one waits at a time.
 */
#include "fuse_i.h"

#include <linux/fcntl.h>
#include <linux/uio.h>

void tuned_init_inode(struct tuned_inode *tuned)
{
	INIT_LIST_HEAD(&tuned->writes);
	mutex_init(&tuned->sync);
	tuned->attr_overtaken = false;
	tuned->cached.known = false;
}

static bool extends_alone(struct inode *inode)
{
	return !get_fuse_conn(inode)->tuned.options.parallel_extend;
}

bool tuned_extends_alone(struct kiocb *iocb)
{
	return extends_alone(file_inode(iocb->ki_filp));
}

/* The end of the file once all writes in flight have succeeded. */
static loff_t pending_end(struct fuse_inode *fi)
{
	loff_t end = i_size_read(&fi->inode);
	struct tuned_write *write;

	lockdep_assert_held(&fi->lock);
	list_for_each_entry(write, &fi->tuned.writes, list)
		end = max(end, write->end);
	return end;
}

ssize_t tuned_write_begin(struct tuned_write *write, struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct fuse_inode *fi = get_fuse_inode(inode);
	bool append = iocb->ki_flags & IOCB_APPEND;
	ssize_t res;

	*write = (struct tuned_write) { .file = iocb->ki_filp };
	res = tuned_past_cache_begin(iocb);
	if (res)
		return res;
	if (extends_alone(inode))
		return generic_write_checks(iocb, from);
	spin_lock(&fi->lock);
	if (append) {
		/* With IOCB_APPEND, generic_write_checks() would set ki_pos to i_size. */
		iocb->ki_flags &= ~IOCB_APPEND;
		iocb->ki_pos = pending_end(fi);
	}
	res = generic_write_checks(iocb, from);
	if (append)
		iocb->ki_flags |= IOCB_APPEND;
	if (res > 0) {
		write->iocb = iocb;
		write->inode = inode;
		write->end = iocb->ki_pos + res;
		list_add(&write->list, &fi->tuned.writes);
	}
	spin_unlock(&fi->lock);
	return res;
}

/*
 * The write need not be listed any longer: i_size is past what it has extended.
 * An asynchronous write that is still running lies within i_size, and its iocb
 * may have been freed.
 */
void tuned_write_end(struct tuned_write *write)
{
	tuned_past_cache_end(write->file);
	if (!write->inode)
		return;
	spin_lock(&get_fuse_inode(write->inode)->lock);
	list_del(&write->list);
	spin_unlock(&get_fuse_inode(write->inode)->lock);
}

/*
 * Of a write of several requests, one may have failed and another have extended
 * the file on the server. That may be cut off once i_size is past everything that
 * succeeded, which is when the other writes have ended as well.
 */
void tuned_write_finish(struct tuned_write *write)
{
	if (!write->truncate)
		return;
	inode_lock(write->inode);
	write->truncate(write->file);
	inode_unlock(write->inode);
}

void tuned_truncate(struct kiocb *iocb, void (*truncate)(struct file *file))
{
	struct fuse_inode *fi = get_fuse_inode(file_inode(iocb->ki_filp));
	struct tuned_write *write;
	bool later = false;

	spin_lock(&fi->lock);
	/* The newest comes first; an older write may have had its iocb at this address. */
	list_for_each_entry(write, &fi->tuned.writes, list) {
		if (write->iocb == iocb) {
			write->truncate = truncate;
			later = true;
			break;
		}
	}
	spin_unlock(&fi->lock);
	if (!later)
		truncate(iocb->ki_filp);
}

/*
 * Only one task may wait for an inode's writeback at a time. Several could where
 * cached and direct writes run together, because direct writers share the lock.
 */
void tuned_sync_writes(struct inode *inode, void (*sync)(struct inode *inode))
{
	struct fuse_inode *fi = get_fuse_inode(inode);

	mutex_lock(&fi->tuned.sync);
	sync(inode);
	mutex_unlock(&fi->tuned.sync);
}

u32 tuned_sent_flags(const struct fuse_conn *fc, u32 flags)
{
	if (fc->tuned.options.parallel_extend || tuned_writes_back(fc))
		flags &= ~O_APPEND;
	return flags;
}
