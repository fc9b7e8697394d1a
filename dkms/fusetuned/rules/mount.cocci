// SPDX-License-Identifier: GPL-2.0-only
// Mount options, INIT, and the release of the connection.
@@
expression fsc, param, result;
identifier opt;
@@
fuse_parse_param(...)
{
...
+ opt = tuned_parse_param(fsc, param, &ctx->tuned);
+ if (opt != -ENOPARAM)
+	return opt;
opt = fs_parse(fsc, fuse_fs_parameters, param, &result);
...
}

@@
expression fc;
@@
fuse_show_options(struct seq_file *m, ...)
{
...
+ tuned_show_options(m, fc);
if (fc->legacy_opts_show) { ... }
...
}

@@
expression fc, ctx;
@@
fuse_fill_super_common(...)
{
...
fc->no_force_umount = ctx->no_force_umount;
+ tuned_fill_super(fc, &ctx->tuned);
...
}

@@
expression fc, arg;
@@
process_init_reply(...)
{
<...
+ tuned_force(fc, arg);
process_init_limits(fc, arg);
...>
}

@@
expression fc;
symbol fm;
@@
process_init_reply(...)
{
<...
fc->conn_init = 1;
+ tuned_negotiated(fm);
...>
}

@@
identifier f = {fuse_send_init, fuse_new_init};
identifier ia, flags, fm;
@@
f(struct fuse_mount *fm)
{
...
+ flags |= tuned_init_flags(fm->fc);
ia->in.flags = flags;
...
}

@@
identifier fc;
@@
fuse_conn_put(struct fuse_conn *fc)
{
<...
+ tuned_conn_free(fc);
put_pid_ns(fc->pid_ns);
...>
}
