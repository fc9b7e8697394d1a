// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts of a connection's requests by opcode, from when they are first read: on
 * each CPU its own, without a lock, and added up when they are read.
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

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/overflow.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/smp.h>

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
 * agree whenever they are read; a CPU's own count is of what has none. Atomic,
 * for who counts may be moved to another CPU meanwhile.
 */
struct tuned_counters {
	atomic64_t count;
	atomic64_t errors;
	atomic64_t sent;
	atomic64_t received;
	atomic64_t time;
	atomic64_t latency[BUCKETS];
};

/* Each made when it is first needed. */
struct tuned_cpu {
	struct tuned_counters *slots[OTHER + 1];
};

struct tuned_statistics {
	/* CPUs that there may be. */
	unsigned int possible;
	struct tuned_cpu *cpus[];
};

void tuned_statistics_free(struct fuse_conn *fc)
{
	struct tuned_statistics *statistics = fc->tuned.statistics;
	unsigned int cpu, slot;

	for (cpu = 0; statistics && cpu < statistics->possible; cpu++) {
		struct tuned_cpu *one = statistics->cpus[cpu];

		for (slot = 0; one && slot <= OTHER; slot++)
			kfree(one->slots[slot]);
		kfree(one);
	}
	kfree(statistics);
}

/*
 * What is at a place, made now if nothing is. Null without memory: who ends a
 * request may be who frees memory, so it does not wait for any.
 */
static void *made(void **place, size_t size)
{
	/* Pairs with cmpxchg() below. */
	void *there = smp_load_acquire(place);
	void *new;

	if (there)
		return there;
	new = kzalloc(size, GFP_NOWAIT | __GFP_ACCOUNT | __GFP_NOWARN);
	if (!new)
		return NULL;
	there = cmpxchg(place, NULL, new);
	if (!there)
		return new;
	kfree(new);
	return there;
}

static unsigned int slot_of(u32 opcode)
{
	if (opcode == TUNED_HELLO || opcode == TUNED_OPEN)
		return OURS + opcode - TUNED_HELLO;
	return opcode < OURS ? opcode : OTHER;
}

/* This CPU's of an opcode, or null where nothing is counted. */
static struct tuned_counters *counters(struct fuse_conn *fc, u32 opcode)
{
	/* Pairs with begin(). */
	struct tuned_statistics *statistics = smp_load_acquire(&fc->tuned.statistics);
	struct tuned_cpu *cpu;

	if (!statistics)
		return NULL;
	cpu = made((void **)&statistics->cpus[raw_smp_processor_id()], sizeof(*cpu));
	if (!cpu)
		return NULL;
	return made((void **)&cpu->slots[slot_of(opcode)], sizeof(struct tuned_counters));
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
	struct tuned_counters *to;
	u64 time;

	/* Never in the queue, for the connection had ended: some series come here, some do not. */
	if (!req->in.h.unique)
		return;
	to = counters(conn_of_request(req), req->in.h.opcode);
	if (!to)
		return;
	time = ktime_get_ns() - req->tuned_begin;
	atomic64_inc(to->latency + min(fls64(div_u64(time, NSEC_PER_USEC)), BUCKETS - 1));
	atomic64_add(req->in.h.len - sizeof(req->in.h), &to->sent);
	if (req->out.h.error)
		atomic64_inc(&to->errors);
	else if (req->out.h.len > sizeof(req->out.h))
		atomic64_add(req->out.h.len - sizeof(req->out.h), &to->received);
	atomic64_add(time, &to->time);
}

void tuned_uring_reply(struct fuse_req *req, u32 size)
{
	req->out.h.len = sizeof(req->out.h) + size;
}

void tuned_one_way(struct fuse_iqueue *fiq, const struct fuse_in_header *header)
{
	struct tuned_counters *to = counters(conn_of_queue(fiq), header->opcode);

	if (!to)
		return;
	atomic64_inc(&to->count);
	atomic64_add(header->len - sizeof(*header), &to->sent);
}

/* Of all CPUs. */
struct sum {
	u64 count;
	u64 errors;
	u64 sent;
	u64 received;
	u64 time;
	u64 latency[BUCKETS];
};

static void add(struct sum *all, const struct tuned_counters *one)
{
	unsigned int bucket;

	all->count += atomic64_read(&one->count);
	all->errors += atomic64_read(&one->errors);
	all->sent += atomic64_read(&one->sent);
	all->received += atomic64_read(&one->received);
	all->time += atomic64_read(&one->time);
	for (bucket = 0; bucket < BUCKETS; bucket++) {
		u64 ended = atomic64_read(one->latency + bucket);

		all->latency[bucket] += ended;
		all->count += ended;
	}
}

/* Requests that end meanwhile may be in a part of the numbers. */
static struct sum sum(const struct tuned_statistics *statistics, unsigned int slot)
{
	struct sum all = {};
	unsigned int cpu;

	for (cpu = 0; cpu < statistics->possible; cpu++) {
		/* Pairs with made(). */
		const struct tuned_cpu *on = smp_load_acquire(&statistics->cpus[cpu]);
		/* And so does this. */
		const struct tuned_counters *one = on ? smp_load_acquire(&on->slots[slot]) : NULL;

		if (one)
			add(&all, one);
	}
	return all;
}

static void show(struct seq_file *m, unsigned int slot, const struct sum *all)
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

static int begin(struct fuse_conn *fc)
{
	struct tuned_statistics *new;

	new = kzalloc(struct_size(new, cpus, nr_cpu_ids), GFP_KERNEL_ACCOUNT);
	if (!new)
		return -ENOMEM;
	new->possible = nr_cpu_ids;
	/* Another reader may have been first. */
	if (cmpxchg(&fc->tuned.statistics, NULL, new))
		kfree(new);
	return 0;
}

int tuned_show_statistics(struct seq_file *m, struct fuse_conn *fc)
{
	/* Pairs with begin(). */
	const struct tuned_statistics *statistics = smp_load_acquire(&fc->tuned.statistics);
	unsigned int slot;

	if (!statistics)
		return begin(fc);
	for (slot = 0; slot <= OTHER; slot++) {
		struct sum all = sum(statistics, slot);

		if (all.count)
			show(m, slot, &all);
	}
	return 0;
}
