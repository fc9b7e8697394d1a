// SPDX-License-Identifier: GPL-2.0-only
// The open flags sent to the server.
@@
identifier f = {fuse_send_open, fuse_create_open};
expression given;
@@
f(...)
{
<+...
- inarg.flags = given;
+ inarg.flags = tuned_sent_flags(fm->fc, given);
...+>
}

@@
@@
fuse_write_flags(struct kiocb *iocb)
{
...
- return flags;
+ return tuned_sent_flags(get_fuse_conn(file_inode(iocb->ki_filp)), flags);
}
