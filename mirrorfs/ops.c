// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Code that all requests share, and requests on names. Each request is counted,
 * waits as long as the throttle says, acts on the source, and is replied to.
 *
 * mirrorfs acts as the user that runs it, and mounts with default_permissions, so
 * that the kernel checks the caller's permissions. If that user is root, the caller
 * becomes the owner of new files, because they are created with its user and group ID.
 */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
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
	struct call call = { .req = req, .mirror = fuse_req_userdata(req), .op = op };

	counters_begin(op, bytes);
	throttle_serve(delay_of(&call.mirror->opts, op));
	return call;
}

void reply_err(struct call *call, int err)
{
	counters_end(call->op, err != 0);
	fuse_reply_err(call->req, err);
}

void reply_result(struct call *call, int result)
{
	reply_err(call, result == -1 ? errno : 0);
}

static void reply_entry(struct call *call, const struct fuse_entry_param *e)
{
	counters_end(call->op, false);
	fuse_reply_entry(call->req, e);
}

void reply_buf(struct call *call, const void *buf, size_t size)
{
	counters_end(call->op, false);
	fuse_reply_buf(call->req, buf, size);
}

double attr_timeout_of(const struct mirror *mirror)
{
	return (double)mirror->opts.timeout_ns / NSEC_PER_SEC;
}

double entry_timeout_of(const struct mirror *mirror)
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

int stat_fd(int fd, struct stat *st)
{
	return fstatat(fd, "", st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
}

int lookup_name(struct call *call, fuse_ino_t parent, const char *name,
		struct fuse_entry_param *e)
{
	struct inode *inode;
	int fd;

	*e = (struct fuse_entry_param) {
		.attr_timeout = attr_timeout_of(call->mirror),
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

static void reply_name(struct call *call, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	int err = lookup_name(call, parent, name, &e);

	if (err && !lasts_missing(call, err, &e))
		reply_err(call, err);
	else
		reply_entry(call, &e);
}

static void mirror_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call call = call_begin(req, OP_LOOKUP, 0);

	reply_name(&call, parent, name);
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

/* Whether what this thread creates belongs to the caller anyway. */
static bool acts_as_caller(struct call *call)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(call->req);

	return !call->mirror->owned_by_caller ||
	       (ctx->uid == geteuid() && ctx->gid == getegid());
}

/* setfsuid(2) and setfsgid(2) report no failure, but return the previous ID; -1 is none to set. */
static bool has_ids(const struct fuse_ctx *ctx)
{
	return (uid_t)setfsuid((uid_t)-1) == ctx->uid && (gid_t)setfsgid((gid_t)-1) == ctx->gid;
}

int act_as_caller(struct call *call)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(call->req);
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

	if (acts_as_caller(call))
		return 0;
	if (syscall(SYS_capget, &header, caps) == -1)
		return -1;
	setfsgid(ctx->gid);
	setfsuid(ctx->uid);
	if (!has_ids(ctx)) {
		errno = EPERM;
		return -1;
	}
	/*
	 * setfsuid(2) drops the capabilities that concern files. They are needed, because the
	 * kernel has checked the caller's permissions with groups that are not known here.
	 */
	return (int)syscall(SYS_capset, &header, caps);
}

void act_as_self(struct call *call)
{
	int err = errno;

	if (acts_as_caller(call))
		return;
	setfsuid(geteuid());
	setfsgid(getegid());
	errno = err;
}

static bool has_set_id(int fd)
{
	struct stat st;

	return stat_fd(fd, &st) == -1 || st.st_mode & (S_ISUID | S_ISGID);
}

/* For this thread only. Nothing happens if the server does not have it. */
static int use_fsetid(bool use)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
	struct __user_cap_data_struct *half = &caps[CAP_TO_INDEX(CAP_FSETID)];

	if (syscall(SYS_capget, &header, caps) == -1)
		return -1;
	half->effective &= ~CAP_TO_MASK(CAP_FSETID);
	if (use)
		half->effective |= half->permitted & CAP_TO_MASK(CAP_FSETID);
	return (int)syscall(SYS_capset, &header, caps);
}

int clear_set_id_begin(struct call *call, int fd)
{
	call->clears_set_id = fuse_req_ctx(call->req)->uid != 0 && has_set_id(fd);
	return call->clears_set_id ? use_fsetid(false) : 0;
}

void clear_set_id_end(struct call *call, fuse_ino_t ino)
{
	int err = errno;

	if (!call->clears_set_id)
		return;
	use_fsetid(true);
	/* Otherwise the kernel would run the file with the bits until its attributes expire. */
	fuse_lowlevel_notify_inval_inode(call->mirror->session, ino, -1, 0);
	errno = err;
}

int create_file(struct call *call, int dirfd, const char *name, int flags, mode_t mode)
{
	int fd = act_as_caller(call);

	if (fd == 0)
		fd = openat(dirfd, name, flags | O_CREAT | O_EXCL, mode);
	act_as_self(call);
	return fd;
}

static void reply_made(struct call *call, fuse_ino_t parent, const char *name, int result)
{
	act_as_self(call);
	if (result == -1)
		reply_err(call, errno);
	else
		reply_name(call, parent, name);
}

static void mirror_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			 dev_t rdev)
{
	struct call call = call_begin(req, OP_MKNOD, 0);
	int result = act_as_caller(&call);

	if (result == 0)
		result = mknodat(inode_get(parent)->fd, name, mode, rdev);
	reply_made(&call, parent, name, result);
}

static void mirror_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct call call = call_begin(req, OP_MKDIR, 0);
	int result = act_as_caller(&call);

	if (result == 0)
		result = mkdirat(inode_get(parent)->fd, name, mode);
	reply_made(&call, parent, name, result);
}

static void mirror_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
			   const char *name)
{
	struct call call = call_begin(req, OP_SYMLINK, 0);
	int result = act_as_caller(&call);

	if (result == 0)
		result = symlinkat(target, inode_get(parent)->fd, name);
	reply_made(&call, parent, name, result);
}

static void mirror_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent,
			const char *newname)
{
	struct call call = call_begin(req, OP_LINK, 0);
	struct inode *inode = inode_get(ino);
	struct fuse_entry_param e = {
		.ino = ino,
		.generation = inode->generation,
		.attr_timeout = attr_timeout_of(call.mirror),
		.entry_timeout = entry_timeout_of(call.mirror),
	};
	char path[FD_PATH_SIZE];

	/* By path, because AT_EMPTY_PATH would need CAP_DAC_READ_SEARCH. */
	fd_path(path, inode->fd);
	if (linkat(AT_FDCWD, path, inode_get(newparent)->fd, newname, AT_SYMLINK_FOLLOW) == -1 ||
	    stat_fd(inode->fd, &e.attr) == -1) {
		reply_err(&call, errno);
		return;
	}
	inode_ref(inode);
	reply_entry(&call, &e);
}

static void mirror_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call call = call_begin(req, OP_UNLINK, 0);

	reply_result(&call, unlinkat(inode_get(parent)->fd, name, 0));
}

static void mirror_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call call = call_begin(req, OP_RMDIR, 0);

	reply_result(&call, unlinkat(inode_get(parent)->fd, name, AT_REMOVEDIR));
}

static void mirror_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
			  fuse_ino_t newparent, const char *newname, unsigned int flags)
{
	struct call call = call_begin(req, OP_RENAME, 0);

	reply_result(&call, renameat2(inode_get(parent)->fd, name, inode_get(newparent)->fd,
				       newname, flags));
}

static void mirror_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct call call = call_begin(req, OP_READLINK, 0);
	char target[PATH_MAX + 1];
	ssize_t length = readlinkat(inode_get(ino)->fd, "", target, sizeof(target));

	if (length == -1 || (size_t)length == sizeof(target)) {
		reply_err(&call, length == -1 ? errno : ENAMETOOLONG);
		return;
	}
	target[length] = '\0';
	counters_end(call.op, false);
	fuse_reply_readlink(req, target);
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
