// SPDX-License-Identifier: GPL-2.0-only
/*
 * Large direct writes allocate their blocks one write after the other (Yu 2015).
 *
 * Stock: writers allocate blocks one by one from the open segment of their log. The
 * blocks of concurrent writers interleave, so that a write of 2 MiB may end up in
 * 512 extents.
 *
 * Here: f2fs_preallocate_blocks() holds a mutex of the file system while it
 * allocates the blocks of a direct write of serialize_alloc_blocks or more.
 *
 * Why it is safe: the lock order is the inode lock, this mutex, then the locks that
 * f2fs_map_blocks() takes. What that may wait for (checkpoint, garbage collection)
 * takes neither of the first two, so it makes progress while other writers wait
 * here. Mounts with mode=lfs allocate later, under locks that garbage collection
 * does take, so they keep the stock behaviour.
 */
#include <linux/fs.h>
#include <linux/f2fs_fs.h>

#include "f2fs.h"

/* As in the paper: 256 KiB, with blocks of 4 KiB. */
#define SERIALIZE_ALLOC_BLOCKS 64

void tuned_fill_super(struct f2fs_sb_info *sbi)
{
	mutex_init(&sbi->tuned.alloc);
	sbi->tuned.serialize_alloc_blocks = SERIALIZE_ALLOC_BLOCKS;
}

/* The caller holds its inode's lock exclusively, as in stock. */
int tuned_map_blocks(struct inode *inode, struct f2fs_map_blocks *map, int flag)
{
	struct tuned_sb *tuned = &F2FS_I_SB(inode)->tuned;
	unsigned int least = READ_ONCE(tuned->serialize_alloc_blocks);
	int err;

	if (flag != F2FS_GET_BLOCK_PRE_DIO || !least || map->m_len < least)
		return f2fs_map_blocks(inode, map, flag);
	mutex_lock(&tuned->alloc);
	err = f2fs_map_blocks(inode, map, flag);
	mutex_unlock(&tuned->alloc);
	return err;
}

ssize_t tuned_attribute_show(struct f2fs_attr *attr, struct f2fs_sb_info *sbi, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(sbi->tuned.serialize_alloc_blocks));
}

ssize_t tuned_attribute_store(struct f2fs_attr *attr, struct f2fs_sb_info *sbi,
			      const char *buf, size_t len)
{
	unsigned int blocks;
	int err = kstrtouint(buf, 0, &blocks);

	if (err)
		return err;
	WRITE_ONCE(sbi->tuned.serialize_alloc_blocks, blocks);
	return len;
}
