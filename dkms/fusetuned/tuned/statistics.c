// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts of a connection's requests by opcode: on each CPU its own, without a
 * lock, and added up when they are read.
 */
#include "fuse_i.h"
#include "protocol.h"
#ifdef TUNED_CHANNELS
#include "fuse_dev_i.h"
#define conn_of_request(req) ((req)->chan->conn)
#define conn_of_queue(fiq) (container_of(fiq, struct fuse_chan, iq)->conn)
#else
#define conn_of_request(req) ((req)->fm->fc)
#define conn_of_queue(fiq) container_of(fiq, struct fuse_conn, iq)
#endif

#include <linux/bitops.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/percpu.h>
#include <linux/seq_file.h>

/* Slots: the protocol's opcodes by number, with room for some more; ours; then the rest. */
#define OURS 64
#define OTHER (OURS + 2)

/*
 * The protocol's opcodes; which there are grows, what they mean stays. Those
 * that not every series has stand by their numbers.
 */
static const char *const opcodes[] = {
	[FUSE_LOOKUP] = "LOOKUP",
	[FUSE_FORGET] = "FORGET",
	[FUSE_GETATTR] = "GETATTR",
	[FUSE_SETATTR] = "SETATTR",
	[FUSE_READLINK] = "READLINK",
	[FUSE_SYMLINK] = "SYMLINK",
	[FUSE_MKNOD] = "MKNOD",
	[FUSE_MKDIR] = "MKDIR",
	[FUSE_UNLINK] = "UNLINK",
	[FUSE_RMDIR] = "RMDIR",
	[FUSE_RENAME] = "RENAME",
	[FUSE_LINK] = "LINK",
	[FUSE_OPEN] = "OPEN",
	[FUSE_READ] = "READ",
	[FUSE_WRITE] = "WRITE",
	[FUSE_STATFS] = "STATFS",
	[FUSE_RELEASE] = "RELEASE",
	[FUSE_FSYNC] = "FSYNC",
	[FUSE_SETXATTR] = "SETXATTR",
	[FUSE_GETXATTR] = "GETXATTR",
	[FUSE_LISTXATTR] = "LISTXATTR",
	[FUSE_REMOVEXATTR] = "REMOVEXATTR",
	[FUSE_FLUSH] = "FLUSH",
	[FUSE_INIT] = "INIT",
	[FUSE_OPENDIR] = "OPENDIR",
	[FUSE_READDIR] = "READDIR",
	[FUSE_RELEASEDIR] = "RELEASEDIR",
	[FUSE_FSYNCDIR] = "FSYNCDIR",
	[FUSE_GETLK] = "GETLK",
	[FUSE_SETLK] = "SETLK",
	[FUSE_SETLKW] = "SETLKW",
	[FUSE_ACCESS] = "ACCESS",
	[FUSE_CREATE] = "CREATE",
	[FUSE_INTERRUPT] = "INTERRUPT",
	[FUSE_BMAP] = "BMAP",
	[FUSE_DESTROY] = "DESTROY",
	[FUSE_IOCTL] = "IOCTL",
	[FUSE_POLL] = "POLL",
	[FUSE_NOTIFY_REPLY] = "NOTIFY_REPLY",
	[FUSE_BATCH_FORGET] = "BATCH_FORGET",
	[FUSE_FALLOCATE] = "FALLOCATE",
	[FUSE_READDIRPLUS] = "READDIRPLUS",
	[FUSE_RENAME2] = "RENAME2",
	[FUSE_LSEEK] = "LSEEK",
	[FUSE_COPY_FILE_RANGE] = "COPY_FILE_RANGE",
	[FUSE_SETUPMAPPING] = "SETUPMAPPING",
	[FUSE_REMOVEMAPPING] = "REMOVEMAPPING",
	[FUSE_SYNCFS] = "SYNCFS",
	[51] = "TMPFILE",
	[52] = "STATX",
	[53] = "COPY_FILE_RANGE_64",
	[OURS] = "TUNED_HELLO",
	[OURS + 1] = "TUNED_OPEN",
};

static_assert(ARRAY_SIZE(opcodes) == OTHER);

/* Powers of two of a microsecond: below 1, below 2, below 4 ...; the last has the rest. */
#define BUCKETS 24

/*
 * What has a reply counts in its bucket alone, so that count and histogram
 * agree whenever they are read; a CPU's own count is of what has none.
 */
struct tuned_counters {
	u64 count;
	u64 errors;
	u64 sent;
	u64 received;
	u64 time;
	u64 latency[BUCKETS];
};

struct tuned_statistics {
	struct tuned_counters slots[OTHER + 1];
};

/* Without the memory there are no statistics, but there is a mount. */
void tuned_statistics_alloc(struct fuse_conn *fc)
{
	fc->tuned.statistics = alloc_percpu_gfp(struct tuned_statistics, GFP_KERNEL_ACCOUNT);
}

void tuned_statistics_free(struct fuse_conn *fc)
{
	free_percpu(fc->tuned.statistics);
}

static struct tuned_counters __percpu *counters(struct fuse_conn *fc, u32 opcode)
{
	unsigned int slot = opcode;

	if (opcode == TUNED_HELLO || opcode == TUNED_OPEN)
		slot = OURS + opcode - TUNED_HELLO;
	else if (opcode >= OURS)
		slot = OTHER;
	return fc->tuned.statistics->slots + slot;
}

void tuned_request_begin(struct fuse_req *req)
{
	req->tuned_begin = ktime_get_ns();
}

/*
 * The caller may be gone already, and the arguments with him: only what is in
 * the request itself can be looked at.
 */
void tuned_request_end(struct fuse_req *req)
{
	struct fuse_conn *fc = conn_of_request(req);
	struct tuned_counters __percpu *to;
	u64 time;

	/* Never in the queue, for the connection had ended: some series come here, some do not. */
	if (!req->in.h.unique || !fc->tuned.statistics)
		return;
	to = counters(fc, req->in.h.opcode);
	time = ktime_get_ns() - req->tuned_begin;
	this_cpu_inc(to->latency[min(fls64(div_u64(time, NSEC_PER_USEC)), BUCKETS - 1)]);
	this_cpu_add(to->sent, req->in.h.len - sizeof(req->in.h));
	if (req->out.h.error)
		this_cpu_inc(to->errors);
	else if (req->out.h.len > sizeof(req->out.h))
		this_cpu_add(to->received, req->out.h.len - sizeof(req->out.h));
	this_cpu_add(to->time, time);
}

void tuned_uring_reply(struct fuse_req *req, u32 size)
{
	req->out.h.len = sizeof(req->out.h) + size;
}

void tuned_one_way(struct fuse_iqueue *fiq, const struct fuse_in_header *header)
{
	struct fuse_conn *fc = conn_of_queue(fiq);
	struct tuned_counters __percpu *to;

	if (!fc->tuned.statistics)
		return;
	to = counters(fc, header->opcode);
	this_cpu_inc(to->count);
	this_cpu_add(to->sent, header->len - sizeof(*header));
}

/* Requests that end meanwhile may be in a part of the numbers. */
static struct tuned_counters sum(struct fuse_conn *fc, unsigned int slot)
{
	struct tuned_counters all = {};
	unsigned int bucket;
	int cpu;

	for_each_possible_cpu(cpu) {
		const struct tuned_counters *one =
			per_cpu_ptr(fc->tuned.statistics, cpu)->slots + slot;

		all.count += READ_ONCE(one->count);
		all.errors += READ_ONCE(one->errors);
		all.sent += READ_ONCE(one->sent);
		all.received += READ_ONCE(one->received);
		all.time += READ_ONCE(one->time);
		for (bucket = 0; bucket < BUCKETS; bucket++) {
			u64 ended = READ_ONCE(one->latency[bucket]);

			all.latency[bucket] += ended;
			all.count += ended;
		}
	}
	return all;
}

static void show(struct seq_file *m, unsigned int slot, const struct tuned_counters *all)
{
	unsigned int bucket;

	if (slot == OTHER)
		seq_puts(m, "OTHER");
	else if (opcodes[slot])
		seq_puts(m, opcodes[slot]);
	else
		seq_printf(m, "%u", slot);
	seq_printf(m, " count %llu errors %llu sent_bytes %llu received_bytes %llu time_ns %llu",
		   all->count, all->errors, all->sent, all->received, all->time);
	seq_puts(m, " latency_us");
	for (bucket = 0; bucket < BUCKETS; bucket++)
		seq_printf(m, " %llu", all->latency[bucket]);
	seq_putc(m, '\n');
}

int tuned_show_statistics(struct seq_file *m, struct fuse_conn *fc)
{
	unsigned int slot;

	if (!fc->tuned.statistics)
		return -ENOMEM;
	for (slot = 0; slot <= OTHER; slot++) {
		struct tuned_counters all = sum(fc, slot);

		if (all.count)
			show(m, slot, &all);
	}
	return 0;
}
