/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR LGPL-2.1-or-later */
/*
 * What the module fusetuned and its servers say to each other beyond the FUSE
 * protocol (linux/fuse.h). Numbers are far from those that FUSE gives out.
 *
 * 1. The module offers TUNED_INIT_OPEN in INIT, if the mount option atomic_open
 *    is given. A server that knows it sets it in its answer.
 * 2. Some servers send back any bit. So the module sends TUNED_HELLO (node:
 *    root) before anything else that is here. A server that answers anything but
 *    a struct tuned_hello with magic and version gets plain FUSE requests.
 * 3. TUNED_OPEN is sent in place of LOOKUP and OPEN, or LOOKUP and CREATE. It is
 *    laid out as CREATE: the parent's node, struct tuned_open_in, the name; and
 *    answered as CREATE: struct fuse_entry_out, struct fuse_open_out.
 *
 * How a server answers TUNED_OPEN:
 *  - The entry is looked up, also if it is not opened, which counts as one lookup.
 *  - Without O_CREAT, a name that is not there is ENOENT, or node 0 with the
 *    time that the kernel may remember it for.
 *  - With O_CREAT, the file is made if it is not there: TUNED_FOPEN_CREATED. With
 *    O_EXCL a name that is there is EEXIST, or not opened (see below).
 *  - What is not a regular file is never opened, nor is with O_TRUNC a file that
 *    was there, and symbolic links are not followed: TUNED_FOPEN_LOOKUP. The
 *    kernel goes on as after LOOKUP. So it should be where a file that was there
 *    cannot be opened: the kernel checks permissions first, and asks by OPEN.
 *  - An error means that nothing is open and no lookup counted. ENOSYS ends the
 *    use of TUNED_OPEN.
 */
#ifndef TUNED_PROTOCOL_H
#define TUNED_PROTOCOL_H

#include <linux/types.h>

/* In flags2 of INIT, which are the upper half, with FUSE_INIT_EXT. */
#define TUNED_INIT_OPEN 0x2000000000000000ULL

#define TUNED_HELLO 0x54554e00
#define TUNED_OPEN 0x54554e01

#define TUNED_MAGIC 0x64657475
#define TUNED_VERSION 1

/* Both ways. */
struct tuned_hello {
	__u32 magic;
	__u32 version;
};

struct tuned_open_in {
	__u32 flags;		/* of open(2) */
	__u32 mode;		/* with O_CREAT: S_IFREG and permissions, umask applied */
	__u32 umask;
	__u32 open_flags;	/* 0 */
};

/* In open_flags of the answer. */
#define TUNED_FOPEN_LOOKUP 0x40000000	/* not opened, the rest of fuse_open_out is 0 */
#define TUNED_FOPEN_CREATED 0x80000000U

#endif
