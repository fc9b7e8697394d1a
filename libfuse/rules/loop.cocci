// SPDX-License-Identifier: LGPL-2.1-or-later
// The number of threads, and the device that each of them clones.
@@
expression config;
symbol mt, se;
@@
mt.max_threads = config->max_threads;
+ tuned_loop(se, &mt.clone_fd, &mt.max_threads);

@@
identifier function =~ "^fuse_clone_chan", se;
symbol devname;
@@
function(struct fuse_session *se)
{
...
const char *devname =
- "/dev/fuse"
+ tuned_session_device(se)
;
...
}

@@
identifier function =~ "^fuse_clone_chan", mt;
symbol devname;
@@
function(struct fuse_mt *mt)
{
...
const char *devname =
- "/dev/fuse"
+ tuned_session_device(mt->se)
;
...
}
