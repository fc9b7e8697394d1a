// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Requests on files: open, data, close.
 */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * O_DIRECT stays between the caller and this mount: the source would want
 * aligned memory, and requests do not come aligned. With the writeback cache
 * the kernel reads to fill pages also of write-only files, and places appended
 * data itself.
 */
static int source_flags(const struct options *opts, int flags)
{
	flags &= ~(O_DIRECT | O_NOFOLLOW | O_CREAT | O_EXCL | O_NOCTTY);
	if (opts->writeback) {
		if ((flags & O_ACCMODE) == O_WRONLY)
			flags = (flags & ~O_ACCMODE) | O_RDWR;
		flags &= ~O_APPEND;
	}
	return flags | O_CLOEXEC;
}

#ifdef HAVE_PASSTHROUGH
/* All opens of a file share one backing id, as the kernel demands. */
static int backing_get(struct call *call, struct inode *inode, struct fuse_file_info *fi)
{
	int err = 0;

	pthread_mutex_lock(&call->mirror->open_lock);
	if (!inode->nopen) {
		errno = 0;
		inode->backing_id = fuse_passthrough_open(call->req, (int)fi->fh);
	}
	if (inode->backing_id > 0) {
		inode->nopen++;
		fi->backing_id = inode->backing_id;
		fi->keep_cache = 0;
	} else {
		err = errno ? errno : EOPNOTSUPP;
	}
	pthread_mutex_unlock(&call->mirror->open_lock);
	return err;
}

static void backing_put(struct call *call, struct inode *inode)
{
	pthread_mutex_lock(&call->mirror->open_lock);
	if (!--inode->nopen) {
		fuse_passthrough_close(call->req, inode->backing_id);
		inode->backing_id = 0;
	}
	pthread_mutex_unlock(&call->mirror->open_lock);
}
#else
static int backing_get(struct call *call, struct inode *inode, struct fuse_file_info *fi)
{
	(void)call, (void)inode, (void)fi;
	return EOPNOTSUPP;
}

static void backing_put(struct call *call, struct inode *inode)
{
	(void)call, (void)inode;
}
#endif

static int fill_open(struct call *call, struct inode *inode, int fd, struct fuse_file_info *fi)
{
	const struct options *opts = &call->mirror->opts;

	fi->fh = (uint64_t)fd;
	fi->keep_cache = opts->keep_cache;
	fi->direct_io = opts->direct_io;
	if (opts->passthrough)
		return backing_get(call, inode, fi);
#ifdef HAVE_PARALLEL_DIRECT_WRITES
	if (opts->parallel_direct_writes) {
		fi->parallel_direct_writes = 1;
		/* The kernel heeds the one only with the other. */
		if (fi->flags & O_DIRECT)
			fi->direct_io = 1;
	}
#endif
	return 0;
}

void mirror_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_OPEN, 0);
	struct inode *inode = inode_get(ino);
	char path[FD_PATH_SIZE];
	int fd, err;

	fd_path(path, inode->fd);
	fd = open(path, source_flags(&call.mirror->opts, fi->flags));
	if (fd == -1) {
		answer(&call, errno);
		return;
	}
	err = fill_open(&call, inode, fd, fi);
	if (err) {
		close(fd);
		answer(&call, err);
		return;
	}
	counters_end(call.op, false);
	fuse_reply_open(req, fi);
}

/* Only a file that this call made may change hands, so find out who made it. */
static int open_or_make(int dirfd, const char *name, int flags, mode_t mode, bool exclusive,
			bool *made)
{
	int tries, fd = -1;

	for (tries = 0; tries < 16; tries++) {
		fd = openat(dirfd, name, flags | O_CREAT | O_EXCL, mode);
		*made = fd != -1;
		if (fd != -1 || errno != EEXIST || exclusive)
			return fd;
		fd = openat(dirfd, name, flags | O_NOFOLLOW);
		if (fd != -1 || errno != ENOENT)
			return fd;
	}
	return fd;
}

/* What nobody waits for any more: the caller was killed, or the mount is gone. */
static void undo_open(struct call *call, struct inode *inode, int fd)
{
	if (fd == -1)
		return;
	if (call->mirror->opts.passthrough)
		backing_put(call, inode);
	close(fd);
}

/* Makes the file, if that is asked for and it is not there, and looks the name up. */
static int make_or_find(struct call *call, fuse_ino_t parent, const char *name, mode_t mode,
			int flags, struct fuse_entry_param *e, int *fd)
{
	int dirfd = inode_get(parent)->fd, made_flags = source_flags(&call->mirror->opts, flags);
	int tries, err;

	for (tries = 0; tries < 16; tries++) {
		*fd = -1;
		if (flags & O_CREAT)
			*fd = openat(dirfd, name, made_flags | O_CREAT | O_EXCL, mode);
		if (flags & O_CREAT && *fd == -1 && (errno != EEXIST || flags & O_EXCL))
			return errno;
		if (*fd != -1 && give_to_caller(call, dirfd, name, mode) == -1) {
			err = errno;
			close(*fd);
			unlinkat(dirfd, name, 0);
			return err;
		}
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

/* As protocol.h of the module fusetuned says. */
static void tuned_open(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		       struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_TUNED_OPEN, 0);
	struct fuse_entry_param e;
	int fd = -1, err;

	err = make_or_find(&call, parent, name, mode, fi->flags, &e, &fd);
	if (err && (fi->flags & O_CREAT || !lasts_missing(&call, err, &e))) {
		answer(&call, err);
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
		answer(&call, err);
		return;
	}
	counters_end(call.op, false);
	if (fuse_reply_create(req, &e, fi) == -ENOENT && e.ino) {
		undo_open(&call, inode_get(e.ino), fd);
		inode_forget(inode_get(e.ino), 1);
	}
}

void mirror_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		   struct fuse_file_info *fi)
{
	struct call call;
	int dirfd = inode_get(parent)->fd, fd, err;
	struct fuse_entry_param e;
	bool made = false;

	if (atomic_open_asked()) {
		tuned_open(req, parent, name, mode, fi);
		return;
	}
	call = call_begin(req, OP_CREATE, 0);
	fd = open_or_make(dirfd, name, source_flags(&call.mirror->opts, fi->flags), mode,
			  fi->flags & O_EXCL, &made);
	if (fd == -1) {
		answer(&call, errno);
		return;
	}
	if (made && give_to_caller(&call, dirfd, name, mode) == -1) {
		err = errno;
		goto out_unlink;
	}
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
out_unlink:
	if (made)
		unlinkat(dirfd, name, 0);
out_close:
	close(fd);
	answer(&call, err);
}

void mirror_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_RELEASE, 0);

	if (call.mirror->opts.passthrough)
		backing_put(&call, inode_get(ino));
	close((int)fi->fh);
	answer(&call, 0);
}

/* Errors that the source reports only on close reach the caller's close. */
void mirror_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_FLUSH, 0);

	(void)ino;
	answer_result(&call, close(dup((int)fi->fh)));
}

void mirror_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		  struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_FSYNC, 0);

	(void)ino;
	answer_result(&call, sync_fd((int)fi->fh, datasync));
}

static pthread_key_t read_buffer_key;

__attribute__((constructor)) static void make_read_buffer_key(void)
{
	pthread_key_create(&read_buffer_key, free);
}

/* One a thread, kept: a fresh megabyte for each READ costs more than the READ. */
static void *read_buffer(size_t size)
{
	struct { size_t size; } *buffer = pthread_getspecific(read_buffer_key);
	size_t header = (size_t)sysconf(_SC_PAGESIZE);

	if (buffer && buffer->size >= size)
		return (char *)buffer + header;
	free(buffer);
	buffer = aligned_alloc(header, header + (size + header - 1) / header * header);
	pthread_setspecific(read_buffer_key, buffer);
	if (!buffer)
		return NULL;
	buffer->size = size;
	return (char *)buffer + header;
}

static void read_by_copy(struct call *call, int fd, size_t size, off_t offset)
{
	char *buf = read_buffer(size);
	ssize_t got;

	if (!buf) {
		answer(call, ENOMEM);
		return;
	}
	got = pread(fd, buf, size, offset);
	if (got == -1)
		answer(call, errno);
	else
		answer_buf(call, buf, (size_t)got);
}

static void read_by_splice(struct call *call, int fd, size_t size, off_t offset)
{
	struct fuse_bufvec data = FUSE_BUFVEC_INIT(size);

	data.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	data.buf[0].fd = fd;
	data.buf[0].pos = offset;
	counters_end(call->op, false);
	fuse_reply_data(call->req, &data,
			call->mirror->opts.splice & SPLICE_MOVE ? FUSE_BUF_SPLICE_MOVE : 0);
}

/* The kernel may ask past the end of the file; a link carries what there is. */
static void transfer_read(const struct options *opts, int fd, size_t size, off_t offset)
{
	struct stat st;

	if (!opts->bandwidth || fstat(fd, &st) == -1 || st.st_size <= offset)
		return;
	if ((off_t)size > st.st_size - offset)
		size = (size_t)(st.st_size - offset);
	throttle_transfer(size);
}

/* Without room in a pipe libfuse takes fresh memory for each READ. */
static bool reads_by_splice(const struct mirror *mirror, size_t size)
{
	return mirror->opts.splice & SPLICE_WRITE && size <= mirror->splice_room;
}

void mirror_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		 struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_READ, size);

	(void)ino;
	transfer_read(&call.mirror->opts, (int)fi->fh, size, offset);
	if (reads_by_splice(call.mirror, size))
		read_by_splice(&call, (int)fi->fh, size, offset);
	else
		read_by_copy(&call, (int)fi->fh, size, offset);
}

static bool is_nth(uint64_t number, uint64_t every)
{
	return every && number % every == 0;
}

void mirror_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *data,
		      off_t offset, struct fuse_file_info *fi)
{
	static _Atomic uint64_t arrived;
	uint64_t number = atomic_fetch_add_explicit(&arrived, 1, memory_order_relaxed) + 1;
	size_t size = fuse_buf_size(data);
	struct fuse_bufvec out = FUSE_BUFVEC_INIT(size);
	struct inode *inode = inode_get(ino);
	const struct options *opts;
	struct call call;
	ssize_t done = -EIO;

	tally_begin(&inode->writes, size);
	call = call_begin(req, OP_WRITE, size);
	opts = &call.mirror->opts;
	throttle_transfer(size);
	if (is_nth(number, opts->short_every))
		out.buf[0].size = size / 2;
	out.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	out.buf[0].fd = (int)fi->fh;
	out.buf[0].pos = offset;
	if (opts->serialize_alloc && size >= opts->serialize_alloc)
		allocate_whole((int)fi->fh, offset, (off_t)size);
	if (!is_nth(number, opts->fail_every))
		done = fuse_buf_copy(&out, data,
				     opts->splice & SPLICE_MOVE ? FUSE_BUF_SPLICE_MOVE : 0);
	tally_end(&inode->writes);
	if (done < 0) {
		answer(&call, (int)-done);
		return;
	}
	counters_end(call.op, false);
	fuse_reply_write(req, (size_t)done);
}

void mirror_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset,
		      off_t length, struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_FALLOCATE, 0);

	(void)ino;
	answer_result(&call, fallocate((int)fi->fh, mode, offset, length));
}

void mirror_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			    struct fuse_file_info *fi_in, fuse_ino_t ino_out,
			    off_t off_out, struct fuse_file_info *fi_out, size_t len,
			    int flags)
{
	struct call call = call_begin(req, OP_COPY_FILE_RANGE, len);
	ssize_t done;

	(void)ino_in, (void)ino_out;
	done = copy_file_range((int)fi_in->fh, &off_in, (int)fi_out->fh, &off_out, len,
			       (unsigned int)flags);
	if (done == -1) {
		answer(&call, errno);
		return;
	}
	counters_end(call.op, false);
	fuse_reply_write(req, (size_t)done);
}

void mirror_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
		  struct fuse_file_info *fi)
{
	struct call call = call_begin(req, OP_LSEEK, 0);
	off_t found = lseek((int)fi->fh, offset, whence);

	(void)ino;
	if (found == -1) {
		answer(&call, errno);
		return;
	}
	counters_end(call.op, false);
	fuse_reply_lseek(req, found);
}
