/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Splices a large write, then lets libfuse read the next one, as if INIT had turned splicing off
 * while a thread waited for the first. Prints the number of writes that were answered.
 */
#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <errno.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BYTES 65536

static struct fuse_conn_info *negotiated;
static struct {
	struct fuse_in_header header;
	union {
		struct fuse_init_in init;
		struct fuse_write_in write;
	};
	char data[BYTES];
} request;
static size_t length;
/* The kernel's end and the server's. Like the device, such a socket gives one request per read. */
static int ends[2];

static void begin(uint32_t opcode, size_t bytes)
{
	memset(&request, 0, sizeof(request));
	length = sizeof(request.header) + bytes;
	request.header.len = length;
	request.header.opcode = opcode;
	request.header.unique = 2;
	request.header.nodeid = 1;
}

static void begin_write(void)
{
	begin(FUSE_WRITE, sizeof(request.write) + BYTES);
	request.write.size = BYTES;
	/* The struct of INIT is larger, so the data is not where a write has it. */
	memset((char *)&request + length - BYTES, 'w', BYTES);
}

static void init(void *data, struct fuse_conn_info *connection)
{
	(void)data;
	negotiated = connection;
}

static void write_buffer(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t offset,
			 struct fuse_file_info *fi)
{
	static char got[BYTES];
	struct fuse_bufvec out = FUSE_BUFVEC_INIT(BYTES);

	(void)ino;
	(void)offset;
	(void)fi;
	out.buf[0].mem = got;
	memset(got, 0, BYTES);
	if (fuse_buf_copy(&out, in, 0) == BYTES && got[0] == 'w' && got[BYTES - 1] == 'w')
		fuse_reply_write(req, BYTES);
	else
		fuse_reply_err(req, EIO);
}

/* Sends the request to the server's end. Returns 1 if libfuse answers it, 0 if not. */
static int serve(struct fuse_session *session, struct fuse_buf *buf)
{
	struct fuse_out_header header = { .error = 0 };

	if (send(ends[0], &request, length, 0) == -1 || fuse_session_receive_buf(session, buf) <= 0)
		exit(1);
	fuse_session_process_buf(session, buf);
	return recv(ends[0], &header, sizeof(header), MSG_DONTWAIT) > 0 && !header.error;
}

int main(int argc, char **argv)
{
	static const struct fuse_lowlevel_ops operations = {
		.init = init, .write_buf = write_buffer,
	};
	struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
	struct fuse_session *session = fuse_session_new(&args, &operations, sizeof(operations), NULL);
	struct fuse_buf buf = { .mem = NULL };
	char point[32];
	int answered;

	if (!session || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == -1)
		return 1;
	snprintf(point, sizeof(point), "/dev/fd/%d", ends[1]);
	if (fuse_session_mount(session, point))
		return 1;
	begin(FUSE_INIT, sizeof(request.init));
	request.init.major = 7;
	request.init.minor = 31;
	if (!serve(session, &buf))
		return 1;
	begin_write();
	answered = serve(session, &buf);
	if (!(buf.flags & FUSE_BUF_IS_FD))
		return 1;
	negotiated->want &= ~FUSE_CAP_SPLICE_READ;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	negotiated->want_ext &= ~(uint64_t)FUSE_CAP_SPLICE_READ;
#endif
	answered += serve(session, &buf);
	printf("%d\n", answered);
	return 0;
}
