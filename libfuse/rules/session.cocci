// SPDX-License-Identifier: LGPL-2.1-or-later
// A session's options: parsed from the arguments, completed and checked before the mount, and
// applied in INIT and in each open.
@@
expression args;
symbol se, fuse_ll_opts;
@@
- fuse_opt_parse(args, se, fuse_ll_opts, NULL) == -1
+ tuned_parse_args(se, args) == -1 || fuse_opt_parse(args, se, fuse_ll_opts, NULL) == -1

// Some versions of this function fail through a label, which cleans up; others return -1.
@ by_label @
expression mountpoint, fd, E;
symbol se;
identifier label;
@@
fuse_session_mount(...)
{
...
fd = fuse_mnt_parse_fuse_fd(mountpoint);
+ if (tuned_prepare(se, mountpoint) == -1)
+	goto label;
if (fd != -1) { if (E) { ... goto label; } ... }
...
}

@ depends on !by_label @
expression mountpoint, fd;
symbol se;
@@
fuse_session_mount(...)
{
...
fd = fuse_mnt_parse_fuse_fd(mountpoint);
+ if (tuned_prepare(se, mountpoint) == -1)
+	return -1;
...
}

@@
expression mountpoint;
symbol se;
@@
- fuse_kern_mount(mountpoint, se->mo)
+ tuned_kern_mount(se, mountpoint)

// Runs after the server's own init(), before its choices are used.
@@
expression most;
symbol se, req, arg;
statement S;
@@
+ if (tuned_init(req, arg) == -1)
+	return;
if (se->conn.max_read != most) S

@@
expression outarg;
symbol se, req, outargsize;
@@
+ tuned_init_out(se, &outarg);
send_reply_ok(req, &outarg, outargsize);

@@
identifier function = {do_open, do_create, do_tmpfile, _do_open, _do_create, _do_tmpfile};
symbol fi, arg, req;
@@
function(...)
{
<...
fi.flags = arg->flags;
+ tuned_open_in(req->se, &fi.flags);
...>
}

@@
identifier function = {fuse_reply_open, fuse_reply_create};
expression out, f;
symbol req;
@@
function(...)
{
<...
fill_open(out, f);
+ tuned_open_out(req->se, out);
...>
}

// A request that was read is not in a pipe, even if this thread's last one was. libfuse mixes both:
// a thread that starts to wait while INIT is processed may splice a request, although the server or
// an option then turns splicing off.
@@
symbol buf, res;
@@
+ tuned_read(buf);
buf->size = res;
