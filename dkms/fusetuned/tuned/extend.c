// SPDX-License-Identifier: GPL-2.0-only
/*
 * Direct writes that extend a file, several at once.
 *
 * The kernel's FUSE lets them exclude all other writers, so that i_size stays
 * still between the choice of an append's place and its end. Here each direct
 * write is listed in its inode while it is in flight, and an append has its
 * place behind the end of the file and of all that are listed. i_size still
 * moves only with what the server has written. What needs a size that stays
 * (truncate, fallocate, cached writes) excludes all of these writes by the
 * inode's lock, which they share.
 */
#include "fuse_i.h"

#include <linux/fcntl.h>
#include <linux/uio.h>

void tuned_init_inode(struct tuned_inode *tuned)
{
	INIT_LIST_HEAD(&tuned->writes);
	mutex_init(&tuned->sync);
}

static bool extends_alone(struct inode *inode)
{
	return !get_fuse_conn(inode)->tuned.options.parallel_extend;
}

bool tuned_extends_alone(struct kiocb *iocb)
{
	return extends_alone(file_inode(iocb->ki_filp));
}

/* Where the file ends once all writes in flight have succeeded. */
static loff_t end_to_be(struct fuse_inode *fi)
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

	*write = (struct tuned_write) {};
	if (extends_alone(inode))
		return generic_write_checks(iocb, from);
	spin_lock(&fi->lock);
	if (append) {
		/* The checks would put it at i_size. */
		iocb->ki_flags &= ~IOCB_APPEND;
		iocb->ki_pos = end_to_be(fi);
	}
	res = generic_write_checks(iocb, from);
	if (append)
		iocb->ki_flags |= IOCB_APPEND;
	if (res > 0) {
		write->iocb = iocb;
		write->file = iocb->ki_filp;
		write->inode = inode;
		write->end = iocb->ki_pos + res;
		list_add(&write->list, &fi->tuned.writes);
	}
	spin_unlock(&fi->lock);
	return res;
}

/*
 * i_size is past what the write has extended. A write that goes on when its
 * caller has returned is within i_size, and its iocb may be gone.
 */
void tuned_write_end(struct tuned_write *write)
{
	if (!write->inode)
		return;
	spin_lock(&get_fuse_inode(write->inode)->lock);
	list_del(&write->list);
	spin_unlock(&get_fuse_inode(write->inode)->lock);
}

/*
 * A write of several requests may have failed in one and have extended the
 * server's file by another. To cut that off is right as soon as i_size is past
 * all that succeeded: when the other writes have ended, too.
 */
void tuned_write_settle(struct tuned_write *write)
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
	/* The newest is first: an older one may have had its iocb at the same address. */
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
 * Waiting for the writeback of pages must not be done twice at once in an
 * inode. Those who share the inode's lock could: where cached and direct
 * writes go together.
 */
void tuned_sync_writes(struct inode *inode, void (*sync)(struct inode *inode))
{
	struct fuse_inode *fi = get_fuse_inode(inode);

	mutex_lock(&fi->tuned.sync);
	sync(inode);
	mutex_unlock(&fi->tuned.sync);
}

/*
 * Where appends have their places from here, a server that appends by itself
 * would put them elsewhere.
 */
u32 tuned_sent_flags(const struct fuse_conn *fc, u32 flags)
{
	return fc->tuned.options.parallel_extend ? flags & ~O_APPEND : flags;
}
