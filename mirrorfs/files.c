// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Opening, creating and closing files. data.c has reads and writes.
 */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void mirror_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_OPEN, 0);
	struct inode *inode = inode_get(ino);
	char path[FD_PATH_SIZE];
	int fd, err;

	fd_path(path, inode->fd);
	fd = open(path, source_flags(&call.mirror->opts, fi->flags));
	if (fd == -1) {
		reply_err(&call, errno);
		return;
	}
	err = fill_open(&call, inode, fd, fi);
	if (err) {
		close(fd);
		reply_err(&call, err);
		return;
	}
	counters_end(call.op, false);
	fuse_reply_open(req, fi);
}

/*
 * Opens the file or creates it. Sets *made if this call created it, because only
 * then may it be removed again. The name may appear or disappear between the two
 * calls, so they are repeated. Each failure needs another process to act in between;
 * after OPEN_TRIES in a row, assume that it will not stop.
 */
static int open_or_make(struct call *call, int dirfd, const char *name, int flags, mode_t mode,
			bool exclusive, bool *made)
{
	int tries, fd = -1;

	for (tries = 0; tries < OPEN_TRIES; tries++) {
		fd = create_file(call, dirfd, name, flags, mode);
		*made = fd != -1;
		if (fd != -1 || errno != EEXIST || exclusive)
			return fd;
		fd = openat(dirfd, name, flags | O_NOFOLLOW);
		if (fd != -1 || errno != ENOENT)
			return fd;
	}
	return fd;
}

void mirror_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		   struct fuse_file_info *fi)
{
	struct call call;
	int dirfd = inode_get(parent)->fd, fd, err;
	struct fuse_entry_param e;
	bool made = false;

	if (atomic_open_asked()) {
		mirror_tuned_open(req, parent, name, mode, fi);
		return;
	}
	call = call_begin(req, OP_CREATE, 0);
	fd = open_or_make(&call, dirfd, name, source_flags(&call.mirror->opts, fi->flags), mode,
			  fi->flags & O_EXCL, &made);
	if (fd == -1) {
		reply_err(&call, errno);
		return;
	}
	/*
	 * Do not unlink the new file if its lookup fails: most likely another process
	 * has removed or replaced the name, and unlinkat() might remove its file.
	 */
	err = lookup_name(&call, parent, name, &e);
	if (err)
		goto out_close;
	err = fill_open(&call, inode_get(e.ino), fd, fi);
	if (err)
		goto out_forget;
	counters_end(call.op, false);
	fuse_reply_create(req, &e, fi);
	return;

out_forget:
	inode_forget(inode_get(e.ino), 1);
	if (made)
		unlinkat(dirfd, name, 0);
out_close:
	close(fd);
	reply_err(&call, err);
}

void mirror_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_RELEASE, 0);

	if (call.mirror->opts.passthrough)
		backing_put(&call, inode_get(ino));
	close((int)fi->fh);
	reply_err(&call, 0);
}

/* Passes on errors that the source reports only on close(2). */
void mirror_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_FLUSH, 0);

	(void)ino;
	reply_result(&call, close(dup((int)fi->fh)));
}

void mirror_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		  struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_FSYNC, 0);

	(void)ino;
	reply_result(&call, sync_fd((int)fi->fh, datasync));
}
