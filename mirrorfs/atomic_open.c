// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Support TUNED_OPEN, which the module fusetuned sends but libfuse does not know.
 * All requests and replies pass through here. This code adds a bit to the reply to
 * INIT, replies to TUNED_HELLO, and passes TUNED_OPEN on as CREATE, which has the
 * same layout. The same thread reads, serves and replies to a request.
 */
#include "mirrorfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <protocol.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* The request that this thread serves. */
static _Thread_local struct {
	uint64_t unique;
	bool offers;		/* INIT, with TUNED_INIT_OPEN */
	bool opens;		/* TUNED_OPEN */
	uint32_t result;	/* TUNED_FOPEN_ bits of its reply */
} request;

static const uint32_t offer = TUNED_INIT_OPEN >> 32;

bool atomic_open_asked(void)
{
	return request.opens;
}

void atomic_open_looked_up(void)
{
	request.result = TUNED_FOPEN_LOOKUP;
}

void atomic_open_made(void)
{
	request.result = TUNED_FOPEN_CREATED;
}

static bool is_offered(const struct fuse_in_header *in)
{
	const struct fuse_init_in *init = (const void *)(in + 1);

	return in->len >= sizeof(*in) + offsetof(struct fuse_init_in, unused) &&
	       init->flags & FUSE_INIT_EXT && init->flags2 & offer;
}

static void reply_hello(int fd, const struct fuse_in_header *in)
{
	const struct tuned_hello *asked = (const void *)(in + 1);
	struct tuned_hello hello = { .magic = TUNED_MAGIC, .version = TUNED_VERSION };
	struct fuse_out_header out = { .len = sizeof(out) + sizeof(hello), .unique = in->unique };
	struct iovec iov[] = { { &out, sizeof(out) }, { &hello, sizeof(hello) } };

	if (in->len < sizeof(*in) + sizeof(*asked) || asked->magic != hello.magic) {
		out.len = sizeof(out);
		out.error = -ENOSYS;
	}
	counters_end(OP_TUNED_HELLO, out.error != 0);
	/* Fails only if nobody waits for the reply. */
	if (writev(fd, iov, out.error ? 1 : 2) == -1)
		return;
}

static ssize_t take(int fd, void *buf, size_t size, void *userdata)
{
	const struct mirror *mirror = userdata;
	const bool knows = mirror->opts.atomic_open == ATOMIC_OPEN_ON;
	struct fuse_in_header *in = buf;
	ssize_t got;

	for (;;) {
		got = read(fd, buf, size);
		memset(&request, 0, sizeof(request));
		if (got < (ssize_t)sizeof(*in))
			return got;
		request.unique = in->unique;
		switch (in->opcode) {
		case FUSE_INIT:
			request.offers = is_offered(in);
			return got;
		case TUNED_HELLO:
			counters_begin(OP_TUNED_HELLO, 0);
			if (knows) {
				reply_hello(fd, in);
				continue;
			}
			counters_end(OP_TUNED_HELLO, true);
			return got;	/* libfuse replies ENOSYS */
		case TUNED_OPEN:
			if (knows) {
				request.opens = true;
				in->opcode = FUSE_CREATE;
			}
			return got;
		default:
			return got;
		}
	}
}

static ssize_t give(int fd, struct iovec *iov, int count, void *userdata)
{
	const struct fuse_out_header *out = iov[0].iov_base;
	struct fuse_open_out *opened;
	struct fuse_init_out *init;

	(void)userdata;
	if (count == 2 && out->unique == request.unique && !out->error) {
		if (request.offers) {
			init = iov[1].iov_base;
			init->flags |= FUSE_INIT_EXT;
			init->flags2 |= offer;
		} else if (request.opens) {
			opened = (void *)((char *)iov[1].iov_base + sizeof(struct fuse_entry_out));
			opened->open_flags |= request.result;
		}
	}
	return writev(fd, iov, count);
}

/* Replies to READ are still spliced; requests are not, because they are inspected here. */
static ssize_t give_by_splice(int from, off_t *from_at, int to, off_t *to_at, size_t size,
			      unsigned int flags, void *userdata)
{
	(void)userdata;
	return splice(from, from_at, to, to_at, size, flags);
}

int atomic_open_session(struct mirror *mirror, int fd)
{
	static const struct fuse_custom_io io = {
		.read = take,
		.writev = give,
		.splice_send = give_by_splice,
	};

	return fuse_session_custom_io(mirror->session, &io, fd);
}
