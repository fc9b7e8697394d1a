// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Serve TUNED_OPEN (dkms/fusetuned/tuned/protocol.h) with the server's own operations: lookup, then
 * open or create, as the kernel would otherwise send them. The server does not notice.
 *
 * One request goes through libfuse's do_lookup(), then do_open() or do_create(). The reply to the
 * first is kept in the request's tuned_opening.
 *
 * The second operation is called by the thread that called the first, after that has returned,
 * because a server may reply while it holds a lock that the second needs, or from a thread that the
 * second waits for. If the reply to the lookup comes later or from another thread, the entry alone
 * is sent, and the kernel sends OPEN. If the file must be created then, the reply is ENOSYS, which
 * ends the use of TUNED_OPEN for the mount: nothing else makes the kernel send CREATE.
 *
 * With O_EXCL or O_TRUNC no existing file is opened, and only regular files are ever opened. In
 * these cases, and if the open fails, the kernel continues with the entry as after LOOKUP. So every
 * lookup that the server counts is replied to with its entry, and none needs a FORGET.
 *
 * Requests received by io_uring bypass this code, so the two options exclude each other.
 */
#include "fuse_config.h"
#include "fuse_i.h"
#include "fuse_kernel.h"
#include "protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

struct tuned_opening {
	/* The operation whose reply is due. */
	enum { LOOKUP, OPEN, CREATE } step;
	/* As in open(2). */
	uint32_t flags;
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out;
};

/* The lookup that this thread is in, and whether an open or create must follow. */
static __thread struct lookup {
	/* Request numbers are unique only within a connection. */
	const struct fuse_session *session;
	uint64_t unique;
	int goes_on;
} *within;

/* The bit in flags2 of INIT. */
static const uint32_t offer = TUNED_INIT_OPEN >> 32;

void tuned_init_open(struct tuned *tuned, const struct fuse_init_in *in)
{
	tuned->opens = TUNED_GIVEN(&tuned->options, TUNED_ATOMIC_OPEN) &&
		       in->flags & FUSE_INIT_EXT && in->flags2 & offer;
}

void tuned_init_open_out(const struct tuned *tuned, struct fuse_init_out *out)
{
	if (tuned->opens)
		out->flags2 |= offer;
}

int tuned_takes(const struct fuse_session *se, uint32_t opcode)
{
	return se->tuned.opens && (opcode == TUNED_HELLO || opcode == TUNED_OPEN);
}

static void reply_hello(fuse_req_t req, const struct tuned_hello *asked)
{
	const struct tuned_hello hello = { .magic = TUNED_MAGIC, .version = TUNED_VERSION };

	if (asked->magic == hello.magic)
		fuse_reply_buf(req, (const char *)&hello, sizeof(hello));
	else
		fuse_reply_err(req, ENOSYS);
}

void tuned_serve(fuse_req_t req, const struct fuse_in_header *in, tuned_operation *lookup,
		 tuned_operation *open, tuned_operation *create)
{
	const struct tuned_open_in *asked = (const void *)(in + 1);
	struct fuse_open_in open_in = { .flags = asked->flags & ~(O_CREAT | O_EXCL) };
	struct lookup this = { .session = req->se, .unique = in->unique }, *outer = within;
	struct tuned_opening *opening;

	if (in->opcode == TUNED_HELLO) {
		reply_hello(req, (const void *)(in + 1));
		return;
	}
	opening = calloc(1, sizeof(*opening));
	if (!opening) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	opening->flags = asked->flags;
	req->opening = opening;
	within = &this;
	lookup(req, in->nodeid, asked + 1);
	within = outer;
	if (!this.goes_on)
		return; /* the request may have been freed */
	/* The lookup's interrupt function is not for the second operation. */
	fuse_req_interrupt_func(req, NULL, NULL);
	if (opening->step == CREATE)
		create(req, in->nodeid, asked); /* same layout */
	else
		open(req, opening->out.entry.nodeid, &open_in);
}

static int reply(fuse_req_t req, int error, uint32_t result)
{
	struct tuned_opening *opening = req->opening;
	struct iovec iov[2] = { [1] = { &opening->out, sizeof(opening->out) } };
	int res;

	opening->out.open.open_flags |= result;
	res = fuse_send_reply_iov_nofree(req, error, iov, error ? 1 : 2);
	req->opening = NULL;
	free(opening);
	fuse_free_req(req);
	return res;
}

static int looked_up(fuse_req_t req, int error)
{
	struct tuned_opening *opening = req->opening;
	const struct fuse_entry_out *entry = &opening->out.entry;
	int missing = error == -ENOENT || (!error && !entry->nodeid);

	if (missing && opening->flags & O_CREAT)
		opening->step = CREATE;
	else if (!missing && !error && S_ISREG(entry->attr.mode) &&
		 !(opening->flags & (O_EXCL | O_TRUNC)))
		opening->step = OPEN;
	else
		return reply(req, error, TUNED_FOPEN_LOOKUP);
	if (within && within->session == req->se && within->unique == req->unique) {
		within->goes_on = 1;
		return 0;
	}
	return reply(req, opening->step == CREATE ? -ENOSYS : 0, TUNED_FOPEN_LOOKUP);
}

int tuned_replied(fuse_req_t req, int error, const struct iovec *iov, int count)
{
	struct tuned_opening *opening = req->opening;
	void *place = opening->step == OPEN ? (void *)&opening->out.open : &opening->out;
	size_t size = opening->step == LOOKUP ? sizeof(opening->out.entry) :
		      opening->step == OPEN ? sizeof(opening->out.open) : sizeof(opening->out);

	if (!error && (count != 2 || iov[1].iov_len != size))
		error = -EIO;
	if (!error)
		memcpy(place, iov[1].iov_base, size);
	switch (opening->step) {
	case LOOKUP:
		return looked_up(req, error);
	case OPEN:
		return reply(req, 0, error ? TUNED_FOPEN_LOOKUP : 0);
	default:
		return reply(req, error, TUNED_FOPEN_CREATED);
	}
}
