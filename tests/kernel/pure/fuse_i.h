/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The parts of a kernel that the module's pure parts need, for a user-space program. Locks know
 * whether they are held, allocations fail if `failing` is set, and tests set time and processor.
 */
#ifndef PURE_FUSE_I_H
#define PURE_FUSE_I_H

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <linux/types.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef unsigned short umode_t;

#define __init
#define __percpu
#define __user
#define fallthrough __attribute__((fallthrough))
#define READ_ONCE(at) (at)
#define WRITE_ONCE(at, value) ((at) = (value))
#define smp_load_acquire(at) (*(at))
#define smp_store_release(at, value) (*(at) = (value))
#define cmpxchg(at, old, new)				\
({							\
	typeof(*(at)) __was = *(at);			\
							\
	if (__was == (old))				\
		*(at) = (new);				\
	__was;						\
})
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define min_t(type, a, b) min((type)(a), (type)(b))
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define container_of(at, type, member) ((type *)((char *)(at) - offsetof(type, member)))
#define PAGE_SHIFT 12
#define U16_MAX UINT16_MAX
#define NSEC_PER_USEC 1000

/* Lists. */
struct list_head {
	struct list_head *next, *prev;
};

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list->prev = list;
}

static inline void list_add(struct list_head *new, struct list_head *list)
{
	*new = (struct list_head) { list->next, list };
	list->next->prev = new;
	list->next = new;
}

static inline void list_del(struct list_head *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	*entry = (struct list_head) {};
}

#define list_for_each_entry(at, list, member)						\
	for (at = container_of((list)->next, typeof(*at), member); &at->member != (list);	\
	     at = container_of(at->member.next, typeof(*at), member))

/* Locks. */
typedef struct {
	bool held;
} spinlock_t;

struct mutex {
	bool held;
};

#define take(lock) (assert(!(lock)->held), (lock)->held = true)
#define drop(lock) (assert((lock)->held), (lock)->held = false)
#define spin_lock(lock) take(lock)
#define spin_unlock(lock) drop(lock)
#define mutex_lock(lock) take(lock)
#define mutex_unlock(lock) drop(lock)
#define mutex_init(lock) ((lock)->held = false)
#define lockdep_assert_held(lock) assert((lock)->held)

/* Memory. */
extern bool (*failing)(void);
#define GFP_KERNEL_ACCOUNT 0
#define GFP_NOWAIT 0
#define __GFP_ACCOUNT 0
#define __GFP_NOWARN 0
#define kzalloc(size, flags) ((void)(flags), failing && failing() ? NULL : calloc(1, size))
#define kfree(at) free(at)
#define struct_size(at, member, count) (sizeof(*(at)) + sizeof(*(at)->member) * (count))

/* Atomic counters. */
typedef struct {
	int64_t value;
} atomic64_t;

#define atomic64_inc(at) ((at)->value++)
#define atomic64_add(more, at) ((at)->value += (more))
#define atomic64_read(at) ((at)->value)

/* Time and place. */
extern u64 now_ns;
extern unsigned int processor, nr_cpu_ids;
#define ktime_get_ns() now_ns
#define raw_smp_processor_id() processor
#define div_u64(value, by) ((value) / (by))
#define fls64(value) ((value) ? 64 - __builtin_clzll(value) : 0)

/* The contents of a file of the kernel. */
struct seq_file {
	char text[1 << 16];
	size_t length;
};

static inline void seq_printf(struct seq_file *m, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	m->length += vsnprintf(m->text + m->length, sizeof(m->text) - m->length, format, args);
	va_end(args);
}

#define seq_puts(m, text) seq_printf(m, "%s", text)
#define seq_putc(m, character) seq_printf(m, "%c", character)

struct dentry;
struct file;
struct inode;
struct iov_iter;
struct kiocb;

ssize_t generic_write_checks(struct kiocb *iocb, struct iov_iter *from);

#include "tuned.h"

/* Files and writes. */
struct fuse_iqueue {
	int unused;
};

struct fuse_conn {
	struct tuned_conn tuned;
	struct fuse_iqueue iq;
	unsigned int max_pages, max_pages_limit;
};

struct fuse_mount {
	struct fuse_conn *fc;
};

struct fuse_file {
	struct fuse_mount *fm;
	u32 open_flags;
};

struct fuse_req {
	struct {
		struct fuse_in_header h;
	} in;
	struct {
		struct fuse_out_header h;
	} out;
	struct fuse_mount *fm;
	u64 tuned_begin;
};

struct inode {
	loff_t i_size;
	bool locked;
	struct fuse_conn *fc;
};

struct fuse_inode {
	struct inode inode;
	spinlock_t lock;
	struct tuned_inode tuned;
};

struct file {
	struct inode *f_inode;
};

struct kiocb {
	struct file *ki_filp;
	loff_t ki_pos;
	int ki_flags;
};

struct iov_iter {
	size_t count;
};

#define IOCB_APPEND 2
#define file_inode(file) ((file)->f_inode)
#define get_fuse_inode(at) container_of(at, struct fuse_inode, inode)
#define get_fuse_conn(inode) ((inode)->fc)
#define i_size_read(inode) ((inode)->i_size)
#define inode_lock(inode) (assert(!(inode)->locked), (inode)->locked = true)
#define inode_unlock(inode) (assert((inode)->locked), (inode)->locked = false)

/* A reproducible draw below a limit. */
static inline u64 draw(u64 limit)
{
	static u64 state = 88172645463325252ULL;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % limit;
}

#endif
