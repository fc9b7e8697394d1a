// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reading, writing, allocating, copying and seeking the data of a file.
 */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_key_t read_buffer_key;

__attribute__((constructor)) static void make_read_buffer_key(void)
{
	pthread_key_create(&read_buffer_key, free);
}

/* One buffer for each thread: allocating a megabyte for each READ costs more than the READ. */
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
		reply_err(call, ENOMEM);
		return;
	}
	got = pread(fd, buf, size, offset);
	if (got == -1)
		reply_err(call, errno);
	else
		reply_buf(call, buf, (size_t)got);
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

/* The kernel may ask past the end of the file; the link carries only what exists. */
static void transfer_read(const struct options *opts, int fd, size_t size, off_t offset)
{
	struct stat st;

	if (!opts->bandwidth || fstat(fd, &st) == -1 || st.st_size <= offset)
		return;
	if ((off_t)size > st.st_size - offset)
		size = (size_t)(st.st_size - offset);
	throttle_transfer(size);
}

/* If the pipe is too small, libfuse would allocate memory for each READ. */
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

static ssize_t write_for_caller(struct call *call, fuse_ino_t ino, struct fuse_bufvec *out,
				struct fuse_bufvec *data)
{
	unsigned int splice = call->mirror->opts.splice;
	ssize_t done;

	if (clear_set_id_begin(call, out->buf[0].fd) == -1)
		done = -errno;
	else
		done = fuse_buf_copy(out, data, splice & SPLICE_MOVE ? FUSE_BUF_SPLICE_MOVE : 0);
	clear_set_id_end(call, ino);
	return done;
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
		done = write_for_caller(&call, ino, &out, data);
	tally_end(&inode->writes);
	if (done < 0) {
		reply_err(&call, (int)-done);
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
	reply_result(&call, fallocate((int)fi->fh, mode, offset, length));
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
		reply_err(&call, errno);
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
		reply_err(&call, errno);
		return;
	}
	counters_end(call.op, false);
	fuse_reply_lseek(req, found);
}
