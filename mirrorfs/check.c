// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checks of the options: their combinations, this libfuse, and the paths.
 */
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int usage_error(const char *what, const char *why, const char *remedy)
{
	fprintf(stderr, "mirrorfs: %s: %s; %s\n", what, why, remedy);
	return EXIT_USAGE;
}

static int runtime_error(const char *what, const char *remedy)
{
	fprintf(stderr, "mirrorfs: %s: %s; %s\n", what, strerror(errno), remedy);
	return EXIT_RUNTIME;
}

static int resolve_dir(char **path, const char *remedy)
{
	char *resolved = realpath(*path, NULL);
	struct stat st;

	if (!resolved)
		return runtime_error(*path, remedy);
	free(*path);
	*path = resolved;
	if (stat(resolved, &st) == -1)
		return runtime_error(resolved, remedy);
	if (!S_ISDIR(st.st_mode)) {
		errno = ENOTDIR;
		return runtime_error(resolved, remedy);
	}
	return 0;
}

/* The file need not exist, but its directory must. */
static int resolve_file(char **path)
{
	char *slash = strrchr(*path, '/');
	const char *name = slash ? slash + 1 : *path;
	char *dir = NULL, *resolved = NULL;
	int status;

	if (!*name) {
		errno = EISDIR;
		return runtime_error(*path, "name a file with -o counters=FILE");
	}
	dir = slash ? strndup(*path, (size_t)(slash - *path) + 1) : strdup(".");
	status = dir ? resolve_dir(&dir, "give -o counters= a file in a directory that exists")
			: runtime_error(*path, "try again with more memory");
	if (status)
		goto out;
	if (asprintf(&resolved, "%s/%s", strcmp(dir, "/") ? dir : "", name) == -1) {
		status = runtime_error(*path, "try again with more memory");
		goto out;
	}
	free(*path);
	*path = resolved;
out:
	free(dir);
	return status;
}

static bool lies_in(const char *path, const char *dir)
{
	size_t length = strcmp(dir, "/") ? strlen(dir) : 0;

	return strncmp(path, dir, length) == 0 && (path[length] == '/' || !path[length]);
}

/* The server must never be its own client: once all its threads wait, it would hang. */
static int check_paths(struct options *opts)
{
	int status;

	if (!opts->source || !opts->mountpoint)
		return usage_error(opts->source ? "MOUNTPOINT" : "SOURCE", "missing",
				   "run mirrorfs [options] SOURCE MOUNTPOINT, or --help");
	status = resolve_dir(&opts->source, "name an existing directory as SOURCE");
	if (!status)
		status = resolve_dir(&opts->mountpoint,
					"name an existing directory as MOUNTPOINT, and unmount a dead one");
	if (!status && opts->counters)
		status = resolve_file(&opts->counters);
	if (status)
		return status;
	if (lies_in(opts->source, opts->mountpoint))
		return usage_error(opts->source, "SOURCE lies inside MOUNTPOINT",
				   "mount somewhere else");
	if (lies_in(opts->mountpoint, opts->source))
		return usage_error(opts->mountpoint, "MOUNTPOINT lies inside SOURCE",
				   "mount somewhere else");
	if (opts->counters && lies_in(opts->counters, opts->mountpoint))
		return usage_error(opts->counters, "the counters lie inside MOUNTPOINT",
				   "write them somewhere else");
	return 0;
}

static int check_library(const struct options *opts)
{
#ifndef HAVE_PARALLEL_DIRECT_WRITES
	if (opts->parallel_direct_writes) {
		fprintf(stderr, "mirrorfs: parallel_direct_writes: libfuse %s lacks it; "
			"leave it out, or use libfuse 3.15 or later\n", fuse_pkgversion());
		return EXIT_RUNTIME;
	}
#endif
#ifndef HAVE_PASSTHROUGH
	if (opts->passthrough) {
		fprintf(stderr, "mirrorfs: passthrough: libfuse %s lacks it; "
			"leave it out, or use libfuse 3.17 or later\n", fuse_pkgversion());
		return EXIT_RUNTIME;
	}
#endif
	(void)opts;
	return 0;
}

static int check_combinations(const struct options *opts)
{
	if (opts->passthrough && (opts->writeback || opts->direct_io))
		return usage_error("-o passthrough",
				   "excludes writeback and direct_io in the kernel",
				   "leave one out");
	if (opts->writeback && opts->direct_io)
		return usage_error("-o writeback,direct_io", "direct I/O leaves nothing to write back",
				   "leave one out");
	if (opts->tuned && opts->not_tuned)
		return usage_error(opts->not_tuned, "applies to libfuse's own mount only",
				   "leave it out, or give it in tuned_options=");
	if (opts->tuned && opts->clone_fd)
		return usage_error("-o tuned,clone_fd", "libfuse clones /dev/fuse only",
				   "leave one out");
	if (opts->tuned_options && !opts->tuned)
		return usage_error("-o tuned_options", "only the module fusetuned has them",
				   "give tuned too");
	if (opts->served && !opts->delay_ns && !opts->read_delay_ns && !opts->write_delay_ns)
		return usage_error("-o served", "it has no effect without a delay",
				   "give delay=, read_delay= or write_delay= too");
	if (opts->served > 1 && opts->singlethread)
		return usage_error("-s", "one thread cannot serve several requests at once",
				   "leave out -s or give served=1");
	return 0;
}

int options_check(struct options *opts)
{
	int status = check_combinations(opts);

	if (!status)
		status = check_library(opts);
	if (!status)
		status = check_paths(opts);
	return status;
}
