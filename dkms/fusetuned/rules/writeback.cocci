// SPDX-License-Identifier: GPL-2.0-only
// Opens for writing: the writeback cache also reads through these files.
@@
expression fm, nodeid, flags, opcode, out;
@@
fuse_file_open(...)
{
<...
- fuse_send_open(fm, nodeid, flags, opcode, out)
+ tuned_open_readable(fm, nodeid, flags, opcode, out)
...>
}

@@
expression fm, idmap;
identifier args, inarg;
@@
fuse_create_open(...)
{
...
struct fuse_create_in inarg;
<...
(
- fuse_simple_request(fm, &args)
+ tuned_create(fm->fc, &args, &inarg, fuse_simple_request(fm, &args))
|
- fuse_simple_idmap_request(idmap, fm, &args)
+ tuned_create(fm->fc, &args, &inarg, fuse_simple_idmap_request(idmap, fm, &args))
)
...>
}
