// SPDX-License-Identifier: GPL-2.0-only
// Reading and setting extended attributes by name. Removing one stays possible.
@@
expression inode, name, value, size;
@@
fuse_xattr_get(...)
{
...
+ if (tuned_hides_xattr(inode, name))
+	return -ENODATA;
return fuse_getxattr(inode, name, value, size);
}

@@
expression inode, name, value, size, flags, extra;
@@
fuse_xattr_set(...)
{
...
+ if (tuned_hides_xattr(inode, name))
+	return -EOPNOTSUPP;
return fuse_setxattr(inode, name, value, size, flags, extra);
}
