// SPDX-License-Identifier: LGPL-2.1-or-later
// mount(2) by root: the module's device, type and options, for sessions with the option `tuned`.
@@
expression E;
symbol devname;
@@
fuse_mount_sys(...)
{
...
const char *devname =
- E
+ tuned_mount_device(E)
;
...
}

@@
expression type, block, E;
@@
- strcpy(type, block ? "fuseblk" : E)
+ strcpy(type, tuned_mount_type(block ? "fuseblk" : E))

@@
expression res, mo, tmp;
@@
fuse_mount_sys(...)
{
...
res =
- fuse_opt_add_opt(&mo->kernel_opts, tmp)
+ tuned_mount_options(&mo->kernel_opts, tmp)
;
...
}
