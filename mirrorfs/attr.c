// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Requests on attributes and extended attributes.
 */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static void reply_attr(struct call *call, fuse_ino_t ino)
{
	struct stat st;

	if (stat_fd(inode_get(ino)->fd, &st) == -1) {
		reply_err(call, errno);
		return;
	}
	counters_end(call->op, false);
	fuse_reply_attr(call->req, &st, attr_timeout_of(call->mirror));
}

void mirror_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_GETATTR, 0);

	(void)fi;
	reply_attr(&call, ino);
}

static struct timespec time_to_set(int valid, int flag_now, int flag, struct timespec given)
{
	if (valid & flag_now)
		return (struct timespec) { .tv_nsec = UTIME_NOW };
	if (valid & flag)
		return given;
	return (struct timespec) { .tv_nsec = UTIME_OMIT };
}

static int set_owner(int fd, const struct stat *attr, int valid)
{
	uid_t uid = valid & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
	gid_t gid = valid & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;

	return fchownat(fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
}

static int set_times(int fd, const struct stat *attr, int valid)
{
	const struct timespec times[2] = {
		time_to_set(valid, FUSE_SET_ATTR_ATIME_NOW, FUSE_SET_ATTR_ATIME, attr->st_atim),
		time_to_set(valid, FUSE_SET_ATTR_MTIME_NOW, FUSE_SET_ATTR_MTIME, attr->st_mtim),
	};

	return utimensat(fd, "", times, AT_EMPTY_PATH);
}

/*
 * The owner is set before the mode, because chown(2) clears set-ID bits. The
 * times are set last, because everything else changes them.
 */
static int set_attributes(int fd, const struct stat *attr, int valid,
			  const struct fuse_file_info *fi)
{
	char path[FD_PATH_SIZE];

	fd_path(path, fd);
	if (valid & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) && set_owner(fd, attr, valid) == -1)
		return -1;
	if (valid & FUSE_SET_ATTR_MODE && chmod(path, attr->st_mode & 07777) == -1)
		return -1;
	if (valid & FUSE_SET_ATTR_SIZE &&
	    (fi ? ftruncate((int)fi->fh, attr->st_size) : truncate(path, attr->st_size)) == -1)
		return -1;
	if (valid & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |
		     FUSE_SET_ATTR_MTIME_NOW))
		return set_times(fd, attr, valid);
	return 0;
}

void mirror_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid,
			   struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_SETATTR, 0);

	if (set_attributes(inode_get(ino)->fd, attr, valid, fi) == -1)
		reply_err(&call, errno);
	else
		reply_attr(&call, ino);
}

void mirror_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct call call = call_begin(req, OP_STATFS, 0);
	struct statvfs st;

	if (fstatvfs(inode_get(ino)->fd, &st) == -1) {
		reply_err(&call, errno);
		return;
	}
	counters_end(call.op, false);
	fuse_reply_statfs(req, &st);
}

/* Extended attributes are read and set by path, because their calls take no O_PATH descriptor. */

static void reply_xattr(struct call *call, ssize_t length, const char *value, size_t room)
{
	if (length == -1) {
		reply_err(call, errno);
	} else if (!room) {
		counters_end(call->op, false);
		fuse_reply_xattr(call->req, (size_t)length);
	} else {
		reply_buf(call, value, (size_t)length);
	}
}

/* Replies and returns false if the source must not be asked. */
static bool xattr_begin(struct call *call, fuse_ino_t ino, char path[FD_PATH_SIZE])
{
	if (call->mirror->opts.no_xattr) {
		reply_err(call, ENOSYS);
		return false;
	}
	fd_path(path, inode_get(ino)->fd);
	return true;
}

void mirror_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct call call = call_begin(req, OP_GETXATTR, 0);
	char path[FD_PATH_SIZE], *value = NULL;

	if (!xattr_begin(&call, ino, path))
		return;
	if (size && !(value = malloc(size)))
		reply_err(&call, ENOMEM);
	else
		reply_xattr(&call, getxattr(path, name, value, size), value, size);
	free(value);
}

void mirror_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct call call = call_begin(req, OP_LISTXATTR, 0);
	char path[FD_PATH_SIZE], *names = NULL;

	if (!xattr_begin(&call, ino, path))
		return;
	if (size && !(names = malloc(size)))
		reply_err(&call, ENOMEM);
	else
		reply_xattr(&call, listxattr(path, names, size), names, size);
	free(names);
}

void mirror_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			    size_t size, int flags)
{
	struct call call = call_begin(req, OP_SETXATTR, 0);
	char path[FD_PATH_SIZE];

	if (xattr_begin(&call, ino, path))
		reply_result(&call, setxattr(path, name, value, size, flags));
}

void mirror_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct call call = call_begin(req, OP_REMOVEXATTR, 0);
	char path[FD_PATH_SIZE];

	if (xattr_begin(&call, ino, path))
		reply_result(&call, removexattr(path, name));
}
