// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * TUNED_OPEN, a lookup and an open in one request, as protocol.h of the module
 * fusetuned defines it. atomic_open.c passes it on as CREATE.
 */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Closes a file that nobody waits for: the caller was killed, or the mount is gone. */
static void undo_open(struct call *call, struct inode *inode, int fd)
{
	if (fd == -1)
		return;
	if (call->mirror->opts.passthrough)
		backing_put(call, inode);
	close(fd);
}

/*
 * Looks the name up; creates the file if it does not exist and O_CREAT is set. The
 * name may appear or disappear between the two, so they are repeated. Each failure
 * needs another process to act in between; after OPEN_TRIES in a row, assume that it
 * will not stop.
 */
static int make_or_find(struct call *call, fuse_ino_t parent, const char *name, mode_t mode,
			int flags, struct fuse_entry_param *e, int *fd)
{
	int dirfd = inode_get(parent)->fd, made_flags = source_flags(&call->mirror->opts, flags);
	int tries, err;

	for (tries = 0; tries < OPEN_TRIES; tries++) {
		*fd = -1;
		if (flags & O_CREAT)
			*fd = create_file(call, dirfd, name, made_flags, mode);
		if (flags & O_CREAT && *fd == -1 && (errno != EEXIST || flags & O_EXCL))
			return errno;
		err = lookup_name(call, parent, name, e);
		if (!err)
			return 0;
		if (*fd != -1)
			close(*fd);
		if (err != ENOENT || !(flags & O_CREAT))
			return err;
	}
	return ENOENT;
}

static int open_regular(struct call *call, const struct fuse_entry_param *e, int flags)
{
	char path[FD_PATH_SIZE];

	if (!S_ISREG(e->attr.st_mode) || flags & O_TRUNC)
		return -1;
	fd_path(path, inode_get(e->ino)->fd);
	return open(path, source_flags(&call->mirror->opts, flags));
}

void mirror_tuned_open(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		       struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_TUNED_OPEN, 0);
	struct fuse_entry_param e;
	int fd = -1, err;

	err = make_or_find(&call, parent, name, mode, fi->flags, &e, &fd);
	if (err && (fi->flags & O_CREAT || !lasts_missing(&call, err, &e))) {
		reply_err(&call, err);
		return;
	}
	if (fd != -1)
		atomic_open_made();
	else if (!err)
		fd = open_regular(&call, &e, fi->flags);
	if (fd == -1)
		atomic_open_looked_up();
	else
		err = fill_open(&call, inode_get(e.ino), fd, fi);
	if (e.ino && fd != -1 && err) {
		close(fd);
		inode_forget(inode_get(e.ino), 1);
		reply_err(&call, err);
		return;
	}
	counters_end(call.op, false);
	if (fuse_reply_create(req, &e, fi) == -ENOENT && e.ino) {
		undo_open(&call, inode_get(e.ino), fd);
		inode_forget(inode_get(e.ino), 1);
	}
}
