/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What libfuse's own files, changed by rules.toml and rules/, know of ours.
 */
#ifndef TUNED_H
#define TUNED_H

#include "options.h"

struct fuse_args;
struct fuse_in_header;
struct fuse_init_in;
struct fuse_init_out;
struct fuse_open_out;
struct fuse_session;
struct iovec;

/* In each session. */
struct tuned {
	struct tuned_options options;
	/* Of the command line; empty where it does not say. */
	char source[4096], subtype[256];
	/* All channels have been read and checked. */
	int settled;
	/* Bytes a WRITE, 0: as stock. */
	uint32_t max_write;
	/* Mounted by the module fusetuned. */
	int by_module;
	/* TUNED_OPEN is agreed on. */
	int opens;
};

/* channels.c */

/* Takes a list of options, separated by commas; where it stands is said of a wrong one. */
int tuned_take_list(struct tuned_options *options, const char *list, const char *where);

/* Adds what the files of the administrator and the environment say. */
int tuned_read_channels(struct tuned_options *options, const struct tuned_about *about);

/* session.c; those that return an int return -1 where the mount is refused, and have said why. */

/* Takes our options out of the arguments. */
int tuned_parse_args(struct fuse_session *se, struct fuse_args *args);
/* Before the mount: completes the options, checks them, makes the buffers large enough. */
int tuned_settle(struct fuse_session *se, const char *mountpoint);
/* fuse_kern_mount() by the module, where it is asked for and there. */
int tuned_kern_mount(struct fuse_session *se, const char *mountpoint);
/* After the server's init(): its choices are ours where an option is given. */
int tuned_init(fuse_req_t req, const struct fuse_init_in *in);
void tuned_init_out(const struct fuse_session *se, struct fuse_init_out *out);
/* Flags with which the server is asked to open, and what it answered. */
void tuned_open_in(const struct fuse_session *se, int *flags);
void tuned_open_out(const struct fuse_session *se, struct fuse_open_out *out);
void tuned_loop(const struct fuse_session *se, int *clone_fd, int *max_threads);

/* atomic_open.c */

/* What a request of TUNED_OPEN has come to; in each request, NULL in others. */
struct tuned_opening;

/* One of libfuse's do_lookup() and the like; the last is what follows the header. */
typedef void tuned_operation(fuse_req_t req, fuse_ino_t nodeid, const void *inarg);

/* Of INIT: whether the module offers TUNED_OPEN and it is asked for, and the answer. */
void tuned_init_open(struct tuned *tuned, const struct fuse_init_in *in);
void tuned_init_open_out(const struct tuned *tuned, struct fuse_init_out *out);
/* Whether a request is for tuned_serve(). */
int tuned_takes(const struct fuse_session *se, uint32_t opcode);
void tuned_serve(fuse_req_t req, const struct fuse_in_header *in, tuned_operation *lookup,
		 tuned_operation *open, tuned_operation *create);
/* What the server answers to one of those operations; returns as fuse_reply_err() does. */
int tuned_answered(fuse_req_t req, int error, const struct iovec *iov, int count);

/* What fuse_mount_sys() shall take in place of, or with, its own. */
const char *tuned_mount_device(const char *stock);
const char *tuned_mount_type(const char *stock);
int tuned_mount_options(char **options, const char *more);
/* The device that the session's was opened from. */
const char *tuned_session_device(const struct fuse_session *se);

#endif
