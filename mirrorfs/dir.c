// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Requests on open folders.
 */
#include "ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct folder {
	pthread_mutex_t lock;
	DIR *stream;
	struct dirent *pending;	/* read but not sent: it did not fit */
	off_t offset;		/* where the last entry sent ends */
};

static struct folder *folder_of(const struct fuse_file_info *fi)
{
	return (struct folder *)(uintptr_t)fi->fh;
}

void mirror_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_OPENDIR, 0);
	struct folder *folder = calloc(1, sizeof(*folder));
	int fd = -1, err;

	if (!folder)
		goto out_error;
	fd = openat(inode_get(ino)->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		goto out_error;
	folder->stream = fdopendir(fd);
	if (!folder->stream)
		goto out_error;
	pthread_mutex_init(&folder->lock, NULL);
	fi->fh = (uintptr_t)folder;
	counters_end(call.op, false);
	fuse_reply_open(req, fi);
	return;

out_error:
	err = errno;
	if (fd != -1)
		close(fd);
	free(folder);
	answer(&call, err);
}

static bool is_dot_name(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Returns the size the entry takes; more than room means it was left out. */
static size_t add_plain(struct call *call, char *buf, size_t room, const struct dirent *entry)
{
	const struct stat st = {
		.st_ino = entry->d_ino,
		.st_mode = DTTOIF(entry->d_type),
	};

	return fuse_add_direntry(call->req, buf, room, entry->d_name, &st, entry->d_off);
}

static size_t add_plus(struct call *call, fuse_ino_t parent, char *buf, size_t room,
		       const struct dirent *entry)
{
	struct fuse_entry_param e;
	size_t size;

	/*
	 * The kernel wants no lookup of the dot names, and takes an entry with
	 * no nodeid as the name alone: right for one that has just gone.
	 */
	if (is_dot_name(entry->d_name) || lookup_name(call, parent, entry->d_name, &e) != 0)
		e = (struct fuse_entry_param) {
			.attr.st_ino = entry->d_ino,
			.attr.st_mode = DTTOIF(entry->d_type),
		};
	size = fuse_add_direntry_plus(call->req, buf, room, entry->d_name, &e, entry->d_off);
	if (size > room && e.ino)
		inode_forget(inode_get(e.ino), 1);
	return size;
}

static int fill_folder(struct call *call, fuse_ino_t ino, struct folder *folder, char *buf,
		       size_t size, size_t *used)
{
	for (;;) {
		size_t taken;

		if (!folder->pending) {
			errno = 0;
			folder->pending = readdir(folder->stream);
			if (!folder->pending)
				return errno;
		}
		taken = call->op == OP_READDIRPLUS
			? add_plus(call, ino, buf + *used, size - *used, folder->pending)
			: add_plain(call, buf + *used, size - *used, folder->pending);
		if (taken > size - *used)
			return 0;
		*used += taken;
		folder->offset = folder->pending->d_off;
		folder->pending = NULL;
	}
}

static void read_folder(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			struct fuse_file_info *fi, enum opcode op)
{
	struct call call = call_begin(req, op, size);
	struct folder *folder = folder_of(fi);
	char *buf = malloc(size);
	size_t used = 0;
	int err;

	if (!buf) {
		answer(&call, ENOMEM);
		return;
	}
	pthread_mutex_lock(&folder->lock);
	if (offset != folder->offset) {
		seekdir(folder->stream, offset);
		folder->pending = NULL;
		folder->offset = offset;
	}
	err = fill_folder(&call, ino, folder, buf, size, &used);
	pthread_mutex_unlock(&folder->lock);
	/* Entries already there hold lookups, so they must be sent. */
	if (err && !used)
		answer(&call, err);
	else
		answer_buf(&call, buf, used);
	free(buf);
}

void mirror_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	read_folder(req, ino, size, offset, fi, OP_READDIR);
}

void mirror_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			struct fuse_file_info *fi)
{
	read_folder(req, ino, size, offset, fi, OP_READDIRPLUS);
}

void mirror_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_RELEASEDIR, 0);
	struct folder *folder = folder_of(fi);

	(void)ino;
	closedir(folder->stream);
	pthread_mutex_destroy(&folder->lock);
	free(folder);
	answer(&call, 0);
}

void mirror_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
		     struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_FSYNCDIR, 0);

	(void)ino;
	answer_result(&call, sync_fd(dirfd(folder_of(fi)->stream), datasync));
}
