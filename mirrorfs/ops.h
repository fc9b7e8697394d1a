/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files with request handlers share.
 */
#ifndef MIRRORFS_OPS_H
#define MIRRORFS_OPS_H

#include "mirrorfs.h"

/* "/proc/self/fd/" and a number */
#define FD_PATH_SIZE 32

/* One request, from its arrival to its answer. */
struct call {
	fuse_req_t req;
	struct mirror *mirror;
	enum opcode op;
};

/* Counts the request and lets it wait as long as the throttle says. */
struct call call_begin(fuse_req_t req, enum opcode op, uint64_t bytes);

/* Each ends the call. answer() takes an errno value or 0. */
void answer(struct call *call, int err);
/* For system calls: -1 means errno. */
void answer_result(struct call *call, int result);
void answer_buf(struct call *call, const void *buf, size_t size);

void fd_path(char path[FD_PATH_SIZE], int fd);
int sync_fd(int fd, int datasync);

/* Fills e and takes a lookup of it; returns an errno value or 0. */
int lookup_name(struct call *call, fuse_ino_t parent, const char *name,
		struct fuse_entry_param *e);
bool lasts_missing(struct call *call, int err, struct fuse_entry_param *e);
/* Gives a new name's file to the caller. Returns -1 with errno set on failure. */
int give_to_caller(struct call *call, int dirfd, const char *name, mode_t mode);

/* dir.c */
void mirror_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi);
void mirror_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			struct fuse_file_info *fi);
void mirror_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* files.c */
void mirror_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		   struct fuse_file_info *fi);
void mirror_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void mirror_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
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
