// SPDX-License-Identifier: GPL-2.0-only
// Takes the user's file or its path, which differs even within a series; tuned.h hides that.
@@
expression file, flags, path, cred;
@@
- backing_file_open(\( &file->f_path \| file \), flags, path, cred)
+ tuned_backing_file_open(file, flags, path, cred)
