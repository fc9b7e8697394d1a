// SPDX-License-Identifier: GPL-2.0-only
/*
 * One large direct write gets its blocks whole before the next one gets any.
 *
 * All writers of one kind of data take their blocks one by one from the same
 * open segment. Side by side they take them in turn, and what each writes lies
 * scattered: a write of 2 MiB in up to 512 extents.
 */
#include <linux/fs.h>
#include <linux/f2fs_fs.h>

#include "f2fs.h"

/* As in the published work: 256 KiB with blocks of 4 KiB. */
#define SERIALIZE_ALLOC_BLOCKS 64

void tuned_fill_super(struct f2fs_sb_info *sbi)
{
	mutex_init(&sbi->tuned.alloc);
	sbi->tuned.serialize_alloc_blocks = SERIALIZE_ALLOC_BLOCKS;
}

/*
 * The writer holds its inode's lock alone, as without us. What f2fs_map_blocks()
 * may wait for meanwhile (checkpoint, garbage collection) takes neither that
 * lock nor this one, so it comes to its end while others wait here.
 */
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
