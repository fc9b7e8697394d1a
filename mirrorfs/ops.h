/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shared by the files with request handlers.
 */
#ifndef MIRRORFS_OPS_H
#define MIRRORFS_OPS_H

#include "mirrorfs.h"

/* "/proc/self/fd/" and a number */
#define FD_PATH_SIZE 32

/* One request, from its arrival to its reply. */
struct call {
	fuse_req_t req;
	struct mirror *mirror;
	enum opcode op;
	bool clears_set_id;	/* from clear_set_id_begin() to clear_set_id_end() */
};

/* Counts the request and waits as long as the throttle says. */
struct call call_begin(fuse_req_t req, enum opcode op, uint64_t bytes);

/* Each ends the call. reply_err() takes an errno value or 0. */
void reply_err(struct call *call, int err);
/* For system calls: -1 means errno. */
void reply_result(struct call *call, int result);
void reply_buf(struct call *call, const void *buf, size_t size);

/* How long the kernel may cache attributes and names, in seconds. */
double attr_timeout_of(const struct mirror *mirror);
double entry_timeout_of(const struct mirror *mirror);

void fd_path(char path[FD_PATH_SIZE], int fd);
int sync_fd(int fd, int datasync);
int stat_fd(int fd, struct stat *st);

/* Fills e and takes a lookup of it; returns an errno value or 0. */
int lookup_name(struct call *call, fuse_ino_t parent, const char *name,
		struct fuse_entry_param *e);
/* Whether ENOENT is replied as a cacheable negative entry; if so, fills e with it. */
bool lasts_missing(struct call *call, int err, struct fuse_entry_param *e);
/*
 * Between these two calls, what this thread creates belongs to the caller from the start.
 * Changing its owner and mode by name afterwards would be a race, because the caller may
 * have put another file or a symbolic link there. act_as_caller() returns -1 with errno
 * set on failure; act_as_self() must follow either way, and keeps errno.
 */
int act_as_caller(struct call *call);
void act_as_self(struct call *call);
/*
 * Between these two calls, the source clears the set-ID bits of the file fd when this thread
 * writes or truncates it, unless root is the caller. Root's server has CAP_FSETID, which would
 * keep them. The kernel clears them itself, but not for direct writes and O_TRUNC.
 * clear_set_id_begin() returns -1 with errno set on failure; clear_set_id_end() must follow
 * either way, before the reply, and keeps errno.
 */
int clear_set_id_begin(struct call *call, int fd);
void clear_set_id_end(struct call *call, fuse_ino_t ino);
/* openat(2) of a new file, which belongs to the caller. */
int create_file(struct call *call, int dirfd, const char *name, int flags, mode_t mode);

/* init.c */
void mirror_init(void *userdata, struct fuse_conn_info *conn);

/* attr.c */
void mirror_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid,
		    struct fuse_file_info *fi);
void mirror_statfs(fuse_req_t req, fuse_ino_t ino);
void mirror_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void mirror_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void mirror_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		     size_t size, int flags);
void mirror_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* dir.c */
void mirror_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi);
void mirror_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			struct fuse_file_info *fi);
void mirror_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* opening.c */

/*
 * How often opening and creating by name is tried at most; it is repeated if another
 * process creates or removes the name in between.
 */
#define OPEN_TRIES 16

/* Converts the open flags of a request to those for open(2) on the source. */
int source_flags(const struct options *opts, int flags);
/* Fills the reply to an open; returns an errno value or 0. backing_put() undoes it. */
int fill_open(struct call *call, struct inode *inode, int fd, struct fuse_file_info *fi);
/* Only with passthrough. */
void backing_put(struct call *call, struct inode *inode);

/* files.c */
void mirror_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		   struct fuse_file_info *fi);
void mirror_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
/* tuned_open.c */
void mirror_tuned_open(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		       struct fuse_file_info *fi);

/* data.c */
void mirror_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		 struct fuse_file_info *fi);
void mirror_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *data, off_t offset,
		      struct fuse_file_info *fi);
void mirror_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		      struct fuse_file_info *fi);
void mirror_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			    struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			    struct fuse_file_info *fi_out, size_t len, int flags);
void mirror_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
		  struct fuse_file_info *fi);

#endif
