// SPDX-License-Identifier: GPL-2.0-only
// Our part of each inode.
@@
expression fi;
@@
fuse_alloc_inode(...)
{
...
spin_lock_init(&fi->lock);
+ tuned_init_inode(&fi->tuned);
...
}
