// SPDX-License-Identifier: GPL-2.0-only
// Mount options, from the words to the connection.
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
expression fc;
@@
process_init_reply(...)
{
<...
fc->conn_init = 1;
+ tuned_settle(fc, arg);
...>
}
