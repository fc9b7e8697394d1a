// SPDX-License-Identifier: GPL-2.0-only
/*
 * Count a connection's requests by opcode.
 *
 * Stock: fusectl shows how many requests wait, but not how many were sent, how long
 * they took, or which failed.
 *
 * Here: counting begins when connections/N/statistics is first read. The first
 * read is empty; later ones have a line for each opcode that occurred:
 *
 *	count		requests that ended; for those without a reply (FORGET,
 *			BATCH_FORGET, INTERRUPT), requests that the server read
 *	errors		requests that ended with an error from the server or an abort
 *	sent_bytes	bytes after the header of requests
 *	received_bytes	bytes after the header of replies without an error
 *	time_ns		sum of the times from making a request to its end, with the
 *			wait for a background slot
 *	latency_us	BUCKETS counts of these times: below 1 us, below 2, below 4,
 *			..., and the rest; they add up to count of requests with reply
 *
 * A request that was cancelled before the server read it, or made after the
 * connection had ended, is not counted.
 *
 * Why it is safe: each CPU has its own counters, without a lock; a reader adds them
 * up. A read may see only part of a request that ends at the same time, but count
 * and latency_us always agree. The counters for a CPU and an opcode are allocated
 * at the first such request, without sleeping, because the task that ends a request
 * may be the one that reclaims memory. If the allocation fails, the request is not
 * counted. The counters stay until the connection is freed.
 *
 * Memory: none before the first read; then 8 bytes for each possible CPU, and for
 * each CPU that has ended requests 1 KiB, and 256 bytes for each opcode. The first
 * is charged to the reader's memory cgroup, the rest to that of the task that ends
 * the request, usually the server.
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

/* Slots: the protocol's opcodes by number, with room for new ones; ours; then the rest. */
#define OURS 64
#define OTHER (OURS + 2)

/*
 * Names of the opcodes. New opcodes are added; the meaning of a number never
 * changes. Opcodes that not every series defines are given by number.
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

/* Below 1 us, below 2, below 4, ...; the last has the rest. */
#define BUCKETS 24

/*
 * A request with a reply is counted in its bucket only, so that count and the
 * histogram always agree; `count` counts requests without a reply.
 * Atomic, because a task may move to another CPU while it counts.
 */
struct tuned_counters {
	atomic64_t count;
	atomic64_t errors;
	atomic64_t sent;
	atomic64_t received;
	atomic64_t time;
	atomic64_t latency[BUCKETS];
};

/* Each slot is allocated when it is first needed. */
struct tuned_cpu {
	struct tuned_counters *slots[OTHER + 1];
};

struct tuned_statistics {
	unsigned int possible;	/* CPUs */
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
 * Returns what `place` points to; allocates it, zeroed, if that is NULL. Returns
 * NULL without memory: the task that ends a request may be reclaiming memory, so
 * this must not sleep.
 */
static void *get_or_alloc(void **place, size_t size)
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

/* This CPU's counters for an opcode, or NULL if nothing is counted. */
static struct tuned_counters *counters(struct fuse_conn *fc, u32 opcode)
{
	/* Pairs with begin(). */
	struct tuned_statistics *statistics = smp_load_acquire(&fc->tuned.statistics);
	struct tuned_cpu *cpu;

	if (!statistics)
		return NULL;
	cpu = get_or_alloc((void **)&statistics->cpus[raw_smp_processor_id()], sizeof(*cpu));
	if (!cpu)
		return NULL;
	return get_or_alloc((void **)&cpu->slots[slot_of(opcode)], sizeof(struct tuned_counters));
}

void tuned_request_begin(struct fuse_req *req)
{
	req->tuned_begin = ktime_get_ns();
}

/*
 * Reads only the request itself: the caller may have returned already, and the
 * arguments were on its stack.
 */
void tuned_request_end(struct fuse_req *req)
{
	struct tuned_counters *to;
	u64 time;

	/* Never queued, because the connection had ended. Not all series call this then. */
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

/* The sum over all CPUs. */
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

/* A request that ends at the same time may be included in part. */
static struct sum sum(const struct tuned_statistics *statistics, unsigned int slot)
{
	struct sum all = {};
	unsigned int cpu;

	for (cpu = 0; cpu < statistics->possible; cpu++) {
		/* Pairs with get_or_alloc(). */
		const struct tuned_cpu *on = smp_load_acquire(&statistics->cpus[cpu]);
		/* Pairs with get_or_alloc(), too. */
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
