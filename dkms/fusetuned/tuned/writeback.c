// SPDX-License-Identifier: GPL-2.0-only
/*
 * The writeback cache for servers that do not support it.
 *
 * Stock: a server that sets FUSE_WRITEBACK_CACHE must do two things. It must allow
 * reads from files that were opened for writing only, because the kernel reads a
 * page before writing part of it. And it must ignore O_APPEND, because the kernel
 * chooses the position of each write. libfuse's examples do both.
 *
 * Here: with the mount option writeback_cache the kernel does both. It sends O_RDWR
 * instead of O_WRONLY, and never O_APPEND (tuned_sent_flags()). If the server
 * refuses O_RDWR, the kernel repeats the open with O_WRONLY and treats the file as
 * if the server had replied with FOPEN_DIRECT_IO.
 *
 * Why it is safe:
 * - The program's own file stays write-only: the VFS checks the mode of its open.
 * - A write that bypasses the cache is ordered with it: dirty pages are written and
 *   dropped before the write, and pages that were read during the write are dropped
 *   after it, under the inode lock. Linux 6.1 does neither by itself.
 * - It removes set-ID bits as a cached write does. A server that runs as root would
 *   keep them.
 * - Asynchronous writes become synchronous. From Linux 7.2 on they stay as in
 *   stock, and a page that is read meanwhile may stay in the cache.
 * - If the server asks for the writeback cache itself, nothing changes.
 */
#include "fuse_i.h"

#include <linux/fcntl.h>
#include <linux/fs.h>
#include <linux/pagemap.h>

bool tuned_writes_back(const struct fuse_conn *fc)
{
	/* Pairs with tuned_negotiated(). Requests that wait for INIT are made before it. */
	if (!smp_load_acquire(&fc->tuned.negotiated))
		return fc->tuned.options.forced[TUNED_WRITEBACK_CACHE];
	return tuned_is_forced(fc, TUNED_WRITEBACK_CACHE);
}

u32 tuned_readable_flags(const struct fuse_conn *fc, u32 flags)
{
	if (!tuned_writes_back(fc) || (flags & O_ACCMODE) != O_WRONLY)
		return flags;
	return (flags & ~O_ACCMODE) | O_RDWR;
}

bool tuned_refuses_reads(const struct fuse_conn *fc, u32 flags, int err)
{
	switch (err) {
	case -EACCES:
	case -EINVAL:
	case -EOPNOTSUPP:
	case -EPERM:
		return tuned_readable_flags(fc, flags) != flags;
	default:
		return false;
	}
}

int tuned_open_readable(struct fuse_mount *fm, u64 nodeid, unsigned int flags, int opcode,
			struct fuse_open_out *out)
{
	int err;

	err = fuse_send_open(fm, nodeid, tuned_readable_flags(fm->fc, flags), opcode, out);
	if (!tuned_refuses_reads(fm->fc, flags, err))
		return err;
	err = fuse_send_open(fm, nodeid, flags, opcode, out);
	if (!err)
		out->open_flags |= FOPEN_DIRECT_IO;
	return err;
}

static bool is_past_cache(const struct fuse_file *ff)
{
	return ff->open_flags & FOPEN_DIRECT_IO && tuned_writes_back(ff->fm->fc);
}

bool tuned_removes_privs(const struct file *file)
{
	umode_t mode = file_inode(file)->i_mode;

	return is_past_cache(file->private_data) && S_ISREG(mode) && mode & (S_ISUID | S_ISGID);
}

int tuned_past_cache_begin(struct kiocb *iocb)
{
	struct file *file = iocb->ki_filp;
	struct address_space *mapping = file->f_mapping;
	int err;

	if (!is_past_cache(file->private_data))
		return 0;
	iocb->ki_flags &= ~IOCB_DIRECT;
	/* With the writeback cache the kernel maintains mtime. */
	err = file_update_time(file);
	if (!err && tuned_removes_privs(file))
		err = file_remove_privs(file);
	if (!err && mapping->nrpages)
		err = filemap_write_and_wait(mapping) ?: invalidate_inode_pages2(mapping);
	return err;
}

void tuned_past_cache_end(struct file *file)
{
	if (is_past_cache(file->private_data) && file->f_mapping->nrpages)
		invalidate_inode_pages2(file->f_mapping);
}
