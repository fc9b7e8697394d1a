// SPDX-License-Identifier: GPL-2.0-only
/*
 * TUNED_OPEN: negotiate it, send it, and check the reply.
 *
 * protocol.h has the wire format and the rules for servers. With the mount option
 * atomic_open, INIT offers TUNED_INIT_OPEN. Some servers return every bit that
 * they are offered, so a server that returns it is asked again, by TUNED_HELLO,
 * before the first TUNED_OPEN. ENOSYS, or an unexpected reply to TUNED_HELLO, ends
 * the use of TUNED_OPEN for the connection; stock requests work throughout.
 */
#include "open_request.h"

#include <linux/slab.h>

/* States of tuned_conn.atomic_open, after those of tuned.h. */
enum { TUNED_ASKING = TUNED_ASK + 1, TUNED_AGREED };

u64 tuned_init_flags(const struct fuse_conn *fc)
{
	return fc->tuned.options.atomic_open ? TUNED_INIT_OPEN : 0;
}

void tuned_negotiate_open(struct fuse_conn *fc)
{
	if (fc->tuned.options.atomic_open && fc->tuned.flags & TUNED_INIT_OPEN)
		WRITE_ONCE(fc->tuned.atomic_open, TUNED_ASK);
}

static int send_hello(struct fuse_mount *fm)
{
	FUSE_ARGS(args);
	const struct tuned_hello in = { .magic = TUNED_MAGIC, .version = TUNED_VERSION };
	struct tuned_hello out = {};
	int err;

	args.opcode = TUNED_HELLO;
	args.nodeid = FUSE_ROOT_ID;
	args.in_numargs = 1;
	args.in_args[0].size = sizeof(in);
	args.in_args[0].value = &in;
	args.out_numargs = 1;
	args.out_args[0].size = sizeof(out);
	args.out_args[0].value = &out;
	err = fuse_simple_request(fm, &args);
	if (err)
		return err;
	return out.magic == in.magic && out.version == in.version ? 0 : -EPROTO;
}

bool tuned_is_agreed(struct fuse_mount *fm)
{
	int *state = &fm->fc->tuned.atomic_open;
	int now;

	now = READ_ONCE(*state);
	if (now != TUNED_ASK)
		return now == TUNED_AGREED;
	if (cmpxchg(state, TUNED_ASK, TUNED_ASKING) != TUNED_ASK)
		return false;
	switch (send_hello(fm)) {
	case 0:
		now = TUNED_AGREED;
		break;
	case -EINTR:
	case -ENOMEM:
		break;
	default:
		now = TUNED_NEVER;
	}
	WRITE_ONCE(*state, now);
	return now == TUNED_AGREED;
}

void tuned_put_file(struct tuned_lookup *lookup, struct fuse_inode *fi, unsigned int flags)
{
	if (lookup->opened)
		fuse_sync_release(fi, lookup->ff, flags & ~(O_CREAT | O_EXCL | O_TRUNC));
	else if (lookup->ff)
		fuse_file_free(lookup->ff);
}

int tuned_send_open(struct fuse_mount *fm, u64 parent, const struct qstr *name,
		    const struct tuned_open_in *in, struct tuned_lookup *lookup)
{
	FUSE_ARGS(args);
	int err = -ENOMEM;

	memset(lookup, 0, sizeof(*lookup));
	lookup->forget = fuse_alloc_forget();
	lookup->ff = fuse_file_alloc(fm, true);
	if (!lookup->forget || !lookup->ff)
		goto out_free;
	lookup->attr_version = fuse_get_attr_version(fm->fc);
	lookup->evicted = evict_count(fm->fc);
	lookup->epoch = dentry_epoch(fm->fc);

	args.opcode = TUNED_OPEN;
	args.nodeid = parent;
	args.in_numargs = 2;
	args.in_args[0].size = sizeof(*in);
	args.in_args[0].value = in;
	args.in_args[1].size = name->len + 1;
	args.in_args[1].value = name->name;
	args.out_numargs = 2;
	args.out_args[0].size = sizeof(lookup->entry);
	args.out_args[0].value = &lookup->entry;
	args.out_args[1].size = sizeof(lookup->open);
	args.out_args[1].value = &lookup->open;
	err = in->flags & O_CREAT ? send_as_create(fm, &args) : fuse_simple_request(fm, &args);
	if (err == -ENOSYS)
		WRITE_ONCE(fm->fc->tuned.atomic_open, TUNED_NEVER);
	if (!err && !lookup->entry.nodeid)
		err = -ENOENT;
	if (err)
		goto out_free;

	lookup->created = lookup->open.open_flags & TUNED_FOPEN_CREATED;
	lookup->opened = !(lookup->open.open_flags & TUNED_FOPEN_LOOKUP);
	lookup->open.open_flags &= ~(TUNED_FOPEN_CREATED | TUNED_FOPEN_LOOKUP);
	lookup->ff->fh = lookup->open.fh;
	lookup->ff->nodeid = lookup->entry.nodeid;
	lookup->ff->open_flags = lookup->open.open_flags;
	tuned_open_flags(lookup->ff);
	keep_backing(lookup->ff, &lookup->open);
	return 0;

out_free:
	kfree(lookup->forget);
	tuned_put_file(lookup, NULL, 0);
	return err;
}

bool tuned_is_invalid(const struct tuned_lookup *lookup, unsigned int flags)
{
	umode_t mode = lookup->entry.attr.mode;

	return invalid_nodeid(lookup->entry.nodeid) ||
	       fuse_invalid_attr((struct fuse_attr *)&lookup->entry.attr) ||
	       (lookup->opened && !S_ISREG(mode)) ||
	       (lookup->created && !(lookup->opened && flags & O_CREAT));
}
