// SPDX-License-Identifier: GPL-2.0-only
// A direct write's blocks are allocated here, before any data is written.
@@
expression inode, map, flag;
@@
f2fs_preallocate_blocks(...)
{
<...
- f2fs_map_blocks(inode, map, flag)
+ tuned_map_blocks(inode, map, flag)
...>
}

@@
symbol sb, sbi;
@@
f2fs_fill_super(...)
{
<...
sbi->sb = sb;
+ tuned_fill_super(sbi);
...>
}
