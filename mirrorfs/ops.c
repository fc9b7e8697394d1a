// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The requests. Each is counted, waits as long as the throttle says, acts on
 * the source and answers.
 *
 * mirrorfs acts as the one user that runs it and mounts with
 * default_permissions, so the kernel checks who may do what. When that user is
 * root, what a caller makes is given to the caller afterwards.
 */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static uint64_t delay_of(const struct options *opts, enum opcode op)
{
	switch (op) {
	case OP_READ:
		return opts->read_delay_ns;
	case OP_WRITE:
		return opts->write_delay_ns;
	case OP_FORGET:
	case OP_RELEASE:
	case OP_RELEASEDIR:
		return 0;
	default:
		return opts->delay_ns;
	}
}

struct call call_begin(fuse_req_t req, enum opcode op, uint64_t bytes)
{
	struct call call = { req, fuse_req_userdata(req), op };

	counters_begin(op, bytes);
	throttle_serve(delay_of(&call.mirror->opts, op));
	return call;
}

void answer(struct call *call, int err)
{
	counters_end(call->op, err != 0);
	fuse_reply_err(call->req, err);
}

void answer_result(struct call *call, int result)
{
	answer(call, result == -1 ? errno : 0);
}

static void answer_entry(struct call *call, const struct fuse_entry_param *e)
{
	counters_end(call->op, false);
	fuse_reply_entry(call->req, e);
}

void answer_buf(struct call *call, const void *buf, size_t size)
{
	counters_end(call->op, false);
	fuse_reply_buf(call->req, buf, size);
}

static double timeout_of(const struct mirror *mirror)
{
	return (double)mirror->opts.timeout_ns / NSEC_PER_SEC;
}

static double entry_timeout_of(const struct mirror *mirror)
{
	return (double)mirror->opts.entry_timeout_ns / NSEC_PER_SEC;
}

void fd_path(char path[FD_PATH_SIZE], int fd)
{
	snprintf(path, FD_PATH_SIZE, "/proc/self/fd/%d", fd);
}

int sync_fd(int fd, int datasync)
{
	return datasync ? fdatasync(fd) : fsync(fd);
}

static int stat_fd(int fd, struct stat *st)
{
	return fstatat(fd, "", st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
}

/* INIT */

static bool want(struct fuse_conn_info *conn, uint64_t flag)
{
#ifdef HAVE_FEATURE_FLAGS
	return fuse_set_feature_flag(conn, flag);
#else
	if (!(conn->capable & flag))
		return false;
	conn->want |= (unsigned int)flag;
	return true;
#endif
}

static void unwant(struct fuse_conn_info *conn, uint64_t flag)
{
#ifdef HAVE_FEATURE_FLAGS
	fuse_unset_feature_flag(conn, flag);
#else
	conn->want &= ~(unsigned int)flag;
#endif
}

static void want_splice(struct fuse_conn_info *conn, unsigned int splice)
{
	static const struct { unsigned int bit; uint64_t flag; } flags[] = {
		{ SPLICE_READ, FUSE_CAP_SPLICE_READ },
		{ SPLICE_WRITE, FUSE_CAP_SPLICE_WRITE },
		{ SPLICE_MOVE, FUSE_CAP_SPLICE_MOVE },
	};
	size_t i;

	for (i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (splice & flags[i].bit)
			want(conn, flags[i].flag);
		else
			unwant(conn, flags[i].flag);
	}
}

static bool want_passthrough(struct fuse_conn_info *conn)
{
#ifdef HAVE_PASSTHROUGH
	/* Overlayfs, as in containers, counts as one level below. */
	conn->max_backing_stack_depth = FUSE_BACKING_STACKED_OVER;
	return want(conn, FUSE_CAP_PASSTHROUGH);
#else
	(void)conn;
	return false;
#endif
}

/*
 * The most a pipe can hold here: up to the largest request where this user may
 * have it, else fs.pipe-max-size.
 */
static size_t probe_pipe_room(size_t request)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fds[2], room;
	FILE *limit;

	if (pipe2(fds, O_CLOEXEC) == -1)
		return 0;
	room = fcntl(fds[0], F_SETPIPE_SZ, request + 2 * page);
	if (room == -1 && (limit = fopen("/proc/sys/fs/pipe-max-size", "re"))) {
		if (fscanf(limit, "%d", &room) != 1)
			room = -1;
		fclose(limit);
	}
	close(fds[0]);
	close(fds[1]);
	/* A page each for the header and for data that does not start on one. */
	return room < (int)(2 * page) ? 0 : (size_t)room - 2 * page;
}

static void mirror_init(void *userdata, struct fuse_conn_info *conn)
{
	struct mirror *mirror = userdata;
	const struct options *opts = &mirror->opts;

	want_splice(conn, opts->splice);
	want(conn, FUSE_CAP_PARALLEL_DIROPS);
	/*
	 * As root a write keeps set-id bits, so the kernel must clear them.
	 */
	unwant(conn, FUSE_CAP_HANDLE_KILLPRIV);
	if (opts->max_write)
		conn->max_write = (unsigned int)opts->max_write;
	if (opts->max_readahead)
		conn->max_readahead = (unsigned int)opts->max_readahead;
	if (opts->max_background)
		conn->max_background = (unsigned int)opts->max_background;
	if (opts->writeback && !want(conn, FUSE_CAP_WRITEBACK_CACHE)) {
		mirror->refused(mirror, "writeback: this kernel lacks it; leave it out");
		return;
	}
	if (opts->passthrough && !want_passthrough(conn)) {
		mirror->refused(mirror, "passthrough: this kernel lacks it; "
				"leave it out, or use Linux 6.9 or later");
		return;
	}
	mirror->splice_room = probe_pipe_room(conn->max_write);
	counters_negotiated(conn);
	mirror->started(mirror);
}

/* Names */

int lookup_name(struct call *call, fuse_ino_t parent, const char *name,
		struct fuse_entry_param *e)
{
	struct inode *inode;
	int fd;

	*e = (struct fuse_entry_param) {
		.attr_timeout = timeout_of(call->mirror),
		.entry_timeout = entry_timeout_of(call->mirror),
	};
	fd = openat(inode_get(parent)->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd == -1)
		return errno;
	if (stat_fd(fd, &e->attr) == -1) {
		int err = errno;

		close(fd);
		return err;
	}
	inode = inode_lookup(fd, &e->attr);
	if (!inode)
		return ENOMEM;
	e->ino = inode_nodeid(inode);
	e->generation = inode->generation;
	return 0;
}

/* Whether that a name is not there is said as an entry, which lasts. */
bool lasts_missing(struct call *call, int err, struct fuse_entry_param *e)
{
	const struct options *opts = &call->mirror->opts;

	if (err != ENOENT || !opts->negative_timeout_ns)
		return false;
	*e = (struct fuse_entry_param) {
		.entry_timeout = (double)opts->negative_timeout_ns / NSEC_PER_SEC,
	};
	return true;
}

static void answer_name(struct call *call, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	int err = lookup_name(call, parent, name, &e);

	if (err && !lasts_missing(call, err, &e))
		answer(call, err);
	else
		answer_entry(call, &e);
}

static void mirror_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call call = call_begin(req, OP_LOOKUP, 0);

	answer_name(&call, parent, name);
}

static void mirror_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	counters_begin(OP_FORGET, 0);
	inode_forget(inode_get(ino), nlookup);
	counters_end(OP_FORGET, false);
	fuse_reply_none(req);
}

static void mirror_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	size_t i;

	counters_begin(OP_FORGET, 0);
	for (i = 0; i < count; i++)
		inode_forget(inode_get(forgets[i].ino), forgets[i].nlookup);
	counters_end(OP_FORGET, false);
	fuse_reply_none(req);
}

/*
 * A folder with the set-group-id bit
 * passes its own group on, and chown(2) takes set-id bits away.
 */
int give_to_caller(struct call *call, int dirfd, const char *name, mode_t mode)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(call->req);
	gid_t gid = ctx->gid;
	struct stat st;

	if (!call->mirror->owned_by_caller)
		return 0;
	if (stat_fd(dirfd, &st) == -1)
		return -1;
	if (st.st_mode & S_ISGID)
		gid = (gid_t)-1;
	else if (ctx->uid == geteuid() && gid == getegid())
		return 0;
	if (fchownat(dirfd, name, ctx->uid, gid, AT_SYMLINK_NOFOLLOW) == -1)
		return -1;
	if (S_ISDIR(mode) || !(mode & (S_ISUID | S_ISGID)))
		return 0;
	return fchmodat(dirfd, name, mode & 07777, 0);
}

static void answer_made(struct call *call, fuse_ino_t parent, const char *name, mode_t mode,
			int result)
{
	int dirfd = inode_get(parent)->fd, err;

	if (result == -1) {
		answer(call, errno);
		return;
	}
	if (give_to_caller(call, dirfd, name, mode) == -1) {
		err = errno;
		unlinkat(dirfd, name, S_ISDIR(mode) ? AT_REMOVEDIR : 0);
		answer(call, err);
		return;
	}
	answer_name(call, parent, name);
}

static void mirror_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			 dev_t rdev)
{
	struct call call = call_begin(req, OP_MKNOD, 0);

	answer_made(&call, parent, name, mode,
		    mknodat(inode_get(parent)->fd, name, mode, rdev));
}

static void mirror_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct call call = call_begin(req, OP_MKDIR, 0);

	answer_made(&call, parent, name, S_IFDIR | mode,
		    mkdirat(inode_get(parent)->fd, name, mode));
}

static void mirror_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
			   const char *name)
{
	struct call call = call_begin(req, OP_SYMLINK, 0);

	answer_made(&call, parent, name, S_IFLNK,
		    symlinkat(target, inode_get(parent)->fd, name));
}

static void mirror_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent,
			const char *newname)
{
	struct call call = call_begin(req, OP_LINK, 0);
	struct inode *inode = inode_get(ino);
	struct fuse_entry_param e = {
		.ino = ino,
		.generation = inode->generation,
		.attr_timeout = timeout_of(call.mirror),
		.entry_timeout = entry_timeout_of(call.mirror),
	};
	char path[FD_PATH_SIZE];

	/* AT_EMPTY_PATH would need CAP_DAC_READ_SEARCH. */
	fd_path(path, inode->fd);
	if (linkat(AT_FDCWD, path, inode_get(newparent)->fd, newname, AT_SYMLINK_FOLLOW) == -1 ||
	    stat_fd(inode->fd, &e.attr) == -1) {
		answer(&call, errno);
		return;
	}
	inode_ref(inode);
	answer_entry(&call, &e);
}

static void mirror_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call call = call_begin(req, OP_UNLINK, 0);

	answer_result(&call, unlinkat(inode_get(parent)->fd, name, 0));
}

static void mirror_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call call = call_begin(req, OP_RMDIR, 0);

	answer_result(&call, unlinkat(inode_get(parent)->fd, name, AT_REMOVEDIR));
}

static void mirror_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
			  fuse_ino_t newparent, const char *newname, unsigned int flags)
{
	struct call call = call_begin(req, OP_RENAME, 0);

	answer_result(&call, renameat2(inode_get(parent)->fd, name, inode_get(newparent)->fd,
				       newname, flags));
}

static void mirror_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct call call = call_begin(req, OP_READLINK, 0);
	char target[PATH_MAX + 1];
	ssize_t length = readlinkat(inode_get(ino)->fd, "", target, sizeof(target));

	if (length == -1 || (size_t)length == sizeof(target)) {
		answer(&call, length == -1 ? errno : ENAMETOOLONG);
		return;
	}
	target[length] = '\0';
	counters_end(call.op, false);
	fuse_reply_readlink(req, target);
}

/* Attributes */

static void answer_attr(struct call *call, fuse_ino_t ino)
{
	struct stat st;

	if (stat_fd(inode_get(ino)->fd, &st) == -1) {
		answer(call, errno);
		return;
	}
	counters_end(call->op, false);
	fuse_reply_attr(call->req, &st, timeout_of(call->mirror));
}

static void mirror_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_GETATTR, 0);

	(void)fi;
	answer_attr(&call, ino);
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
 * The owner goes before the mode, since chown(2) takes set-id bits away; the
 * times go last, since the rest changes them.
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

static void mirror_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid,
			   struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_SETATTR, 0);

	if (set_attributes(inode_get(ino)->fd, attr, valid, fi) == -1)
		answer(&call, errno);
	else
		answer_attr(&call, ino);
}

static void mirror_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct call call = call_begin(req, OP_STATFS, 0);
	struct statvfs st;

	if (fstatvfs(inode_get(ino)->fd, &st) == -1) {
		answer(&call, errno);
		return;
	}
	counters_end(call.op, false);
	fuse_reply_statfs(req, &st);
}

/* Extended attributes; their calls take no O_PATH descriptor, so by path. */

static void answer_xattr(struct call *call, ssize_t length, const char *value, size_t room)
{
	if (length == -1) {
		answer(call, errno);
	} else if (!room) {
		counters_end(call->op, false);
		fuse_reply_xattr(call->req, (size_t)length);
	} else {
		answer_buf(call, value, (size_t)length);
	}
}

/* Answers and returns false when there is nothing to ask the source. */
static bool xattr_begin(struct call *call, fuse_ino_t ino, char path[FD_PATH_SIZE])
{
	if (call->mirror->opts.no_xattr) {
		answer(call, ENOSYS);
		return false;
	}
	fd_path(path, inode_get(ino)->fd);
	return true;
}

static void mirror_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct call call = call_begin(req, OP_GETXATTR, 0);
	char path[FD_PATH_SIZE], *value = NULL;

	if (!xattr_begin(&call, ino, path))
		return;
	if (size && !(value = malloc(size)))
		answer(&call, ENOMEM);
	else
		answer_xattr(&call, getxattr(path, name, value, size), value, size);
	free(value);
}

static void mirror_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct call call = call_begin(req, OP_LISTXATTR, 0);
	char path[FD_PATH_SIZE], *names = NULL;

	if (!xattr_begin(&call, ino, path))
		return;
	if (size && !(names = malloc(size)))
		answer(&call, ENOMEM);
	else
		answer_xattr(&call, listxattr(path, names, size), names, size);
	free(names);
}

static void mirror_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			    size_t size, int flags)
{
	struct call call = call_begin(req, OP_SETXATTR, 0);
	char path[FD_PATH_SIZE];

	if (xattr_begin(&call, ino, path))
		answer_result(&call, setxattr(path, name, value, size, flags));
}

static void mirror_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct call call = call_begin(req, OP_REMOVEXATTR, 0);
	char path[FD_PATH_SIZE];

	if (xattr_begin(&call, ino, path))
		answer_result(&call, removexattr(path, name));
}

const struct fuse_lowlevel_ops mirror_ops = {
	.init = mirror_init,
	.lookup = mirror_lookup,
	.forget = mirror_forget,
	.forget_multi = mirror_forget_multi,
	.getattr = mirror_getattr,
	.setattr = mirror_setattr,
	.readlink = mirror_readlink,
	.mknod = mirror_mknod,
	.mkdir = mirror_mkdir,
	.unlink = mirror_unlink,
	.rmdir = mirror_rmdir,
	.symlink = mirror_symlink,
	.rename = mirror_rename,
	.link = mirror_link,
	.open = mirror_open,
	.create = mirror_create,
	.read = mirror_read,
	.write_buf = mirror_write_buf,
	.flush = mirror_flush,
	.release = mirror_release,
	.fsync = mirror_fsync,
	.opendir = mirror_opendir,
	.readdir = mirror_readdir,
	.readdirplus = mirror_readdirplus,
	.releasedir = mirror_releasedir,
	.fsyncdir = mirror_fsyncdir,
	.statfs = mirror_statfs,
	.setxattr = mirror_setxattr,
	.getxattr = mirror_getxattr,
	.listxattr = mirror_listxattr,
	.removexattr = mirror_removexattr,
	.fallocate = mirror_fallocate,
	.copy_file_range = mirror_copy_file_range,
	.lseek = mirror_lseek,
};
