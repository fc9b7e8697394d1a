// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The reply to INIT: which of the kernel's capabilities the server wants.
 */
#include "ops.h"

#include <fcntl.h>
#include <unistd.h>

static bool want(struct fuse_conn_info *conn, uint64_t flag)
{
#ifdef HAVE_FEATURE_FLAGS
	return fuse_set_feature_flag(conn, flag);
#else
	if (!(conn->capable & flag))
		return false;
	conn->want |= (unsigned int)flag;
	return true;
#endif
}

static void unwant(struct fuse_conn_info *conn, uint64_t flag)
{
#ifdef HAVE_FEATURE_FLAGS
	fuse_unset_feature_flag(conn, flag);
#else
	conn->want &= ~(unsigned int)flag;
#endif
}

static void want_splice(struct fuse_conn_info *conn, unsigned int splice)
{
	static const struct { unsigned int bit; uint64_t flag; } flags[] = {
		{ SPLICE_READ, FUSE_CAP_SPLICE_READ },
		{ SPLICE_WRITE, FUSE_CAP_SPLICE_WRITE },
		{ SPLICE_MOVE, FUSE_CAP_SPLICE_MOVE },
	};
	size_t i;

	for (i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (splice & flags[i].bit)
			want(conn, flags[i].flag);
		else
			unwant(conn, flags[i].flag);
	}
}

static bool want_passthrough(struct fuse_conn_info *conn)
{
#ifdef HAVE_PASSTHROUGH
	/* The source may be on overlayfs, as in containers, which counts as one level. */
	conn->max_backing_stack_depth = FUSE_BACKING_STACKED_OVER;
	return want(conn, FUSE_CAP_PASSTHROUGH);
#else
	(void)conn;
	return false;
#endif
}

/*
 * How many bytes of data fit into a pipe with their request: the largest request if
 * this user may have such a pipe, otherwise what fs.pipe-max-size allows.
 */
static size_t probe_pipe_room(size_t request)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fds[2], room;
	FILE *limit;

	if (pipe2(fds, O_CLOEXEC) == -1)
		return 0;
	room = fcntl(fds[0], F_SETPIPE_SZ, request + 2 * page);
	if (room == -1 && (limit = fopen("/proc/sys/fs/pipe-max-size", "re"))) {
		if (fscanf(limit, "%d", &room) != 1)
			room = -1;
		fclose(limit);
	}
	close(fds[0]);
	close(fds[1]);
	/* One page for the header, one for data that does not start on a page boundary. */
	return room < (int)(2 * page) ? 0 : (size_t)room - 2 * page;
}

void mirror_init(void *userdata, struct fuse_conn_info *conn)
{
	struct mirror *mirror = userdata;
	const struct options *opts = &mirror->opts;

	want_splice(conn, opts->splice);
	want(conn, FUSE_CAP_PARALLEL_DIROPS);
	/* Writes by root keep set-ID bits, so the kernel must clear them where it can. */
	unwant(conn, FUSE_CAP_HANDLE_KILLPRIV);
	if (opts->max_write)
		conn->max_write = (unsigned int)opts->max_write;
	if (opts->max_readahead)
		conn->max_readahead = (unsigned int)opts->max_readahead;
	if (opts->max_background)
		conn->max_background = (unsigned int)opts->max_background;
	if (opts->writeback && !want(conn, FUSE_CAP_WRITEBACK_CACHE)) {
		mirror->refused(mirror, "writeback: this kernel lacks it; leave it out");
		return;
	}
	if (opts->passthrough && !want_passthrough(conn)) {
		mirror->refused(mirror, "passthrough: this kernel lacks it; "
				"leave it out, or use Linux 6.9 or later");
		return;
	}
	mirror->splice_room = probe_pipe_room(conn->max_write);
	counters_negotiated(conn);
	mirror->started(mirror);
}
