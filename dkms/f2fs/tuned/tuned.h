/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface between f2fs, as modified by rules.toml and rules/, and our files.
 */
#ifndef TUNED_H
#define TUNED_H

#include <linux/mutex.h>
#include <linux/types.h>

struct f2fs_attr;
struct f2fs_map_blocks;
struct f2fs_sb_info;
struct inode;

/* In each f2fs_sb_info. */
struct tuned_sb {
	/* Held while a large direct write allocates its blocks. */
	struct mutex alloc;
	/* Writes of at least this many blocks are large; 0: none is. */
	unsigned int serialize_alloc_blocks;
};

void tuned_fill_super(struct f2fs_sb_info *sbi);

/* f2fs_map_blocks() for one write, called by f2fs_preallocate_blocks(). */
int tuned_map_blocks(struct inode *inode, struct f2fs_map_blocks *map, int flag);

ssize_t tuned_attribute_show(struct f2fs_attr *attr, struct f2fs_sb_info *sbi, char *buf);
ssize_t tuned_attribute_store(struct f2fs_attr *attr, struct f2fs_sb_info *sbi,
			      const char *buf, size_t len);

/* A macro, because struct f2fs_attr is private to sysfs.c. */
#define TUNED_ATTRIBUTE(_name)				\
static struct f2fs_attr f2fs_attr_##_name = {		\
	.attr = { .name = #_name, .mode = 0644 },	\
	.show = tuned_attribute_show,			\
	.store = tuned_attribute_store,			\
}

#endif
