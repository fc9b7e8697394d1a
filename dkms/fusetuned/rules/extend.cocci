// SPDX-License-Identifier: GPL-2.0-only
// Direct writes that extend a file at once: which lock a write takes, and the choice of its
// position. Appends and extending writes exclude others unless the mount has parallel_extend.
@@
identifier f = {fuse_dio_wr_exclusive_lock, fuse_direct_write_iter};
@@
f(struct kiocb *iocb, ...)
{
<+...
- iocb->ki_flags & IOCB_APPEND
+ (tuned_extends_alone(iocb) && iocb->ki_flags & IOCB_APPEND)
...+>
}

@@
identifier f = {fuse_dio_wr_exclusive_lock, fuse_dio_lock, fuse_direct_write_iter};
identifier past_eof = {fuse_io_past_eof, fuse_direct_write_extending_i_size};
@@
f(struct kiocb *iocb, struct iov_iter *from, ...)
{
<+...
- past_eof(iocb, from)
+ (tuned_extends_alone(iocb) && past_eof(iocb, from))
...+>
}

@@
identifier res;
@@
fuse_direct_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
+ struct tuned_write tuned;
...
- res = generic_write_checks(iocb, from);
+ res = tuned_write_begin(&tuned, iocb, from);
if (res > 0) { ... }
+ tuned_write_end(&tuned);
...
+ tuned_write_finish(&tuned);
return res;
}

// What a failed extending write left behind is cut off when no other write is in flight.
@@
@@
fuse_direct_IO(struct kiocb *iocb, ...)
{
<+...
- fuse_do_truncate(file)
+ tuned_truncate(iocb, fuse_do_truncate)
...+>
}

// One at a time, because direct writers that share the lock may get here at once.
@@
@@
fuse_direct_io(...)
{
<+...
- fuse_sync_writes(inode)
+ tuned_sync_writes(inode, fuse_sync_writes)
...+>
}
