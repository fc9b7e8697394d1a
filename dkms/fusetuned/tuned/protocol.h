/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR LGPL-2.1-or-later */
/*
 * The extensions of the FUSE protocol (linux/fuse.h) between the module fusetuned
 * and its servers. The numbers are far from those that FUSE assigns.
 *
 * 1. With the mount option atomic_open, the module offers TUNED_INIT_OPEN in INIT.
 *    A server that supports it sets the bit in its reply.
 * 2. Some servers return any bit that they are offered. So the module sends
 *    TUNED_HELLO (node: root) before any other request defined here. A server
 *    that does not reply with a struct tuned_hello that has magic and version
 *    gets plain FUSE requests.
 * 3. TUNED_OPEN replaces LOOKUP and OPEN, or LOOKUP and CREATE. Its layout is that
 *    of CREATE: the parent's node, struct tuned_open_in, the name. So is its
 *    reply: struct fuse_entry_out, struct fuse_open_out.
 *
 * The reply to TUNED_OPEN:
 *  - The entry is looked up, and counts as one lookup, even if it is not opened.
 *  - Without O_CREAT, the reply for a missing name is ENOENT, or an entry with
 *    node 0 and the time for which the kernel may cache it.
 *  - With O_CREAT, a missing file is created: TUNED_FOPEN_CREATED. With O_EXCL the
 *    reply for an existing name is EEXIST, or an entry that is not opened.
 *  - An entry is not opened, with TUNED_FOPEN_LOOKUP, if it is not a regular file
 *    (symbolic links are not followed), or if O_TRUNC is set and the file existed.
 *    The kernel goes on as after LOOKUP. The same reply suits an existing file
 *    that cannot be opened: the kernel then checks permissions and sends OPEN.
 *  - After an error nothing is open, and no lookup counts. ENOSYS ends the use of
 *    TUNED_OPEN.
 */
#ifndef TUNED_PROTOCOL_H
#define TUNED_PROTOCOL_H

#include <linux/types.h>

/* A flag of INIT; in flags2, the upper half, with FUSE_INIT_EXT. */
#define TUNED_INIT_OPEN 0x2000000000000000ULL

#define TUNED_HELLO 0x54554e00
#define TUNED_OPEN 0x54554e01

#define TUNED_MAGIC 0x64657475
#define TUNED_VERSION 1

/* Request and reply. */
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

/* In open_flags of the reply. */
#define TUNED_FOPEN_LOOKUP 0x40000000	/* not opened, the rest of fuse_open_out is 0 */
#define TUNED_FOPEN_CREATED 0x80000000U

#endif
