// SPDX-License-Identifier: GPL-2.0-only
// How long names and attributes are cached.
@@
identifier entry, out;
@@
fuse_change_entry_timeout(struct dentry *entry, struct fuse_entry_out *out)
{
+ tuned_entry_timeout(entry, out);
...
}

// Names that do not exist.
@@
identifier dir, out, valid;
@@
fuse_lookup(struct inode *dir, ...)
{
...
struct fuse_entry_out out;
<...
- valid = false;
+ valid = tuned_negative_entry(dir, &out);
...>
}

@@
expression fi, time;
@@
fuse_change_attributes_common(...)
{
<...
- fi->i_time = time;
+ fi->i_time = tuned_attr_time(fi, time);
...>
}

// The attributes in the reply are older than the inode's.
@@
expression out;
symbol fi;
@@
fuse_do_setattr(...)
{
<...
out.attr_valid = out.attr_valid_nsec = 0;
+ fi->tuned.attr_overtaken = true;
...>
}
