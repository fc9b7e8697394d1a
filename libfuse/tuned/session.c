// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Options of a session: parsed from the arguments, completed from the other
 * sources and checked before the mount.
 *
 * Sections match the mount point, among other things, which only
 * fuse_session_mount() knows; so the options are completed there. At that point no
 * buffer has been allocated, and some options change the size of the buffers.
 */
#define _GNU_SOURCE

#include "fuse_config.h"
#include "fuse_i.h"
#include "fuse_opt.h"
#include "mount_util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int tuned_refuse(struct fuse_session *se, enum tuned_option option, const char *why, ...)
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

/* Returns the number in a file of /proc or /sys, with Y as 1; `otherwise` if there is none. */
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

enum { KEY_OURS, KEY_SOURCE, KEY_SUBTYPE };

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
	struct fuse_opt arguments[TUNED_OPTIONS + 3] = {
		FUSE_OPT_KEY("fsname=", KEY_SOURCE),
		FUSE_OPT_KEY("subtype=", KEY_SUBTYPE),
	};
	char names[TUNED_OPTIONS][32];
	enum tuned_option option;
	int used = 2;

	for (option = 0; option < TUNED_OPTIONS; option++) {
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
		if (option == TUNED_IO_URING)
			continue; /* libfuse has this option itself */
#endif
		snprintf(names[option], sizeof(names[option]), "%s%s", tuned_name(option),
			 tuned_has_value(option) ? "=" : "");
		arguments[used++] = (struct fuse_opt) FUSE_OPT_KEY(names[option], KEY_OURS);
	}
	return fuse_opt_parse(args, &se->tuned, arguments, take_argument);
}

static int read_channels(struct fuse_session *se, const char *mountpoint)
{
	struct tuned *tuned = &se->tuned;
	char path[PATH_MAX], server[PATH_MAX], fstype[sizeof(tuned->subtype) + 8];
	struct tuned_about about = { .fstype = fstype };
	ssize_t length;

	snprintf(fstype, sizeof(fstype), "fuse%s%s", *tuned->subtype ? "." : "", tuned->subtype);
	about.source = *tuned->source ? tuned->source :
		       *tuned->subtype ? tuned->subtype : TUNED_STOCK_DEVICE;
	/* /dev/fd/N is an open device, whose mount point is not known. */
	if (fuse_mnt_parse_fuse_fd(mountpoint) == -1)
		about.path = realpath(mountpoint, path);
	length = readlink("/proc/self/exe", server, sizeof(server) - 1);
	if (length > 0) {
		server[length] = '\0';
		about.server = server;
	}
	return tuned_read_channels(&tuned->options, &about);
}

/* Whether to mount with the module. Prints one line if it was requested but cannot be used. */
static int module_is_there(const struct fuse_session *se, const char *mountpoint)
{
	const char *why;

	if (!TUNED_GIVEN(&se->tuned.options, TUNED_MODULE))
		return 0;
	if (fuse_mnt_parse_fuse_fd(mountpoint) != -1)
		why = "the device is open already";
	else if (geteuid())
		why = "only root can mount with " TUNED_MODULE_NAME;
	else if (access(TUNED_MODULE_DEVICE, R_OK | W_OK) == -1)
		why = "there is no " TUNED_MODULE_DEVICE;
	else
		return 1;
	fuse_log(FUSE_LOG_ERR, "fuse: mounted with the kernel's own FUSE: %s\n", why);
	return 0;
}

static int check_pages(struct fuse_session *se)
{
	struct tuned *tuned = &se->tuned;
	struct tuned_options *options = &tuned->options;
	uint32_t page = getpagesize(), most, bytes;

	/* The module checks and reports its own limits. */
	most = tuned->by_module ? UINT16_MAX : read_number("/proc/sys/fs/fuse/max_pages_limit", 256);
	if (TUNED_GIVEN(options, TUNED_MAX_PAGES) && options->value[TUNED_MAX_PAGES] > most &&
	    tuned_refuse(se, TUNED_MAX_PAGES, "the limit is %u pages (fs.fuse.max_pages_limit)",
		   most) == -1)
		return -1;
	if (TUNED_GIVEN(options, TUNED_MAX_PAGES))
		most = options->value[TUNED_MAX_PAGES];
	bytes = options->value[TUNED_MAX_WRITE];
	if (TUNED_GIVEN(options, TUNED_MAX_WRITE) && (bytes - 1) / page >= most &&
	    tuned_refuse(se, TUNED_MAX_WRITE, "%u bytes are more than %u pages hold", bytes, most) == -1)
		return -1;
	if (TUNED_GIVEN(options, TUNED_MAX_WRITE))
		tuned->max_write = bytes;
	else if (TUNED_GIVEN(options, TUNED_MAX_PAGES))
		tuned->max_write = most * page;
	return 0;
}

/*
 * libfuse silently falls back to read(2) if a pipe cannot hold a whole request, so
 * check that here. Only root may exceed fs.pipe-max-size.
 */
static int check_splice(struct fuse_session *se, size_t bytes)
{
	int fds[2], enough;

	if (!TUNED_GIVEN(&se->tuned.options, TUNED_SPLICE) ||
	    !se->tuned.options.value[TUNED_SPLICE])
		return 0;
	if (pipe2(fds, O_CLOEXEC) == -1)
		return tuned_refuse(se, TUNED_SPLICE, "no pipe: %s", strerror(errno));
	enough = fcntl(fds[0], F_SETPIPE_SZ, (int)bytes) != -1;
	close(fds[0]);
	close(fds[1]);
	if (enough)
		return 0;
	return tuned_refuse(se, TUNED_SPLICE,
		      "a pipe may not hold a request of %zu bytes; raise fs.pipe-max-size", bytes);
}

static int check_uring(struct fuse_session *se)
{
	const struct tuned_options *options = &se->tuned.options;

	if (!TUNED_GIVEN(options, TUNED_IO_URING))
		return 0;
#ifdef HAVE_URING
	if (!read_number(se->tuned.by_module ? "/sys/module/" TUNED_MODULE_NAME "/parameters/enable_uring" :
					       "/sys/module/fuse/parameters/enable_uring", 0))
		return tuned_refuse(se, TUNED_IO_URING, "the module's parameter enable_uring is not set");
	if (TUNED_GIVEN(options, TUNED_MAX_PAGES) && TUNED_GIVEN(options, TUNED_MAX_WRITE) &&
	    options->value[TUNED_MAX_PAGES] >
	    (options->value[TUNED_MAX_WRITE] - 1) / getpagesize() + 1)
		return tuned_refuse(se, TUNED_IO_URING, "it needs max_write as large as max_pages");
	se->uring.enable = true;
	return 0;
#else
	return tuned_refuse(se, TUNED_IO_URING, "this libfuse is built without it");
#endif
}

static int check_rest(struct fuse_session *se)
{
	static const enum tuned_option modules[] = { TUNED_NO_FILE_CAPS, TUNED_ATOMIC_OPEN };
	const struct tuned_options *options = &se->tuned.options;
	unsigned int most, i;

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
	if (TUNED_GIVEN(options, TUNED_ATOMIC_OPEN) && se->uring.enable &&
	    tuned_refuse(se, TUNED_ATOMIC_OPEN, "it does not go with io_uring") == -1)
		return -1;
#endif
	for (i = 0; i < 2; i++)
		if (TUNED_GIVEN(options, modules[i]) && !se->tuned.by_module &&
		    tuned_refuse(se, modules[i], "it needs a mount with " TUNED_MODULE_NAME) == -1)
			return -1;
	most = read_number("/sys/module/fuse/parameters/max_user_bgreq", UINT_MAX);
	if (TUNED_GIVEN(options, TUNED_MAX_BACKGROUND) && geteuid() &&
	    options->value[TUNED_MAX_BACKGROUND] > most)
		return tuned_refuse(se, TUNED_MAX_BACKGROUND, "the limit for users is %u (max_user_bgreq)",
			      most);
	return 0;
}

int tuned_prepare(struct fuse_session *se, const char *mountpoint)
{
	struct tuned *tuned = &se->tuned;
	size_t bufsize;

	tuned->prepared = 1;
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

void tuned_read(struct fuse_buf *buf)
{
	buf->flags &= ~FUSE_BUF_IS_FD;
}
