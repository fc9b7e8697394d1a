// SPDX-License-Identifier: GPL-2.0-or-later
/* Correct replies, about files that the seed chooses. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/stat.h>

#include "hostile.h"

struct request request;
struct reply reply;
size_t body_size;

void *put(size_t size)
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
	/* All flags that it offers, except those that need an image. */
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

/* Build a correct reply. */
void put_honest(uint32_t opcode)
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
