// SPDX-License-Identifier: GPL-2.0-only
// Kernels of one series differ in whether this takes the user's file or its path; tuned.h hides it.
@@
expression file, flags, path, cred;
@@
- backing_file_open(\( &file->f_path \| file \), flags, path, cred)
+ tuned_backing_file_open(file, flags, path, cred)
