/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The interface between libfuse's files, as modified by rules.toml and rules/, and ours.
 */
#ifndef TUNED_H
#define TUNED_H

#include "options.h"

#define TUNED_STOCK_DEVICE "/dev/fuse"
#define TUNED_MODULE_NAME "fusetuned"
#define TUNED_MODULE_DEVICE "/dev/" TUNED_MODULE_NAME

struct fuse_args;
struct fuse_buf;
struct fuse_in_header;
struct fuse_init_in;
struct fuse_init_out;
struct fuse_open_out;
struct fuse_session;
struct iovec;

/* In each session. */
struct tuned {
	struct tuned_options options;
	/* From the command line; empty if not given. */
	char source[4096], subtype[256];
	/* tuned_prepare() has run: all options were read and checked. */
	int prepared;
	/* Bytes of a WRITE; 0: as stock. */
	uint32_t max_write;
	/* Mounted with the module fusetuned. */
	int by_module;
	/* TUNED_OPEN has been negotiated. */
	int opens;
};

/* channels.c */

/* Takes a list of options, separated by commas. Error messages begin with `where`. */
int tuned_take_list(struct tuned_options *options, const char *list, const char *where);

/* Adds the options of the administrator's files and of the environment. */
int tuned_read_channels(struct tuned_options *options, const struct tuned_about *about);

/*
 * session.c. Functions that return an int print the reason and return -1 if the mount is refused.
 */

/*
 * Prints that an option is not possible. Returns -1; with tuned_if_possible, drops the option and
 * returns 0.
 */
int __attribute__((format(printf, 3, 4)))
tuned_refuse(struct fuse_session *se, enum tuned_option option, const char *why, ...);

/* Moves our options from the arguments to the session. */
int tuned_parse_args(struct fuse_session *se, struct fuse_args *args);
/* Called before the mount: completes and checks the options, and sets the buffer size. */
int tuned_prepare(struct fuse_session *se, const char *mountpoint);
/* Called when a request was read into memory instead of being spliced into a pipe. */
void tuned_read(struct fuse_buf *buf);

/* init.c */

/* Called after the server's init(): options override the server's choices. */
int tuned_init(fuse_req_t req, const struct fuse_init_in *in);
void tuned_init_out(const struct fuse_session *se, struct fuse_init_out *out);
/* Change the flags of an open that the server gets, and those of its reply. */
void tuned_open_in(const struct fuse_session *se, int *flags);
void tuned_open_out(const struct fuse_session *se, struct fuse_open_out *out);
void tuned_loop(const struct fuse_session *se, int *clone_fd, int *max_threads);

/* atomic_open.c */

/* The state of a TUNED_OPEN request. Each request points to one; NULL in all others. */
struct tuned_opening;

/* One of libfuse's do_lookup() and so on; inarg is what follows the header. */
typedef void tuned_operation(fuse_req_t req, fuse_ino_t nodeid, const void *inarg);

/* Called on INIT: use TUNED_OPEN if the module offers it and the option is given. */
void tuned_init_open(struct tuned *tuned, const struct fuse_init_in *in);
void tuned_init_open_out(const struct tuned *tuned, struct fuse_init_out *out);
/* Whether tuned_serve() serves a request. */
int tuned_takes(const struct fuse_session *se, uint32_t opcode);
void tuned_serve(fuse_req_t req, const struct fuse_in_header *in, tuned_operation *lookup,
		 tuned_operation *open, tuned_operation *create);
/* Takes the server's reply to one of these operations; returns what fuse_reply_err() does. */
int tuned_replied(fuse_req_t req, int error, const struct iovec *iov, int count);

/* by_module.c */

/* fuse_kern_mount(), with the module if tuned.by_module is set. */
int tuned_kern_mount(struct fuse_session *se, const char *mountpoint);
/* Replace or extend what fuse_mount_sys() passes to mount(2). */
const char *tuned_mount_device(const char *stock);
const char *tuned_mount_type(const char *stock);
int tuned_mount_options(char **options, const char *more);
/* The path with which the session's device was opened. */
const char *tuned_session_device(const struct fuse_session *se);

#endif
