// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Apply the options in INIT, in opens and in the multi-threaded loop.
 *
 * Some checks need to know what the kernel offers in INIT and what the server's own
 * init() chose. An option that is refused here makes INIT fail.
 */
#define _GNU_SOURCE

#include "fuse_config.h"
#include "fuse_i.h"
#include "fuse_kernel.h"

#include <errno.h>
#include <fcntl.h>

/* The headers of some versions lack these protocol flags. */
#ifndef FOPEN_PARALLEL_DIRECT_WRITES
#define FOPEN_PARALLEL_DIRECT_WRITES (1 << 6)
#endif
#ifndef FOPEN_PASSTHROUGH
#define FOPEN_PASSTHROUGH (1 << 7)
#endif

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define CAPABLE(conn) ((conn)->capable_ext)
#define WANT(conn) ((conn)->want_ext)
#else
#define CAPABLE(conn) ((conn)->capable)
#define WANT(conn) ((conn)->want)
#endif

static int init_sizes(struct fuse_session *se, const struct fuse_init_in *in)
{
	const struct tuned_options *options = &se->tuned.options;

	/* A server that asks for less has a reason. */
	if (se->tuned.max_write && se->conn.max_write > se->tuned.max_write)
		se->conn.max_write = se->tuned.max_write;
	if (TUNED_GIVEN(options, TUNED_MAX_WRITE) &&
	    se->conn.max_write < options->value[TUNED_MAX_WRITE] &&
	    tuned_refuse(se, TUNED_MAX_WRITE, "the server takes %u bytes", se->conn.max_write) == -1)
		return -1;
	if (TUNED_GIVEN(options, TUNED_MAX_READAHEAD)) {
		if (options->value[TUNED_MAX_READAHEAD] <= in->max_readahead)
			se->conn.max_readahead = options->value[TUNED_MAX_READAHEAD];
		else if (tuned_refuse(se, TUNED_MAX_READAHEAD,
				"the kernel offers %u bytes; read_ahead_kb of the mount can be "
				"set higher later", in->max_readahead) == -1)
			return -1;
	}
	if (TUNED_GIVEN(options, TUNED_MAX_BACKGROUND))
		se->conn.max_background = options->value[TUNED_MAX_BACKGROUND];
	if (TUNED_GIVEN(options, TUNED_CONGESTION_THRESHOLD))
		se->conn.congestion_threshold = options->value[TUNED_CONGESTION_THRESHOLD];
	return 0;
}

static int init_capabilities(struct fuse_session *se)
{
	static const unsigned int splice[] = {
		FUSE_CAP_SPLICE_READ, FUSE_CAP_SPLICE_WRITE, FUSE_CAP_SPLICE_MOVE
	};
	const struct tuned_options *options = &se->tuned.options;
	unsigned int i;

	if (TUNED_GIVEN(options, TUNED_WRITEBACK_CACHE)) {
		if (CAPABLE(&se->conn) & FUSE_CAP_WRITEBACK_CACHE)
			WANT(&se->conn) |= FUSE_CAP_WRITEBACK_CACHE;
		else if (tuned_refuse(se, TUNED_WRITEBACK_CACHE, "the kernel has none") == -1)
			return -1;
	}
	for (i = 0; TUNED_GIVEN(options, TUNED_SPLICE) && i < 3; i++) {
		if (!(options->value[TUNED_SPLICE] & (1U << i)))
			WANT(&se->conn) &= ~splice[i];
		else if (CAPABLE(&se->conn) & splice[i])
			WANT(&se->conn) |= splice[i];
		else if (tuned_refuse(se, TUNED_SPLICE, "neither kernel nor server has it") == -1)
			return -1;
	}
	return 0;
}

/* Without fuse_session_mount() nothing has been checked, and the server owns the buffers. */
static int check_unprepared(struct fuse_session *se)
{
	enum tuned_option option;

	for (option = 0; option < TUNED_IF_POSSIBLE; option++)
		if (TUNED_GIVEN(&se->tuned.options, option) &&
		    tuned_refuse(se, option, "this server makes its connection by itself") == -1)
			return -1;
	return 0;
}

int tuned_init(fuse_req_t req, const struct fuse_init_in *in)
{
	struct fuse_session *se = req->se;

	if ((!se->tuned.prepared && check_unprepared(se) == -1) ||
	    init_sizes(se, in) == -1 || init_capabilities(se) == -1) {
		fuse_reply_err(req, EPROTO);
		se->error = -EPROTO;
		fuse_session_exit(se);
		return -1;
	}
	tuned_init_open(&se->tuned, in);
	return 0;
}

void tuned_init_out(const struct fuse_session *se, struct fuse_init_out *out)
{
	if (TUNED_GIVEN(&se->tuned.options, TUNED_MAX_PAGES) && out->max_pages)
		out->max_pages = se->tuned.options.value[TUNED_MAX_PAGES];
	tuned_init_open_out(&se->tuned, out);
}

/*
 * With a writeback cache the kernel reads a page before writing part of it, and chooses the
 * position of appended data. So that servers need not support this, O_WRONLY becomes O_RDWR and
 * O_APPEND is removed.
 */
void tuned_open_in(const struct fuse_session *se, int *flags)
{
	if (!TUNED_GIVEN(&se->tuned.options, TUNED_WRITEBACK_CACHE))
		return;
	if ((*flags & O_ACCMODE) == O_WRONLY)
		*flags = (*flags & ~O_ACCMODE) | O_RDWR;
	*flags &= ~O_APPEND;
}

void tuned_open_out(const struct fuse_session *se, struct fuse_open_out *out)
{
	const struct tuned_options *options = &se->tuned.options;

	/* The kernel reads and writes such a file itself; direct_io would disable that. */
	if (out->open_flags & FOPEN_PASSTHROUGH)
		return;
	if (TUNED_GIVEN(options, TUNED_DIRECT_IO))
		out->open_flags |= FOPEN_DIRECT_IO;
	if (TUNED_GIVEN(options, TUNED_PARALLEL_DIRECT_WRITES))
		out->open_flags |= FOPEN_PARALLEL_DIRECT_WRITES;
}

void tuned_loop(const struct fuse_session *se, int *clone_fd, int *max_threads)
{
	const struct tuned_options *options = &se->tuned.options;

	if (TUNED_GIVEN(options, TUNED_CLONE_FD))
		*clone_fd = 1;
	if (TUNED_GIVEN(options, TUNED_MAX_THREADS))
		*max_threads = options->value[TUNED_MAX_THREADS];
}
