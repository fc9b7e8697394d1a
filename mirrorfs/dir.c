// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Requests on open directories.
 */
#include "ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct dir_stream {
	pthread_mutex_t lock;
	DIR *stream;
	struct dirent *pending;	/* read, but it did not fit into the reply */
	off_t offset;		/* after the last entry that was sent */
};

static struct dir_stream *stream_of(const struct fuse_file_info *fi)
{
	return (struct dir_stream *)(uintptr_t)fi->fh;
}

void mirror_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_OPENDIR, 0);
	struct dir_stream *dir = calloc(1, sizeof(*dir));
	int fd = -1, err;

	if (!dir)
		goto out_error;
	fd = openat(inode_get(ino)->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		goto out_error;
	dir->stream = fdopendir(fd);
	if (!dir->stream)
		goto out_error;
	pthread_mutex_init(&dir->lock, NULL);
	fi->fh = (uintptr_t)dir;
	counters_end(call.op, false);
	fuse_reply_open(req, fi);
	return;

out_error:
	err = errno;
	if (fd != -1)
		close(fd);
	free(dir);
	reply_err(&call, err);
}

static bool is_dot_name(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Returns the size of the entry; if that is more than room, it was left out. */
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
	 * The kernel wants no lookup of "." and "..". It takes an entry without a
	 * nodeid as a name alone, which also suits a file that has just gone.
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

static int fill_reply(struct call *call, fuse_ino_t ino, struct dir_stream *dir, char *buf,
		       size_t size, size_t *used)
{
	for (;;) {
		size_t taken;

		if (!dir->pending) {
			errno = 0;
			dir->pending = readdir(dir->stream);
			if (!dir->pending)
				return errno;
		}
		taken = call->op == OP_READDIRPLUS
			? add_plus(call, ino, buf + *used, size - *used, dir->pending)
			: add_plain(call, buf + *used, size - *used, dir->pending);
		if (taken > size - *used)
			return 0;
		*used += taken;
		dir->offset = dir->pending->d_off;
		dir->pending = NULL;
	}
}

static void read_entries(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			struct fuse_file_info *fi, enum opcode op)
{
	struct call call = call_begin(req, op, size);
	struct dir_stream *dir = stream_of(fi);
	char *buf = malloc(size);
	size_t used = 0;
	int err;

	if (!buf) {
		reply_err(&call, ENOMEM);
		return;
	}
	pthread_mutex_lock(&dir->lock);
	if (offset != dir->offset) {
		seekdir(dir->stream, offset);
		dir->pending = NULL;
		dir->offset = offset;
	}
	err = fill_reply(&call, ino, dir, buf, size, &used);
	pthread_mutex_unlock(&dir->lock);
	/* Entries in the buffer hold lookups, so they must be sent. */
	if (err && !used)
		reply_err(&call, err);
	else
		reply_buf(&call, buf, used);
	free(buf);
}

void mirror_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	read_entries(req, ino, size, offset, fi, OP_READDIR);
}

void mirror_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			struct fuse_file_info *fi)
{
	read_entries(req, ino, size, offset, fi, OP_READDIRPLUS);
}

void mirror_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_RELEASEDIR, 0);
	struct dir_stream *dir = stream_of(fi);

	(void)ino;
	closedir(dir->stream);
	pthread_mutex_destroy(&dir->lock);
	free(dir);
	reply_err(&call, 0);
}

void mirror_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
		     struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_FSYNCDIR, 0);

	(void)ino;
	reply_result(&call, sync_fd(dirfd(stream_of(fi)->stream), datasync));
}
