/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel's FUSE code, changed by rules.toml and rules/, knows of ours.
 */
#ifndef TUNED_H
#define TUNED_H

/* Kbuild looks up which of the two a kernel's headers have. */
#ifdef TUNED_BACKING_BY_PATH
#define tuned_backing_file_open(file, flags, path, cred) \
	backing_file_open(&(file)->f_path, flags, path, cred)
#else
#define tuned_backing_file_open(file, flags, path, cred) \
	backing_file_open(file, flags, path, cred)
#endif

#endif
