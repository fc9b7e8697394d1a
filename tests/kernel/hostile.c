// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A FUSE server that lies, and clients that use its mounts.
 *
 *   hostile TYPE POINT SEED REPLIES [unmapped]
 *
 * Mounts the file system TYPE (fuse or fusetuned) at POINT, again and again, until its server has
 * sent REPLIES replies. Each mount has a seed of its own, made from SEED and the mount's number. Up
 * to a point that the seed chooses, the server follows the protocol; from there on, its replies are
 * wrong in one of the ways of `enum lie`, as often as the seed says. Four processes use the mount
 * meanwhile. At the end a line of JSON says what was done; what the kernel complained of is printed
 * with the number of the mount in which it did.
 *
 * With `unmapped`, they map no file: of a page that is mapped while a write to it fails, also the
 * kernel's own FUSE makes it warn (__folio_mark_dirty), now and then.
 *
 * As the first process of a kernel, it also mounts what it needs, loads the module that the fifth
 * argument names, unloads it afterwards, and ends the machine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "protocol.h"

#define CLIENTS 4
#define FILES 6
/* Bytes; of a request the most that the kernel may send, of a reply the most that is made here. */
#define REQUEST (1100 << 10)
#define BODY (160 << 10)
/* FS_IOC_GETFLAGS; its header and sys/mount.h do not go together everywhere. */
#define GET_FLAGS _IOR('f', 1, long)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum lie {
	HONEST, ERROR, SHORT, LONG, LENGTH, SHAPE, FIELD, NOISE, UNIQUE, TWICE, LATE, NEVER, NOTIFY, LIES
};

static const char *const lies[LIES] = {
	"honest", "error", "short", "long", "length", "shape", "field", "noise", "unique", "twice",
	"late", "never", "notify",
};

/* What all processes see. */
static struct stage {
	_Atomic uint32_t mount; /* 0: there is none */
	_Atomic bool unmount;
	_Atomic uint64_t calls;
} *stage;

static const char *type, *point;
static bool unmapped;
static uint64_t base_seed, state;

static uint64_t draw(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dULL;
}

static uint32_t below(uint32_t limit)
{
	return (draw() >> 32) % limit;
}

static bool one_in(uint32_t many)
{
	return !below(many);
}

static void seed(uint32_t mount, uint32_t process)
{
	state = (base_seed << 40 ^ (uint64_t)mount << 8 ^ process) * 0x9e3779b97f4a7c15ULL | 1;
	draw();
	draw();
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Near the limits of what is meant as a size, a number, a place or a flag. */
static uint64_t odd(void)
{
	static const uint64_t odds[] = {
		0, 1, 2, 3, 7, 8, 31, 32, 255, 256, 4095, 4096, 4097, 65535, 65536, 1 << 20,
		INT32_MAX, 1ULL << 31, UINT32_MAX, 1ULL << 32, INT64_MAX - 4095, INT64_MAX, 1ULL << 63,
		UINT64_MAX - 4095, UINT64_MAX, TUNED_FOPEN_LOOKUP, TUNED_FOPEN_CREATED,
		TUNED_INIT_OPEN, TUNED_INIT_OPEN >> 32, S_IFDIR | 0755, S_IFREG | 0644, S_IFLNK | 0777,
		S_IFCHR | 0600,
	};

	return one_in(4) ? draw() : odds[below(COUNT(odds))];
}

/* ---- the server ---- */

struct request {
	struct fuse_in_header head;
	uint8_t body[REQUEST];
};

struct reply {
	struct fuse_out_header head;
	uint8_t body[BODY];
};

static struct request request;
static struct reply reply;
/*
 * What a thread of its own sends: the kernel takes locks for a notification that a client holds
 * until its request is answered.
 */
static struct reply notification;
static int notified_device;
static sem_t notification_ready, notification_sent;
static size_t body_size;
static struct fuse_in_header withheld[256];
static unsigned int withheld_count;
static uint64_t replies, refused, tuned_opens, mounts, mounts_refused, deaths, told[LIES];

static void *put(size_t size)
{
	void *at = reply.body + body_size;

	memset(at, 0, size);
	body_size += size;
	return at;
}

static mode_t mode_of(uint64_t node)
{
	static const mode_t modes[8] = {
		S_IFREG | 0644, S_IFDIR | 0777, S_IFDIR | 0755, S_IFLNK | 0777, S_IFIFO | 0666,
		S_IFREG | 0666, S_IFREG | 0755, S_IFREG | 0600,
	};

	return modes[node & 7];
}

static uint64_t node_of(const char *name)
{
	static const char names[] = "0delpabc";
	const char *at = strchr(names, *name);

	return at && *at ? 8 + (uint64_t)(at - names) : 13;
}

static void put_attr(struct fuse_attr *attr, uint64_t node)
{
	attr->ino = node;
	attr->mode = node == FUSE_ROOT_ID ? S_IFDIR | 0777 : mode_of(node);
	attr->nlink = 1;
	attr->size = S_ISREG(attr->mode) ? below(4) * 5000 : 0;
	attr->blksize = 4096;
	attr->mtime = below(3);
}

static void put_entry(uint64_t node)
{
	struct fuse_entry_out *entry = put(sizeof(*entry));

	entry->nodeid = one_in(30) ? 8 + below(64) : node;
	entry->generation = one_in(50);
	entry->entry_valid = one_in(6) ? 3600 : 0;
	entry->attr_valid = one_in(6) ? 3600 : 0;
	put_attr(&entry->attr, entry->nodeid);
}

static void put_open(void)
{
	static const uint32_t flags[] = {
		0, 0, 0, FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_NONSEEKABLE, FOPEN_CACHE_DIR,
		FOPEN_STREAM, FOPEN_NOFLUSH, FOPEN_PARALLEL_DIRECT_WRITES | FOPEN_DIRECT_IO,
	};
	struct fuse_open_out *open = put(sizeof(*open));

	open->fh = below(1000);
	open->open_flags = flags[below(COUNT(flags))];
}

static void put_names(bool plus, uint32_t size)
{
	static const char names[] = "delpabc";
	uint32_t count = below(COUNT(names));

	for (uint32_t i = 0; i < count && body_size + 256 < size; i++) {
		struct fuse_dirent *entry;

		if (plus)
			put_entry(node_of(names + i));
		entry = put(FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + 1));
		entry->ino = node_of(names + i);
		entry->off = i + 1;
		entry->namelen = 1;
		entry->type = mode_of(entry->ino) >> 12;
		entry->name[0] = names[i];
	}
}

static void put_init(void)
{
	const struct fuse_init_in *in = (const void *)request.body;
	struct fuse_init_out *init = put(sizeof(*init));
	uint64_t flags = in->flags | (uint64_t)in->flags2 << 32;

	init->major = FUSE_KERNEL_VERSION;
	init->minor = in->minor;
	init->max_readahead = 4096 << below(6);
	init->max_background = below(20);
	init->congestion_threshold = below(20);
	init->max_write = 4096 << below(9);
	init->time_gran = 1;
	init->max_pages = 1 << below(9);
	init->max_stack_depth = below(3);
	/* What it offers, but for what a mount without an image has no use for. */
	flags &= draw() | TUNED_INIT_OPEN | FUSE_INIT_EXT | FUSE_MAX_PAGES;
	flags &= ~(uint64_t)(FUSE_SECURITY_CTX | FUSE_MAP_ALIGNMENT);
	init->flags = flags;
	init->flags2 = flags >> 32;
}

static void put_bytes(uint32_t most)
{
	uint32_t size = below(most < BODY / 2 ? most + 1 : BODY / 2);

	memset(put(size), 'a' + below(26), size);
}

/* A reply as the protocol has it. */
static void put_honest(uint32_t opcode)
{
	const void *in = request.body;
	uint64_t node = request.head.nodeid;

	request.body[sizeof(request.body) - 1] = 0;
	switch (opcode) {
	case FUSE_INIT:
		put_init();
		break;
	case FUSE_LOOKUP:
		put_entry(node_of(in));
		break;
	case FUSE_MKDIR:
		put_entry(9);
		break;
	case FUSE_SYMLINK:
		put_entry(11);
		break;
	case FUSE_MKNOD:
		put_entry(12 + below(4));
		break;
	case FUSE_LINK:
		put_entry(13);
		break;
	case FUSE_CREATE:
	case FUSE_TMPFILE:
	case TUNED_OPEN:
		put_entry(13 + below(3));
		put_open();
		if (opcode == TUNED_OPEN && one_in(3))
			((struct fuse_open_out *)(reply.body + sizeof(struct fuse_entry_out)))
				->open_flags |= one_in(2) ? TUNED_FOPEN_LOOKUP : TUNED_FOPEN_CREATED;
		break;
	case TUNED_HELLO: {
		struct tuned_hello *hello = put(sizeof(*hello));

		*hello = (struct tuned_hello){ TUNED_MAGIC, TUNED_VERSION };
		break;
	}
	case FUSE_GETATTR:
	case FUSE_SETATTR: {
		struct fuse_attr_out *attr = put(sizeof(*attr));

		attr->attr_valid = one_in(6) ? 3600 : 0;
		put_attr(&attr->attr, node);
		break;
	}
	case FUSE_STATX: {
		struct fuse_statx_out *statx = put(sizeof(*statx));

		statx->stat.mask = STATX_BASIC_STATS | STATX_BTIME;
		statx->stat.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0777 : mode_of(node);
		statx->stat.ino = node;
		break;
	}
	case FUSE_READLINK:
		put_bytes(100);
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		put_open();
		break;
	case FUSE_READ: {
		uint32_t size = ((const struct fuse_read_in *)in)->size;

		put_bytes(one_in(8) || size < 8192 ? size : 8192);
		break;
	}
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		if (((const struct fuse_read_in *)in)->offset < 100)
			put_names(opcode == FUSE_READDIRPLUS, ((const struct fuse_read_in *)in)->size);
		break;
	case FUSE_WRITE: {
		struct fuse_write_out *out = put(sizeof(*out));

		out->size = ((const struct fuse_write_in *)in)->size;
		if (one_in(5))
			out->size = below(out->size + 1);
		break;
	}
	case FUSE_COPY_FILE_RANGE: {
		struct fuse_write_out *out = put(sizeof(*out));

		out->size = below(((const struct fuse_copy_file_range_in *)in)->len + 1);
		break;
	}
	case FUSE_STATFS:
		((struct fuse_statfs_out *)put(sizeof(struct fuse_statfs_out)))->st.bsize = 4096;
		break;
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR: {
		uint32_t size = ((const struct fuse_getxattr_in *)in)->size;

		if (size)
			put_bytes(size < 200 ? size : 200);
		else
			((struct fuse_getxattr_out *)put(sizeof(struct fuse_getxattr_out)))->size =
				below(300);
		break;
	}
	case FUSE_GETLK:
		((struct fuse_lk_out *)put(sizeof(struct fuse_lk_out)))->lk.type = below(3);
		break;
	case FUSE_BMAP:
		((struct fuse_bmap_out *)put(sizeof(struct fuse_bmap_out)))->block = below(1000);
		break;
	case FUSE_IOCTL:
		put(sizeof(struct fuse_ioctl_out));
		break;
	case FUSE_POLL:
		((struct fuse_poll_out *)put(sizeof(struct fuse_poll_out)))->revents = below(64);
		break;
	case FUSE_LSEEK:
		((struct fuse_lseek_out *)put(sizeof(struct fuse_lseek_out)))->offset = below(9000);
		break;
	default:
		break; /* the header is the whole reply */
	}
}

static void resize(size_t size)
{
	if (size > BODY)
		size = BODY;
	if (size > body_size)
		memset(reply.body + body_size, below(256), size - body_size);
	body_size = size;
}

/* Make something else of the reply; what is not done with its bytes is left to the caller. */
static void spoil(enum lie lie)
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

/* Send what is there; whether the kernel took it. */
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
	replies++;
	if (!send_bytes(device, pipe_ends, one_in(16)))
		refused++;
}

static void send_error(int device, int *pipe_ends, uint64_t unique)
{
	body_size = 0;
	reply.head.unique = unique;
	reply.head.error = -EIO;
	send_reply(device, pipe_ends, false);
}

static void notify(int device)
{
	static const char names[] = "delpabc";
	uint32_t code = 1 + below(one_in(8) ? 30 : 9);

	if (sem_trywait(&notification_sent))
		return; /* one is on its way still */
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

static void *send_notifications(void *unused)
{
	for (;;) {
		while (sem_wait(&notification_ready))
			;
		(void)!write(notified_device, &notification, notification.head.len);
		sem_post(&notification_sent);
	}
	return unused;
}

static void answer(int device, int *pipe_ends, enum lie lie)
{
	bool lost = lie == ERROR || lie == LENGTH || lie == UNIQUE || lie == LONG || lie == SHORT;
	uint64_t unique = request.head.unique;
	uint64_t before = refused;

	told[lie]++;
	tuned_opens += request.head.opcode == TUNED_OPEN;
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
	/* Refused, it may be waited for still; mostly that is ended here. */
	if (refused > before && lost && !one_in(16))
		send_error(device, pipe_ends, unique);
}

/* A late reply, of the opcode that was asked for or not; false if all is never to be answered. */
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
		/* What the request said is overwritten since: the reply is made of another's. */
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

/* Answer until `budget` replies are sent, the connection is gone, or no one asks any more. */
static void serve(int device, int *pipe_ends, uint64_t budget, uint64_t honest, uint32_t often)
{
	uint64_t end = replies + budget, turns = replies + honest;
	unsigned int quiet = 0;

	withheld_count = 0;
	while (replies < end) {
		ssize_t size = read(device, &request, sizeof(request));
		struct pollfd polled = { device, POLLIN, 0 };
		enum lie lie = HONEST;

		/* It is gone, or asks for a larger buffer than there is. */
		if (size < 0 && (errno == ENODEV || errno == EINVAL))
			return;
		if (size < 0 && errno != EAGAIN)
			continue; /* a request that was interrupted or too large: it is ended already */
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
		if (replies >= turns && one_in(often))
			lie = 1 + below(LIES - 1);
		if (lie == NEVER && !one_in(8))
			lie = LATE;
		answer(device, pipe_ends, lie);
	}
}

/* ---- the clients ---- */

static sigjmp_buf faulted;
static int files[FILES] = { -1, -1, -1, -1, -1, -1 };
static uint8_t buffer[192 << 10] __attribute__((aligned(4096)));
static uint8_t *mapped = MAP_FAILED;
static size_t mapped_size;

static void on_fault(int signal_number)
{
	(void)signal_number;
	siglongjmp(faulted, 1);
}

static const char *path(void)
{
	static const char *const names[] = { "a", "b", "c", "d", "e", "l", "p", "d/a", "e/b", "" };
	static char paths[2][256];
	static unsigned int turn;
	char *at = paths[turn++ & 1];

	snprintf(at, sizeof(paths[0]), "%s/%s", point, names[below(COUNT(names))]);
	return at;
}

/* An open one, if there is any. */
static int *file(void)
{
	uint32_t first = below(FILES);

	for (uint32_t i = 0; i < FILES; i++)
		if (files[(first + i) % FILES] >= 0)
			return files + (first + i) % FILES;
	return files;
}

static void unmap(void)
{
	if (mapped != MAP_FAILED)
		munmap(mapped, mapped_size);
	mapped = MAP_FAILED;
}

static void close_file(int *at)
{
	if (*at >= 0)
		close(*at);
	*at = -1;
}

static void open_one(void)
{
	static const int flags[] = {
		O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC,
		O_RDWR | O_CREAT | O_EXCL, O_RDONLY | O_DIRECTORY, O_RDWR | O_TRUNC, O_RDWR | O_DIRECT,
		O_RDWR | O_APPEND | O_CREAT, O_PATH, O_RDWR | O_CREAT | O_DIRECT, O_RDONLY | O_NOFOLLOW,
		O_RDWR | O_APPEND | O_DIRECT,
	};
	int *at = files + below(FILES);

	close_file(at);
	if (one_in(30))
		*at = open(point, O_TMPFILE | O_RDWR, 0600);
	else
		*at = open(path(), flags[below(COUNT(flags))] | O_NONBLOCK | O_CLOEXEC, 0644);
}

static size_t length(void)
{
	return one_in(20) ? below(sizeof(buffer)) : one_in(3) ? 512 * below(32) : below(5000);
}

static off_t place(void)
{
	return one_in(20) ? (off_t)(odd() & INT64_MAX) : one_in(2) ? 512 * below(64) : below(20000);
}

static void map_one(void)
{
	int how = one_in(3) ? MAP_PRIVATE : MAP_SHARED;

	if (unmapped)
		return;
	unmap();
	mapped_size = 4096 * (1 + below(4));
	mapped = mmap(NULL, mapped_size, PROT_READ | PROT_WRITE, how, *file(), 4096 * below(3));
	if (mapped == MAP_FAILED)
		mapped = mmap(NULL, mapped_size, PROT_READ, how, *file(), 0);
}

static void touch(void)
{
	volatile uint8_t *at = mapped;

	if (mapped == MAP_FAILED || sigsetjmp(faulted, 1))
		return;
	at += below(mapped_size);
	if (one_in(2))
		*at = 1;
	else
		(void)*at;
}

static void list_names(void)
{
	char list[4096];

	for (int turn = 0; turn < 3; turn++)
		if (syscall(SYS_getdents64, *file(), list, sizeof(list)) <= 0)
			return;
}

static void lock_file(void)
{
	struct flock lock = { .l_type = below(3), .l_start = below(100), .l_len = below(100) };

	fcntl(*file(), one_in(2) ? F_GETLK : F_SETLK, &lock);
}

static void change_tree(void)
{
	switch (below(9)) {
	case 0:
		rename(path(), path());
		break;
	case 1:
		renameat2(AT_FDCWD, path(), AT_FDCWD, path(), 1 << below(3));
		break;
	case 2:
		unlink(path());
		break;
	case 3:
		mkdir(path(), 0755);
		break;
	case 4:
		rmdir(path());
		break;
	case 5:
		(void)!symlink("a", path());
		break;
	case 6:
		(void)!link(path(), path());
		break;
	case 7:
		mknod(path(), S_IFREG | 0644, 0);
		break;
	default:
		chdir(one_in(2) ? point : "/");
	}
}

static void change_inode(void)
{
	struct timespec times[2] = { { below(100), 0 }, { 0, UTIME_NOW } };

	switch (below(10)) {
	case 0:
		(void)!truncate(path(), place());
		break;
	case 1:
		(void)!ftruncate(*file(), place());
		break;
	case 2:
		chmod(path(), below(01000));
		break;
	case 3:
		(void)!lchown(path(), below(3), below(3));
		break;
	case 4:
		utimensat(AT_FDCWD, path(), times, 0);
		break;
	case 5:
		setxattr(path(), "user.x", buffer, below(300), 0);
		break;
	case 6:
		removexattr(path(), "user.x");
		break;
	case 7:
		fallocate(*file(), below(4), below(20000), 1 + below(20000));
		break;
	case 8:
		fsync(*file());
		break;
	default:
		syncfs(*file());
	}
}

static void look(void)
{
	struct statx statx_buffer;
	struct stat stat_buffer;
	struct statfs statfs_buffer;
	struct pollfd polled = { *file(), POLLIN | POLLOUT, 0 };
	char text[300];

	switch (below(10)) {
	case 0:
		stat(path(), &stat_buffer);
		break;
	case 1:
		fstat(*file(), &stat_buffer);
		break;
	case 2:
		statx(AT_FDCWD, path(), below(2) * AT_STATX_FORCE_SYNC, STATX_ALL, &statx_buffer);
		break;
	case 3:
		(void)!readlink(path(), text, sizeof(text));
		break;
	case 4:
		getxattr(path(), one_in(2) ? "security.capability" : "user.x", text, below(300));
		break;
	case 5:
		listxattr(path(), text, below(300));
		break;
	case 6:
		access(path(), below(8));
		break;
	case 7:
		statfs(path(), &statfs_buffer);
		break;
	case 8:
		poll(&polled, 1, 0);
		break;
	default:
		ioctl(*file(), one_in(2) ? GET_FLAGS : draw(), buffer);
	}
}

static void move_bytes(void)
{
	int from = *file(), to = *file();

	switch (below(7)) {
	case 0:
	case 1:
		(void)!pwrite(*file(), buffer, length(), place());
		break;
	case 2:
		(void)!write(*file(), buffer, length());
		break;
	case 3:
	case 4:
		(void)!pread(*file(), buffer, length(), place());
		break;
	case 5:
		copy_file_range(from, NULL, to, NULL, length(), 0);
		break;
	default:
		lseek(*file(), below(9000), below(5));
	}
}

static void act(void)
{
	uint32_t action = *file() < 0 ? 0 : below(16);

	switch (action) {
	case 0:
	case 1:
	case 2:
		open_one();
		break;
	case 3:
	case 4:
	case 5:
	case 6:
		move_bytes();
		break;
	case 7:
		map_one();
		break;
	case 8:
		touch();
		break;
	case 9:
		list_names();
		break;
	case 10:
		lock_file();
		break;
	case 11:
		change_tree();
		break;
	case 12:
	case 13:
		change_inode();
		break;
	default:
		look();
	}
}

static void be_client(uint32_t number)
{
	uint32_t mount = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGBUS, on_fault);
	signal(SIGSEGV, on_fault);
	signal(SIGXFSZ, SIG_IGN);
	for (;;) {
		uint32_t now = atomic_load(&stage->mount);
		bool expected = true;

		if (now != mount) {
			(void)!chdir("/");
			unmap();
			for (int i = 0; i < FILES; i++)
				close_file(files + i);
			mount = now;
			seed(mount, 1 + number);
		}
		if (!mount) {
			syscall(SYS_futex, &stage->mount, FUTEX_WAIT, 0, NULL);
			continue;
		}
		if (atomic_compare_exchange_strong(&stage->unmount, &expected, false))
			umount2(point, MNT_DETACH);
		act();
		atomic_fetch_add_explicit(&stage->calls, 1, memory_order_relaxed);
	}
}

/* ---- mounts ---- */

static pid_t clients[CLIENTS];

static void start_client(int number)
{
	clients[number] = fork();
	if (clients[number] < 0)
		die("fork");
	if (!clients[number])
		be_client(number);
}

static void look_after_clients(void)
{
	for (int i = 0; i < CLIENTS; i++) {
		if (waitpid(clients[i], NULL, WNOHANG) == clients[i]) {
			deaths++;
			start_client(i);
		}
	}
}

static int mount_one(int device)
{
	static const char *const more[] = {
		"", "", ",default_permissions", ",allow_other", ",default_permissions,allow_other",
		",max_read=4096",
	};
	static const char *const ours[] = {
		"", ",atomic_open", ",atomic_open,parallel_extend", ",parallel_extend,no_file_caps",
		",parallel_direct_writes,max_pages=64", ",atomic_open,max_pages=1",
	};
	char options[256];
	uint32_t stock = below(COUNT(more)), own = below(COUNT(ours));

	snprintf(options, sizeof(options), "fd=%d,rootmode=%o,user_id=0,group_id=0%s%s", device,
		 one_in(50) ? (unsigned int)(odd() & 0177777) : 040755, more[stock],
		 strcmp(type, "fusetuned") ? "" : ours[own]);
	return mount("hostile", point, type, one_in(2) ? MS_NOSUID : 0, options);
}

/* Find the file that aborts the connection of what is mounted at the point. */
static void find_abort(char *name, size_t size)
{
	char line[1024], at[256];
	unsigned int minor;
	FILE *list = fopen("/proc/self/mountinfo", "re");

	*name = 0;
	while (list && fgets(line, sizeof(line), list))
		if (sscanf(line, "%*d %*d %*d:%u %*s %255s", &minor, at) == 2 && !strcmp(at, point))
			snprintf(name, size, "/sys/fs/%s/connections/%u/abort", type, minor);
	if (list)
		fclose(list);
}

static void abort_by(const char *name)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		(void)!write(fd, "1", 1);
		close(fd);
	}
}

static void play_mount(uint32_t number, int *pipe_ends, uint64_t left)
{
	char name[64], abort_file[128];
	uint64_t budget;
	int device;

	seed(number, 0);
	budget = 30 + below(one_in(4) ? 2000 : 300);
	snprintf(name, sizeof(name), "/dev/%s", type);
	device = open(name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (device < 0)
		die(name);
	if (mount_one(device)) {
		mounts_refused++;
		close(device);
		return;
	}
	mounts++;
	find_abort(abort_file, sizeof(abort_file));
	atomic_store(&stage->mount, number);
	syscall(SYS_futex, &stage->mount, FUTEX_WAKE, CLIENTS);
	serve(device, pipe_ends, budget < left ? budget : left, below(60), 1 + below(one_in(2) ? 3 : 30));
	/* Unmounted with its server alive, or gone. */
	if (one_in(3)) {
		atomic_store(&stage->unmount, true);
		serve(device, pipe_ends, 100, 0, 3);
		atomic_store(&stage->unmount, false);
	}
	/* A notification may wait for a client, which holds the device and so the mount. */
	if (one_in(2) || sem_trywait(&notification_sent))
		abort_by(abort_file);
	else
		sem_post(&notification_sent);
	while (sem_wait(&notification_sent))
		;
	sem_post(&notification_sent);
	atomic_store(&stage->mount, 0);
	close(device);
	umount2(point, MNT_DETACH);
}

/* ---- what the kernel says ---- */

static uint64_t complaints;

static void read_log(int log, uint32_t mount)
{
	static const char *const signs[] = {
		"WARNING: CPU", "WARNING: possible", "WARNING: inconsistent", "WARNING: bad", "BUG:",
		"BUG ", "suspicious rcu", "Oops", "INFO: ", "refcount_t", "general protection", "UBSAN",
	};
	/* UML's own: it goes through a process's areas without RCU as it drops their pages. */
	static const char known[] = "lib/maple_tree.c";
	char line[8192];
	ssize_t size;

	while ((size = read(log, line, sizeof(line) - 1)) > 0 || (size < 0 && errno == EPIPE)) {
		const char *said;

		if (size < 0)
			continue; /* overwritten before it was read */
		line[size] = 0;
		line[strcspn(line, "\n")] = 0;
		said = strchr(line, ';') ?: line;
		for (size_t i = 0; i < COUNT(signs); i++) {
			if (strstr(said, signs[i]) && !strstr(said, known)) {
				complaints++;
				printf("mount %u: kernel%s\n", mount, said);
				fflush(stdout);
				break;
			}
		}
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void play(uint64_t wanted)
{
	int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	double began = seconds(), said = began;
	int pipe_ends[2];
	pthread_t thread;
	uint32_t number = 0;

	stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (log < 0 || stage == MAP_FAILED || pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC))
		die("hostile");
	lseek(log, 0, SEEK_END);
	sem_init(&notification_ready, 0, 0);
	sem_init(&notification_sent, 0, 1);
	for (int i = 0; i < CLIENTS; i++)
		start_client(i);
	if (pthread_create(&thread, NULL, send_notifications, NULL))
		die("pthread_create");
	if (mount("none", point, "tmpfs", MS_RDONLY, NULL))
		die(point);
	while (replies < wanted) {
		play_mount(++number, pipe_ends, wanted - replies);
		look_after_clients();
		read_log(log, number);
		if (seconds() - said > 60) {
			said = seconds();
			printf("mount %u: %lu replies in %.0f s\n", number, replies, said - began);
			fflush(stdout);
		}
	}
	for (int i = 0; i < CLIENTS; i++) {
		kill(clients[i], SIGKILL);
		waitpid(clients[i], NULL, 0);
	}
	umount(point);
	read_log(log, number);
	printf("{\"type\": \"%s\", \"seed\": %lu, \"replies\": %lu, \"refused\": %lu, "
	       "\"mounts\": %lu, \"mounts_refused\": %lu, \"calls\": %lu, \"deaths\": %lu, "
	       "\"complaints\": %lu, \"tuned_opens\": %lu, \"seconds\": %.0f",
	       type, base_seed, replies, refused, mounts, mounts_refused,
	       atomic_load(&stage->calls), deaths, complaints, tuned_opens, seconds() - began);
	for (int i = 0; i < LIES; i++)
		printf(", \"%s\": %lu", lies[i], told[i]);
	printf("}\n");
	fflush(stdout);
}

/* ---- as the first process ---- */

static void set_up(const char *module)
{
	char name[64], control[64];
	int fd;

	if (mount("proc", "/proc", "proc", 0, NULL) || mount("sysfs", "/sys", "sysfs", 0, NULL))
		die("proc, sysfs");
	if (mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) && errno != EBUSY)
		die("devtmpfs");
	if (mount("tmpfs", "/mnt", "tmpfs", 0, NULL) || mkdir("/mnt/point", 0755))
		die("/mnt");
	snprintf(name, sizeof(name), "/sys/fs/%s/connections", type);
	snprintf(control, sizeof(control), "%sctl", type);
	fd = open(module, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
		die(module);
	close(fd);
	if (mount("control", name, control, 0, NULL))
		die(name);
}

int main(int argc, char **argv)
{
	bool first = getpid() == 1;
	char name[64];
	int log;

	/* A kernel may have arguments of its own behind them. */
	if (argc < (first ? 6 : 5)) {
		fprintf(stderr, "usage: hostile TYPE POINT SEED REPLIES [unmapped|MODULE]\n");
		return 2;
	}
	type = argv[1];
	point = argv[2];
	base_seed = strtoull(argv[3], NULL, 10);
	unmapped = argc > 5 && !strcmp(argv[5], "unmapped");
	if (first)
		set_up(argv[5]);
	play(strtoull(argv[4], NULL, 10));
	if (!first)
		return complaints != 0;
	log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	lseek(log, 0, SEEK_END);
	snprintf(name, sizeof(name), "/sys/fs/%s/connections", type);
	umount(name);
	if (syscall(SYS_delete_module, type, O_NONBLOCK))
		perror("unload");
	read_log(log, 0);
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
