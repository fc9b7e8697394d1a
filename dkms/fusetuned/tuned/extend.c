// SPDX-License-Identifier: GPL-2.0-only
/*
 * Direct writes that extend a file run in parallel (after Singh 2022).
 *
 * Stock: parallel direct writes share the inode lock, but an append, or a write
 * past the end of the file, takes it exclusively. So i_size cannot change between
 * the choice of an append's position and the end of the write.
 *
 * Here: with parallel_extend these writes share the lock, too. Each inode has a
 * list of its direct writes in flight, and an append starts after i_size and after
 * all writes in the list.
 *
 * Why it is safe:
 * - The position is chosen and the write is added to the list under
 *   fuse_inode.lock, so no two appends get the same position.
 * - i_size changes as in stock: after a write has succeeded, and it only grows. So
 *   it is right whatever the order of completion. A failed write leaves the list,
 *   and later appends ignore it.
 * - Operations that need a stable size (truncate, fallocate, cached writes) take
 *   the inode lock exclusively, which excludes these writes.
 * - When an asynchronous write of several requests fails, stock truncates the file
 *   on the server to i_size. Here that waits for the exclusive lock, when i_size
 *   includes all writes that succeeded (tuned_write_finish()).
 * - O_APPEND is not sent to the server. A server that appends by itself would
 *   write at another position than the kernel chose.
 * - From 6.12 on, direct writes of a file that is also open through the page cache
 *   exclude each other, as in stock. Linux 6.1 runs cached and parallel direct
 *   writes of one file together, and hits a BUG_ON in fuse_set_nowrite() if two
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

bool tuned_writes_alone(struct kiocb *iocb, bool extends)
{
	struct file *file = iocb->ki_filp;

	return (extends && extends_alone(file_inode(file))) || tuned_removes_privs(file);
}

/* The end of the file if all writes in flight succeed. */
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
 * Called when i_size includes what the write has extended. An asynchronous write
 * that is still in flight then lies within i_size, and its iocb may have been
 * freed.
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
 * If a write has several requests, one may have failed and another have extended
 * the file on the server. Truncating is safe once i_size includes all writes that
 * succeeded, that is, when the other writes have ended.
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
 * Only one task at a time may wait for an inode's writeback. If cached and direct
 * writes run together, several might, because direct writers share the lock.
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
