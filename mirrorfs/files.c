// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Opening, creating and closing files. data.c has reads and writes.
 */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static int open_for_caller(struct call *call, fuse_ino_t ino, int flags)
{
	int inode_fd = inode_get(ino)->fd, fd = 0;
	char path[FD_PATH_SIZE];

	fd_path(path, inode_fd);
	if (flags & O_TRUNC)
		fd = clear_set_id_begin(call, inode_fd);
	if (fd == 0)
		fd = open(path, source_flags(&call->mirror->opts, flags));
	clear_set_id_end(call, ino);
	return fd;
}

void mirror_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_OPEN, 0);
	int fd = open_for_caller(&call, ino, fi->flags), err;

	if (fd == -1) {
		reply_err(&call, errno);
		return;
	}
	err = fill_open(&call, inode_get(ino), fd, fi);
	if (err) {
		close(fd);
		reply_err(&call, err);
		return;
	}
	counters_end(call.op, false);
	fuse_reply_open(req, fi);
}

/*
 * The kernel sends this for a name that it has not found, and then does not check whether the
 * caller may open the file. If another file has this name by now, the kernel must look it up again
 * (ESTALE), and check that.
 */
void mirror_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		   struct fuse_file_info *fi)
{
	struct call call;
	int dirfd = inode_get(parent)->fd, fd, err;
	struct fuse_entry_param e;

	if (atomic_open_asked()) {
		mirror_tuned_open(req, parent, name, mode, fi);
		return;
	}
	call = call_begin(req, OP_CREATE, 0);
	fd = create_file(&call, dirfd, name, source_flags(&call.mirror->opts, fi->flags), mode);
	if (fd == -1) {
		reply_err(&call, errno == EEXIST && !(fi->flags & O_EXCL) ? ESTALE : errno);
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

/*
 * Passes on errors that the source reports only on close(2). Without a free descriptor
 * there is nothing to pass on; that is no error, because all writes have been replied to.
 */
void mirror_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_FLUSH, 0);
	int fd = dup((int)fi->fh);

	(void)ino;
	reply_result(&call, fd == -1 ? 0 : close(fd));
}

void mirror_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		  struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_FSYNC, 0);

	(void)ino;
	reply_result(&call, sync_fd((int)fi->fh, datasync));
}
