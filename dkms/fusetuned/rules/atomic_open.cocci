// SPDX-License-Identifier: GPL-2.0-only
// Lookups with the intent to open, and opens.
@@
identifier dir, entry, file, flags, mode, err;
@@
fuse_atomic_open(struct inode *dir, struct dentry *entry, struct file *file, unsigned flags,
		 umode_t mode)
{
...
int err;
...
+ err = tuned_atomic_open(dir, entry, file, flags, mode);
+ if (err != TUNED_STOCK)
+	return err;
if (d_in_lookup(entry)) { ... }
...
}

@@
identifier entry, inode, fm, flags;
@@
fuse_dentry_revalidate(..., struct dentry *entry, unsigned int flags)
{
<...
+ if (tuned_skips_lookup(entry, inode, flags))
+	return 1;
fm = get_fuse_mount(inode);
...>
}

@@
expression fm, inode, file, isdir;
identifier f = {fuse_open, fuse_open_common};
@@
f(...)
{
<...
- fuse_do_open(fm, get_node_id(inode), file, isdir)
+ tuned_do_open(fm, inode, file, isdir)
...>
}
