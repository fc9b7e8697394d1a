// SPDX-License-Identifier: GPL-2.0-or-later
/* The server: it reads requests, and replies with the lie of each turn. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hostile.h"

static struct fuse_in_header withheld[256];
static unsigned int withheld_count;

/* Send the reply; returns whether the kernel accepted it. */
static bool send_bytes(int device, int *pipe_ends, bool moved)
{
	size_t size = sizeof(reply.head) + body_size;

	if (moved && size < 60000) {
		struct iovec vec = { &reply, size };
		ssize_t got = vmsplice(pipe_ends[1], &vec, 1, 0);
		ssize_t sent = -1;
		char left[65536];

		if (got == (ssize_t)size)
			sent = splice(pipe_ends[0], NULL, device, NULL, size, SPLICE_F_MOVE);
		while (read(pipe_ends[0], left, sizeof(left)) > 0)
			;
		return sent == (ssize_t)size;
	}
	return write(device, &reply, size) == (ssize_t)size;
}

static void send_reply(int device, int *pipe_ends, bool wrong_length)
{
	reply.head.len = sizeof(reply.head) + body_size;
	if (wrong_length)
		reply.head.len = odd();
	tally.replies++;
	if (!send_bytes(device, pipe_ends, one_in(16)))
		tally.refused++;
}

static void send_error(int device, int *pipe_ends, uint64_t unique)
{
	body_size = 0;
	reply.head.unique = unique;
	reply.head.error = -EIO;
	send_reply(device, pipe_ends, false);
}

static void answer(int device, int *pipe_ends, enum lie lie)
{
	bool lost = lie == ERROR || lie == LENGTH || lie == UNIQUE || lie == LONG || lie == SHORT;
	uint64_t unique = request.head.unique;
	uint64_t before = tally.refused;

	tally.told[lie]++;
	tally.tuned_opens += request.head.opcode == TUNED_OPEN;
	if (lie == NOTIFY) {
		notify(device);
		lie = HONEST;
	}
	if ((lie == LATE || lie == NEVER) && withheld_count < COUNT(withheld)) {
		withheld[withheld_count] = request.head;
		withheld[withheld_count++].padding = lie == NEVER;
		return;
	}
	body_size = 0;
	reply.head.unique = unique;
	reply.head.error = 0;
	put_honest(request.head.opcode);
	spoil(lie);
	send_reply(device, pipe_ends, lie == LENGTH);
	if (lie == TWICE)
		send_reply(device, pipe_ends, false);
	/* A refused reply may still be awaited; mostly end that here. */
	if (tally.refused > before && lost && !one_in(16))
		send_error(device, pipe_ends, unique);
}

/* Send a late reply, with the right opcode or not; false if it must never be sent. */
static bool answer_late(int device, int *pipe_ends)
{
	for (unsigned int i = 0; i < withheld_count; i++) {
		struct fuse_in_header head = withheld[i];

		if (head.padding)
			continue;
		withheld[i] = withheld[--withheld_count];
		body_size = 0;
		reply.head.unique = head.unique;
		reply.head.error = one_in(4) ? -ENOENT : 0;
		/* The request has been overwritten: the reply is made from another one. */
		if (!reply.head.error)
			put_honest(head.opcode);
		send_reply(device, pipe_ends, false);
		return true;
	}
	return false;
}

static bool wants_no_reply(uint32_t opcode)
{
	return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT ||
	       opcode == FUSE_NOTIFY_REPLY;
}

/* Reply until tally.replies reaches `budget`, the connection is gone, or requests end. */
void serve(int device, int *pipe_ends, uint64_t budget, uint64_t honest, uint32_t often)
{
	uint64_t end = tally.replies + budget, turns = tally.replies + honest;
	unsigned int quiet = 0;

	withheld_count = 0;
	while (tally.replies < end) {
		ssize_t size = read(device, &request, sizeof(request));
		struct pollfd polled = { device, POLLIN, 0 };
		enum lie lie = HONEST;

		/* It is gone, or needs a larger buffer. */
		if (size < 0 && (errno == ENODEV || errno == EINVAL))
			return;
		if (size < 0 && errno != EAGAIN)
			continue; /* interrupted or too large: it has already ended */
		if (size < 0) {
			if (withheld_count && (poll(&polled, 1, 0) > 0 || answer_late(device, pipe_ends)))
				continue;
			if (withheld_count >= CLIENTS || quiet > 20)
				return;
			quiet += poll(&polled, 1, 2) <= 0;
			continue;
		}
		quiet = 0;
		if (wants_no_reply(request.head.opcode)) {
			if (one_in(10))
				send_error(device, pipe_ends, request.head.unique);
			continue;
		}
		if (tally.replies >= turns && one_in(often))
			lie = 1 + below(LIES - 1);
		if (lie == NEVER && !one_in(8))
			lie = LATE;
		answer(device, pipe_ends, lie);
	}
}
