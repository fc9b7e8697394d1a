// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What the options do to a session.
 */
#define _GNU_SOURCE

#include "fuse_config.h"
#include "fuse_i.h"
#include "fuse_kernel.h"
#include "fuse_misc.h"
#include "fuse_opt.h"
#include "mount_util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE "/dev/fuse"
#define MODULE "fusetuned"
#define MODULE_DEVICE "/dev/" MODULE

/* Headers of some versions lack them; the protocol has them. */
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

/* The session that this thread is mounting by the module. */
static __thread struct fuse_session *mounting;

/*
 * Says that an option cannot be had. Returns -1, or 0 where options are only wanted if possible;
 * then it is as if it had not been given.
 */
static int __attribute__((format(printf, 3, 4)))
refuse(struct fuse_session *se, enum tuned_option option, const char *why, ...)
{
	struct tuned_options *options = &se->tuned.options;
	int drop = !!TUNED_GIVEN(options, TUNED_IF_POSSIBLE);
	char text[256];
	va_list args;

	va_start(args, why);
	vsnprintf(text, sizeof(text), why, args);
	va_end(args);
	fuse_log(FUSE_LOG_ERR, "fuse: %s is %s: %s\n", tuned_name(option),
		 drop ? "left out" : "refused", text);
	if (!drop)
		return -1;
	options->given &= ~(1U << option);
	return 0;
}

/* The number that a file of /proc or /sys holds, Y being 1; or what is taken in its place. */
static unsigned int read_number(const char *path, unsigned int otherwise)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[16] = "";
	unsigned long value;
	char *end;
	ssize_t got;

	if (fd == -1)
		return otherwise;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return otherwise;
	if (*text == 'Y' || *text == 'N')
		return *text == 'Y';
	value = strtoul(text, &end, 10);
	return end == text || value > UINT_MAX ? otherwise : value;
}

/* Arguments */

enum { KEY_OURS, KEY_SOURCE, KEY_SUBTYPE };

static const struct fuse_opt arguments[] = {
	FUSE_OPT_KEY("max_pages=", KEY_OURS),
	FUSE_OPT_KEY("max_write=", KEY_OURS),
	FUSE_OPT_KEY("max_readahead=", KEY_OURS),
	FUSE_OPT_KEY("max_background=", KEY_OURS),
	FUSE_OPT_KEY("congestion_threshold=", KEY_OURS),
	FUSE_OPT_KEY("max_threads=", KEY_OURS),
	FUSE_OPT_KEY("splice=", KEY_OURS),
	FUSE_OPT_KEY("writeback_cache", KEY_OURS),
	FUSE_OPT_KEY("direct_io", KEY_OURS),
	FUSE_OPT_KEY("parallel_direct_writes", KEY_OURS),
	FUSE_OPT_KEY("clone_fd", KEY_OURS),
#if FUSE_VERSION < FUSE_MAKE_VERSION(3, 18) /* later it is libfuse's own */
	FUSE_OPT_KEY("io_uring", KEY_OURS),
#endif
	FUSE_OPT_KEY("no_file_caps", KEY_OURS),
	FUSE_OPT_KEY("atomic_open", KEY_OURS),
	FUSE_OPT_KEY("tuned", KEY_OURS),
	FUSE_OPT_KEY("tuned_if_possible", KEY_OURS),
	FUSE_OPT_KEY("fsname=", KEY_SOURCE),
	FUSE_OPT_KEY("subtype=", KEY_SUBTYPE),
	FUSE_OPT_END
};

static int take_argument(void *data, const char *arg, int key, struct fuse_args *outargs)
{
	struct tuned *tuned = data;
	const char *wrong;

	(void)outargs;
	switch (key) {
	case KEY_OURS:
		wrong = tuned_take(&tuned->options, arg, strlen(arg));
		if (!wrong)
			return 0;
		fuse_log(FUSE_LOG_ERR, "fuse: %s %s\n", arg, wrong);
		return -1;
	case KEY_SOURCE:
		snprintf(tuned->source, sizeof(tuned->source), "%s", strchr(arg, '=') + 1);
		return 1;
	case KEY_SUBTYPE:
		snprintf(tuned->subtype, sizeof(tuned->subtype), "%s", strchr(arg, '=') + 1);
		return 1;
	default:
		return 1;
	}
}

int tuned_parse_args(struct fuse_session *se, struct fuse_args *args)
{
	return fuse_opt_parse(args, &se->tuned, arguments, take_argument);
}

/* Before the mount */

static int read_channels(struct fuse_session *se, const char *mountpoint)
{
	struct tuned *tuned = &se->tuned;
	char path[PATH_MAX], server[PATH_MAX], fstype[sizeof(tuned->subtype) + 8];
	struct tuned_about about = { .fstype = fstype };
	ssize_t length;

	snprintf(fstype, sizeof(fstype), "fuse%s%s", *tuned->subtype ? "." : "", tuned->subtype);
	about.source = *tuned->source ? tuned->source :
		       *tuned->subtype ? tuned->subtype : DEVICE;
	/* One handed over as an open device is mounted somewhere else. */
	if (fuse_mnt_parse_fuse_fd(mountpoint) == -1)
		about.path = realpath(mountpoint, path);
	length = readlink("/proc/self/exe", server, sizeof(server) - 1);
	if (length > 0) {
		server[length] = '\0';
		about.server = server;
	}
	return tuned_read_channels(&tuned->options, &about);
}

/* Whether the module can be had; one line where it is asked for and cannot. */
static int module_is_there(const struct fuse_session *se, const char *mountpoint)
{
	const char *why;

	if (!TUNED_GIVEN(&se->tuned.options, TUNED_MODULE))
		return 0;
	if (fuse_mnt_parse_fuse_fd(mountpoint) != -1)
		why = "the device is open already";
	else if (geteuid())
		why = "only root mounts by " MODULE;
	else if (access(MODULE_DEVICE, R_OK | W_OK) == -1)
		why = "there is no " MODULE_DEVICE;
	else
		return 1;
	fuse_log(FUSE_LOG_ERR, "fuse: mounted by the kernel's own FUSE: %s\n", why);
	return 0;
}

static int check_pages(struct fuse_session *se)
{
	struct tuned *tuned = &se->tuned;
	struct tuned_options *options = &tuned->options;
	uint32_t page = getpagesize(), most, bytes;

	/* The module has limits of its own, and says so. */
	most = tuned->by_module ? UINT16_MAX : read_number("/proc/sys/fs/fuse/max_pages_limit", 256);
	if (TUNED_GIVEN(options, TUNED_MAX_PAGES) && options->value[TUNED_MAX_PAGES] > most &&
	    refuse(se, TUNED_MAX_PAGES, "the limit is %u pages (fs.fuse.max_pages_limit)",
		   most) == -1)
		return -1;
	if (TUNED_GIVEN(options, TUNED_MAX_PAGES))
		most = options->value[TUNED_MAX_PAGES];
	bytes = options->value[TUNED_MAX_WRITE];
	if (TUNED_GIVEN(options, TUNED_MAX_WRITE) && (bytes - 1) / page >= most &&
	    refuse(se, TUNED_MAX_WRITE, "%u bytes are more than %u pages hold", bytes, most) == -1)
		return -1;
	if (TUNED_GIVEN(options, TUNED_MAX_WRITE))
		tuned->max_write = bytes;
	else if (TUNED_GIVEN(options, TUNED_MAX_PAGES))
		tuned->max_write = most * page;
	return 0;
}

/* A pipe must hold a whole request; beyond fs.pipe-max-size only a privileged one does. */
static int check_splice(struct fuse_session *se, size_t bytes)
{
	int fds[2], enough;

	if (!TUNED_GIVEN(&se->tuned.options, TUNED_SPLICE) ||
	    !se->tuned.options.value[TUNED_SPLICE])
		return 0;
	if (pipe2(fds, O_CLOEXEC) == -1)
		return refuse(se, TUNED_SPLICE, "no pipe: %s", strerror(errno));
	enough = fcntl(fds[0], F_SETPIPE_SZ, (int)bytes) != -1;
	close(fds[0]);
	close(fds[1]);
	if (enough)
		return 0;
	return refuse(se, TUNED_SPLICE,
		      "a pipe may not hold a request of %zu bytes; raise fs.pipe-max-size", bytes);
}

static int check_uring(struct fuse_session *se)
{
	const struct tuned_options *options = &se->tuned.options;

	if (!TUNED_GIVEN(options, TUNED_IO_URING))
		return 0;
#ifdef HAVE_URING
	if (!read_number(se->tuned.by_module ? "/sys/module/" MODULE "/parameters/enable_uring" :
					       "/sys/module/fuse/parameters/enable_uring", 0))
		return refuse(se, TUNED_IO_URING, "the module's parameter enable_uring is not set");
	if (TUNED_GIVEN(options, TUNED_MAX_PAGES) && TUNED_GIVEN(options, TUNED_MAX_WRITE) &&
	    options->value[TUNED_MAX_PAGES] >
	    (options->value[TUNED_MAX_WRITE] - 1) / getpagesize() + 1)
		return refuse(se, TUNED_IO_URING, "it needs max_write as large as max_pages");
	se->uring.enable = true;
	return 0;
#else
	return refuse(se, TUNED_IO_URING, "this libfuse is built without it");
#endif
}

static int check_rest(struct fuse_session *se)
{
	static const enum tuned_option modules[] = { TUNED_NO_FILE_CAPS, TUNED_ATOMIC_OPEN };
	const struct tuned_options *options = &se->tuned.options;
	unsigned int most, i;

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
	if (TUNED_GIVEN(options, TUNED_ATOMIC_OPEN) && se->uring.enable &&
	    refuse(se, TUNED_ATOMIC_OPEN, "it does not go with io_uring") == -1)
		return -1;
#endif
	for (i = 0; i < 2; i++)
		if (TUNED_GIVEN(options, modules[i]) && !se->tuned.by_module &&
		    refuse(se, modules[i], "it needs a mount by " MODULE) == -1)
			return -1;
	most = read_number("/sys/module/fuse/parameters/max_user_bgreq", UINT_MAX);
	if (TUNED_GIVEN(options, TUNED_MAX_BACKGROUND) && geteuid() &&
	    options->value[TUNED_MAX_BACKGROUND] > most)
		return refuse(se, TUNED_MAX_BACKGROUND, "the limit for users is %u (max_user_bgreq)",
			      most);
	return 0;
}

int tuned_settle(struct fuse_session *se, const char *mountpoint)
{
	struct tuned *tuned = &se->tuned;
	size_t bufsize;

	tuned->settled = 1;
	if (read_channels(se, mountpoint) == -1)
		return -1;
	tuned->by_module = module_is_there(se, mountpoint);
	if (check_pages(se) == -1)
		return -1;
	bufsize = tuned->max_write ? tuned->max_write + FUSE_BUFFER_HEADER_SIZE : se->bufsize;
	if (check_splice(se, bufsize) == -1 || check_uring(se) == -1 || check_rest(se) == -1)
		return -1;
	if (tuned->max_write) {
		se->conn.max_write = tuned->max_write;
		se->bufsize = bufsize;
	}
	return 0;
}

/* The mount */

/* Only root's own mount(2) knows of the module; what fusermount3 mounts is stock. */
static int is_modules(int fd)
{
	struct stat opened, module;

	return !fstat(fd, &opened) && !stat(MODULE_DEVICE, &module) &&
	       opened.st_rdev == module.st_rdev;
}

int tuned_kern_mount(struct fuse_session *se, const char *mountpoint)
{
	int fd;

	if (!se->tuned.by_module)
		return fuse_kern_mount(mountpoint, se->mo);
	mounting = se;
	fd = fuse_kern_mount(mountpoint, se->mo);
	mounting = NULL;
	se->tuned.by_module = fd != -1 && is_modules(fd);
	if (fd != -1 && !se->tuned.by_module)
		fuse_log(FUSE_LOG_ERR,
			 "fuse: mounted by fusermount3, and so by the kernel's own FUSE\n");
	return fd;
}

const char *tuned_mount_device(const char *stock)
{
	return mounting ? MODULE_DEVICE : stock;
}

const char *tuned_mount_type(const char *stock)
{
	if (!mounting)
		return stock;
	return strcmp(stock, "fuseblk") ? MODULE : MODULE "blk";
}

int tuned_mount_options(char **options, const char *more)
{
	static const enum tuned_option modules[] = {
		TUNED_NO_FILE_CAPS, TUNED_PARALLEL_DIRECT_WRITES, TUNED_ATOMIC_OPEN
	};
	const struct tuned_options *ours;
	unsigned int i;
	char pages[32];

	if (fuse_opt_add_opt(options, more) == -1)
		return -1;
	if (!mounting)
		return 0;
	ours = &mounting->tuned.options;
	snprintf(pages, sizeof(pages), "max_pages=%u", ours->value[TUNED_MAX_PAGES]);
	if (TUNED_GIVEN(ours, TUNED_MAX_PAGES) && fuse_opt_add_opt(options, pages) == -1)
		return -1;
	for (i = 0; i < 3; i++)
		if (TUNED_GIVEN(ours, modules[i]) &&
		    fuse_opt_add_opt(options, tuned_name(modules[i])) == -1)
			return -1;
	return 0;
}

const char *tuned_session_device(const struct fuse_session *se)
{
	return se->tuned.by_module ? MODULE_DEVICE : DEVICE;
}

/* INIT */

static int init_sizes(struct fuse_session *se, const struct fuse_init_in *in)
{
	const struct tuned_options *options = &se->tuned.options;

	/* A server that asks for less knows why. */
	if (se->tuned.max_write && se->conn.max_write > se->tuned.max_write)
		se->conn.max_write = se->tuned.max_write;
	if (TUNED_GIVEN(options, TUNED_MAX_WRITE) &&
	    se->conn.max_write < options->value[TUNED_MAX_WRITE] &&
	    refuse(se, TUNED_MAX_WRITE, "the server takes %u bytes", se->conn.max_write) == -1)
		return -1;
	if (TUNED_GIVEN(options, TUNED_MAX_READAHEAD)) {
		if (options->value[TUNED_MAX_READAHEAD] <= in->max_readahead)
			se->conn.max_readahead = options->value[TUNED_MAX_READAHEAD];
		else if (refuse(se, TUNED_MAX_READAHEAD,
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
		else if (refuse(se, TUNED_WRITEBACK_CACHE, "the kernel has none") == -1)
			return -1;
	}
	for (i = 0; TUNED_GIVEN(options, TUNED_SPLICE) && i < 3; i++) {
		if (!(options->value[TUNED_SPLICE] & (1U << i)))
			WANT(&se->conn) &= ~splice[i];
		else if (CAPABLE(&se->conn) & splice[i])
			WANT(&se->conn) |= splice[i];
		else if (refuse(se, TUNED_SPLICE, "neither kernel nor server has it") == -1)
			return -1;
	}
	return 0;
}

/* Without fuse_session_mount() nothing was checked, and the buffers are the server's. */
static int init_unsettled(struct fuse_session *se)
{
	enum tuned_option option;

	for (option = 0; option < TUNED_IF_POSSIBLE; option++)
		if (TUNED_GIVEN(&se->tuned.options, option) &&
		    refuse(se, option, "this server makes its connection by itself") == -1)
			return -1;
	return 0;
}

int tuned_init(fuse_req_t req, const struct fuse_init_in *in)
{
	struct fuse_session *se = req->se;

	if ((!se->tuned.settled && init_unsettled(se) == -1) ||
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

/* Requests */

/*
 * With a writeback cache the kernel reads what is only partly written, and appends by itself. A
 * server that was not made for that is asked for a file that bears it.
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

	/* Reads and writes of such a file never come here; direct_io would end that. */
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
