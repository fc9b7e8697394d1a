// SPDX-License-Identifier: GPL-2.0-or-later
/* Turn a correct reply into a wrong one; and send notifications, right and wrong. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "hostile.h"

/*
 * Sent by a separate thread: for a notification the kernel takes locks that a client holds until
 * its request is answered.
 */
static struct reply notification;
static int notified_device;
sem_t notification_ready, notification_sent;

static void resize(size_t size)
{
	if (size > BODY)
		size = BODY;
	if (size > body_size)
		memset(reply.body + body_size, below(256), size - body_size);
	body_size = size;
}

/* Make the reply wrong; the caller handles lies that do not change its bytes. */
void spoil(enum lie lie)
{
	static const uint32_t shapes[] = {
		FUSE_INIT, FUSE_LOOKUP, FUSE_CREATE, TUNED_OPEN, TUNED_HELLO, FUSE_GETATTR, FUSE_STATX,
		FUSE_OPEN, FUSE_STATFS, FUSE_GETLK, FUSE_WRITE, FUSE_FLUSH, FUSE_READLINK,
	};
	uint64_t value = odd();

	switch (lie) {
	case ERROR:
		reply.head.error = one_in(3) ? (int32_t)value : -(int32_t)below(540);
		if (!one_in(8))
			body_size = 0;
		break;
	case SHORT:
		resize(body_size ? below(body_size) : 0);
		break;
	case LONG:
		resize(body_size + 1 + below(one_in(4) ? BODY : 64));
		break;
	case SHAPE:
		body_size = 0;
		put_honest(shapes[below(COUNT(shapes))]);
		break;
	case FIELD:
		for (uint32_t fields = 1 + below(3); fields && body_size >= 4; fields--, value = odd()) {
			size_t wide = one_in(2) && body_size >= 8 ? 8 : 4;

			memcpy(reply.body + below(body_size / wide) * wide, &value, wide);
		}
		break;
	case NOISE:
		for (size_t at = 0; at < body_size && at < 1024; at++)
			reply.body[at] = draw() >> 56;
		break;
	case UNIQUE:
		reply.head.unique = one_in(2) ? reply.head.unique | 1 : value;
		break;
	default:
		break;
	}
}

void notify(int device)
{
	static const char names[] = "delpabc";
	uint32_t code = 1 + below(one_in(8) ? 30 : 9);

	if (sem_trywait(&notification_sent))
		return; /* one is still in flight */
	body_size = 0;
	switch (code) {
	case FUSE_NOTIFY_POLL:
		put(sizeof(struct fuse_notify_poll_wakeup_out));
		break;
	case FUSE_NOTIFY_INVAL_INODE: {
		struct fuse_notify_inval_inode_out *out = put(sizeof(*out));

		*out = (struct fuse_notify_inval_inode_out){ 8 + below(8), below(9000), below(9000) };
		break;
	}
	case FUSE_NOTIFY_INVAL_ENTRY: {
		struct fuse_notify_inval_entry_out *out = put(sizeof(*out));

		out->parent = 1;
		out->namelen = 1;
		out->flags = below(2);
		*(char *)put(2) = names[below(7)];
		break;
	}
	case FUSE_NOTIFY_STORE: {
		struct fuse_notify_store_out *out = put(sizeof(*out));

		out->nodeid = 8 + below(8);
		out->offset = below(9000);
		out->size = below(9000);
		put(out->size);
		break;
	}
	case FUSE_NOTIFY_RETRIEVE: {
		struct fuse_notify_retrieve_out *out = put(sizeof(*out));

		out->notify_unique = below(1000);
		out->nodeid = 8 + below(8);
		out->offset = below(9000);
		out->size = one_in(4) ? odd() : below(90000);
		break;
	}
	case FUSE_NOTIFY_DELETE: {
		struct fuse_notify_delete_out *out = put(sizeof(*out));

		out->parent = 1;
		out->child = 8 + below(8);
		out->namelen = 1;
		*(char *)put(2) = names[below(7)];
		break;
	}
	default:
		put(below(64));
	}
	if (one_in(2))
		spoil(SHORT + below(NOISE - SHORT + 1));
	reply.head = (struct fuse_out_header){ sizeof(reply.head) + body_size, (int32_t)code, 0 };
	memcpy(&notification, &reply, reply.head.len);
	notified_device = device;
	sem_post(&notification_ready);
}

void *send_notifications(void *unused)
{
	for (;;) {
		while (sem_wait(&notification_ready))
			;
		(void)!write(notified_device, &notification, notification.head.len);
		sem_post(&notification_sent);
	}
	return unused;
}
