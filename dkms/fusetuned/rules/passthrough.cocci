// SPDX-License-Identifier: GPL-2.0-only
// The lock that a write to a backing file holds.
@@
identifier iocb, iter;
expression inode, ret;
expression list given;
@@
fuse_passthrough_write_iter(struct kiocb *iocb, struct iov_iter *iter)
{
<+...
- inode_lock(inode);
- ret = backing_file_write_iter(given);
- inode_unlock(inode);
+ ret = tuned_passthrough_write(inode, iocb, iter, backing_file_write_iter(given));
...+>
}
