// SPDX-License-Identifier: GPL-2.0-only
// Parallel direct writes that extend a file: which lock a write takes, and how its position is
// chosen. Appends and extending writes take the lock exclusively without parallel_extend, and all
// that must remove set-ID bits.
@@
identifier f = {fuse_dio_wr_exclusive_lock, fuse_direct_write_iter};
@@
f(struct kiocb *iocb, ...)
{
<+...
- iocb->ki_flags & IOCB_APPEND
+ tuned_writes_alone(iocb, iocb->ki_flags & IOCB_APPEND)
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
+ tuned_writes_alone(iocb, past_eof(iocb, from))
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

// Truncates what a failed extending write left behind when no other write is in flight.
@@
@@
fuse_direct_IO(struct kiocb *iocb, ...)
{
<+...
- fuse_do_truncate(file)
+ tuned_truncate(iocb, fuse_do_truncate)
...+>
}

// Direct writers that share the lock may get here concurrently; let in one at a time.
@@
@@
fuse_direct_io(...)
{
<+...
- fuse_sync_writes(inode)
+ tuned_sync_writes(inode, fuse_sync_writes)
...+>
}
