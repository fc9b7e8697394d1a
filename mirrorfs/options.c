// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The command line. One table says what each option is, so that --help and
 * the parser cannot disagree.
 */
#include "mirrorfs.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB 1024ULL
#define MIB (KIB * KIB)
#define TIB (MIB * MIB)

#ifdef HAVE_LARGE_WRITES
#define MAX_WRITE_LIMIT (128 * MIB)
#define MAX_WRITE_RANGE "4K to 128M"
#else
#define MAX_WRITE_LIMIT (1 * MIB)
#define MAX_WRITE_RANGE "4K to 1M with this libfuse"
#endif

enum kind { FLAG, SIZE, NUMBER, DURATION, SECONDS, PATHNAME, LIST, SPLICE, ATOMIC_OPEN };

struct option {
	const char *name;
	enum kind kind;
	size_t offset;
	uint64_t min, max;
	const char *range;	/* for people; min and max are what counts */
	const char *help;
};

#define AT(field) offsetof(struct options, field)

static const struct option table[] = {
	{ "writeback", FLAG, AT(writeback), 0, 0, "",
	  "writes are gathered in the kernel's cache" },
	{ "direct_io", FLAG, AT(direct_io), 0, 0, "",
	  "reads and writes go past the kernel's cache" },
	{ "parallel_direct_writes", FLAG, AT(parallel_direct_writes), 0, 0, "",
	  "direct writes to one file run at once (libfuse 3.15)" },
	{ "passthrough", FLAG, AT(passthrough), 0, 0, "",
	  "the kernel reads and writes the source itself\n(libfuse 3.17, Linux 6.9, root)" },
	{ "keep_cache", FLAG, AT(keep_cache), 0, 0, "",
	  "cached data outlives the last close" },
	{ "no_xattr", FLAG, AT(no_xattr), 0, 0, "",
	  "no extended attributes; the kernel asks once" },
	{ "splice", SPLICE, AT(splice), 0, 0, "off or read, write, move joined by +",
	  "what moves by splice(2): requests read, answers\nwritten, pages moved (needs write)" },
	{ "max_write", SIZE, AT(max_write), 4 * KIB, MAX_WRITE_LIMIT, MAX_WRITE_RANGE,
	  "largest WRITE, and with it the largest READ" },
	{ "max_readahead", SIZE, AT(max_readahead), 4 * KIB, 1024 * MIB, "4K to 1G",
	  "readahead asked for at INIT; it can only lower\nthe mount's read_ahead_kb" },
	{ "max_background", NUMBER, AT(max_background), 1, 65535, "1 to 65535 requests",
	  "background requests in flight (kernel default 12)" },
	{ "threads", NUMBER, AT(threads), 1, 4096, "1 to 4096 threads",
	  "worker threads at most (default 10; 64 when slowed;\nnever fewer than 2 * served + 2)" },
	{ "clone_fd", FLAG, AT(clone_fd), 0, 0, "",
	  "each worker thread reads a /dev/fuse of its own" },
	{ "timeout", SECONDS, AT(timeout_ns), 0, 1000000000 * NSEC_PER_SEC,
	  "0 to 1000000000 seconds, fractions allowed",
	  "how long names and attributes stay cached (default 1)" },
	{ "serialize_alloc", SIZE, AT(serialize_alloc), 4 * KIB, 128 * MIB, "4K to 128M",
	  "a WRITE of at least this gets its blocks whole,\nbefore another one gets any" },
	{ "entry_timeout", SECONDS, AT(entry_timeout_ns), 0, 1000000000 * NSEC_PER_SEC,
	  "0 to 1000000000 seconds, fractions allowed",
	  "the same for names alone, in place of timeout" },
	{ "negative_timeout", SECONDS, AT(negative_timeout_ns), 0, 1000000000 * NSEC_PER_SEC,
	  "0 to 1000000000 seconds, fractions allowed",
	  "how long it stays cached that a name is not there\n(default 0)" },
	{ "delay", DURATION, AT(delay_ns), 0, 60 * NSEC_PER_SEC, "0s to 60s; us, ms or s",
	  "each request takes this long, save FORGET,\nRELEASE, RELEASEDIR" },
	{ "read_delay", DURATION, AT(read_delay_ns), 0, 60 * NSEC_PER_SEC,
	  "0s to 60s; us, ms or s", "the same for READ alone, in place of delay" },
	{ "write_delay", DURATION, AT(write_delay_ns), 0, 60 * NSEC_PER_SEC,
	  "0s to 60s; us, ms or s", "the same for WRITE alone, in place of delay" },
	{ "served", NUMBER, AT(served), 1, 1024, "1 to 1024 requests",
	  "delayed requests served at once, the others queue\n(default: as many as there are threads)" },
	{ "bandwidth", SIZE, AT(bandwidth), 4 * KIB, TIB, "4K to 1024G bytes a second",
	  "READ and WRITE data together stay below this" },
	{ "fail_every", NUMBER, AT(fail_every), 1, UINT32_MAX, "1 to 4294967295",
	  "each Nth WRITE since the mount fails with EIO" },
	{ "short_every", NUMBER, AT(short_every), 1, UINT32_MAX, "1 to 4294967295",
	  "each Nth WRITE since the mount writes half of its bytes" },
	{ "tuned", FLAG, AT(tuned), 0, 0, "",
	  "mount by the module fusetuned, as root; what is the\nmount's own goes into tuned_options then" },
	{ "tuned_options", LIST, AT(tuned_options), 0, 0, "names and name=value joined by +",
	  "mount options for the module fusetuned" },
	{ "atomic_open", ATOMIC_OPEN, AT(atomic_open), 0, 0, "off, echo or on",
	  "what the server says to tuned_options=atomic_open:\nnothing, INIT's bit sent back blindly, or it serves it\n(default on)" },
	{ "counters", PATHNAME, AT(counters), 0, 0, "file outside the mount",
	  "request counts as JSON: at start, at SIGUSR1, after\nSIGUSR2 (which zeroes them) and at exit" },
};

#define TABLE_SIZE (sizeof(table) / sizeof(table[0]))

enum {
	KEY_HELP = 1000,
	KEY_VERSION,
	KEY_FOREGROUND,
	KEY_DEBUG,
	KEY_SINGLETHREAD,
	KEY_FSNAME,
};

static const struct fuse_opt plain_options[] = {
	FUSE_OPT_KEY("-h", KEY_HELP),
	FUSE_OPT_KEY("--help", KEY_HELP),
	FUSE_OPT_KEY("-V", KEY_VERSION),
	FUSE_OPT_KEY("--version", KEY_VERSION),
	FUSE_OPT_KEY("-f", KEY_FOREGROUND),
	FUSE_OPT_KEY("-d", KEY_DEBUG),
	FUSE_OPT_KEY("debug", KEY_DEBUG),
	FUSE_OPT_KEY("-s", KEY_SINGLETHREAD),
	FUSE_OPT_KEY("fsname=", KEY_FSNAME),
};

#define PLAIN_SIZE (sizeof(plain_options) / sizeof(plain_options[0]))

static int usage_error(const char *what, const char *why, const char *remedy)
{
	fprintf(stderr, "mirrorfs: %s: %s; %s\n", what, why, remedy);
	return EXIT_USAGE;
}

static int value_error(const char *arg, const struct option *option)
{
	fprintf(stderr, "mirrorfs: -o %s: not a valid value; give %s\n", arg, option->range);
	return -1;
}

/* Digits with an optional fraction, as a count of 1/scale. */
static int parse_decimal(const char *text, char **end, uint64_t scale, uint64_t *value)
{
	uint64_t fraction = 0, unit = scale;

	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	*value = strtoull(text, end, 10);
	if (errno || *value > UINT64_MAX / scale)
		return -1;
	*value *= scale;
	if (**end != '.')
		return 0;
	text = *end + 1;
	if (*text < '0' || *text > '9')
		return -1;
	for (; *text >= '0' && *text <= '9'; text++) {
		unit /= 10;
		fraction += unit * (uint64_t)(*text - '0');
	}
	*end = (char *)text;
	*value += fraction;
	return 0;
}

static int parse_number(const char *text, uint64_t *value)
{
	char *end;

	if (parse_decimal(text, &end, 1, value) != 0)
		return -1;
	return *end == '\0' && !strchr(text, '.') ? 0 : -1;
}

static int parse_size(const char *text, uint64_t *value)
{
	uint64_t unit = 1;
	char *end;

	if (parse_decimal(text, &end, 1, value) != 0 || strchr(text, '.'))
		return -1;
	switch (*end) {
	case 'K': case 'k': unit = KIB; end++; break;
	case 'M': case 'm': unit = MIB; end++; break;
	case 'G': case 'g': unit = KIB * MIB; end++; break;
	}
	if (*end || *value > UINT64_MAX / unit)
		return -1;
	*value *= unit;
	return 0;
}

static int parse_duration(const char *text, uint64_t *value)
{
	static const struct { const char *suffix; uint64_t ns; } units[] = {
		{ "us", 1000 }, { "ms", 1000000 }, { "s", NSEC_PER_SEC },
	};
	size_t i, length = strspn(text, "0123456789.");
	char *end;

	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(text + length, units[i].suffix) != 0)
			continue;
		if (parse_decimal(text, &end, units[i].ns, value) != 0)
			return -1;
		return end == text + length ? 0 : -1;
	}
	return -1;
}

static int parse_seconds(const char *text, uint64_t *value)
{
	char *end;

	if (parse_decimal(text, &end, NSEC_PER_SEC, value) != 0)
		return -1;
	return *end == '\0' ? 0 : -1;
}

static int parse_splice(const char *text, unsigned int *splice)
{
	static const struct { const char *name; unsigned int bit; } words[] = {
		{ "read", SPLICE_READ }, { "write", SPLICE_WRITE }, { "move", SPLICE_MOVE },
	};
	size_t i, length;

	*splice = 0;
	if (strcmp(text, "off") == 0)
		return 0;
	for (;; text += length + 1) {
		length = strcspn(text, "+");
		for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (strlen(words[i].name) == length &&
			    strncmp(text, words[i].name, length) == 0)
				break;
		if (i == sizeof(words) / sizeof(words[0]))
			return -1;
		*splice |= words[i].bit;
		if (!text[length])
			break;
	}
	return (*splice & SPLICE_MOVE) && !(*splice & SPLICE_WRITE) ? -1 : 0;
}

static int parse_atomic_open(const char *text, enum atomic_open *value)
{
	static const char *const words[] = {
		[ATOMIC_OPEN_OFF] = "off", [ATOMIC_OPEN_ECHO] = "echo", [ATOMIC_OPEN_ON] = "on",
	};
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(text, words[i]) != 0)
			continue;
		*value = (enum atomic_open)i;
		return 0;
	}
	return -1;
}

static int set_text(char **field, const char *text)
{
	char *copy = strdup(text);

	if (!copy) {
		fprintf(stderr, "mirrorfs: out of memory\n");
		return -1;
	}
	free(*field);
	*field = copy;
	return 0;
}

static int take_option(struct options *opts, const struct option *option, const char *arg)
{
	const char *text = strchr(arg, '=');
	void *field = (char *)opts + option->offset;
	uint64_t value = 0;
	int failed = 0;

	text = text ? text + 1 : "";
	switch (option->kind) {
	case FLAG:
		*(bool *)field = true;
		return 0;
	case PATHNAME:
	case LIST:
		if (!*text)
			return value_error(arg, option);
		return set_text(field, text);
	case SPLICE:
		return parse_splice(text, field) == 0 ? 0 : value_error(arg, option);
	case ATOMIC_OPEN:
		return parse_atomic_open(text, field) == 0 ? 0 : value_error(arg, option);
	case SIZE:
		failed = parse_size(text, &value);
		break;
	case NUMBER:
		failed = parse_number(text, &value);
		break;
	case DURATION:
		failed = parse_duration(text, &value);
		break;
	case SECONDS:
		failed = parse_seconds(text, &value);
		break;
	}
	if (failed || value < option->min || value > option->max)
		return value_error(arg, option);
	*(uint64_t *)field = value;
	return 0;
}

static int take_plain(struct options *opts, int key, const char *arg)
{
	switch (key) {
	case KEY_HELP:
		opts->help = true;
		return 0;
	case KEY_VERSION:
		opts->version = true;
		return 0;
	case KEY_FOREGROUND:
		opts->foreground = true;
		return 0;
	case KEY_DEBUG:
		opts->debug = true;
		opts->foreground = true;
		return 1;
	case KEY_SINGLETHREAD:
		opts->singlethread = true;
		return 0;
	case KEY_FSNAME:
		opts->fsname_given = true;
		break;
	case FUSE_OPT_KEY_NONOPT:
		if (!opts->source)
			return set_text(&opts->source, arg);
		if (!opts->mountpoint)
			return set_text(&opts->mountpoint, arg);
		usage_error(arg, "one argument too many", "give SOURCE and MOUNTPOINT only");
		return -1;
	}
	return set_text(&opts->not_tuned, arg) == 0 ? 1 : -1;
}

/* fuse_opt's callback: 1 keeps the argument for libfuse, -1 is an error. */
static int take(void *data, const char *arg, int key, struct fuse_args *outargs)
{
	struct options *opts = data;

	(void)outargs;
	if (key >= 0 && key < (int)TABLE_SIZE)
		return take_option(opts, &table[key], arg);
	return take_plain(opts, key, arg);
}

static int parse_args(struct options *opts, struct fuse_args *args)
{
	struct fuse_opt specs[TABLE_SIZE + PLAIN_SIZE + 1] = { 0 };
	char templates[TABLE_SIZE][32];
	size_t i;

	for (i = 0; i < TABLE_SIZE; i++) {
		snprintf(templates[i], sizeof(templates[i]), "%s%s", table[i].name,
			 table[i].kind == FLAG ? "" : "=");
		specs[i] = (struct fuse_opt)FUSE_OPT_KEY(templates[i], (int)i);
	}
	memcpy(&specs[TABLE_SIZE], plain_options, sizeof(plain_options));
	return fuse_opt_parse(args, opts, specs, take) == 0 ? 0 : EXIT_USAGE;
}

static int runtime_error(const char *what, const char *remedy)
{
	fprintf(stderr, "mirrorfs: %s: %s; %s\n", what, strerror(errno), remedy);
	return EXIT_RUNTIME;
}

static int resolve_folder(char **path, const char *remedy)
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

/* The file itself need not exist, its folder must. */
static int resolve_file(char **path)
{
	char *slash = strrchr(*path, '/');
	const char *name = slash ? slash + 1 : *path;
	char *folder = NULL, *resolved = NULL;
	int status;

	if (!*name) {
		errno = EISDIR;
		return runtime_error(*path, "name a file with -o counters=FILE");
	}
	folder = slash ? strndup(*path, (size_t)(slash - *path) + 1) : strdup(".");
	status = folder ? resolve_folder(&folder, "give -o counters= a file in a folder that exists")
			: runtime_error(*path, "try again with more memory");
	if (status)
		goto out;
	if (asprintf(&resolved, "%s/%s", strcmp(folder, "/") ? folder : "", name) == -1) {
		status = runtime_error(*path, "try again with more memory");
		goto out;
	}
	free(*path);
	*path = resolved;
out:
	free(folder);
	return status;
}

static bool lies_in(const char *path, const char *folder)
{
	size_t length = strcmp(folder, "/") ? strlen(folder) : 0;

	return strncmp(path, folder, length) == 0 && (path[length] == '/' || !path[length]);
}

/* The server must never be its own client: with all threads waiting it would hang. */
static int check_paths(struct options *opts)
{
	int status;

	if (!opts->source || !opts->mountpoint)
		return usage_error(opts->source ? "MOUNTPOINT" : "SOURCE", "missing",
				   "run mirrorfs [options] SOURCE MOUNTPOINT, or --help");
	status = resolve_folder(&opts->source, "name an existing folder as SOURCE");
	if (!status)
		status = resolve_folder(&opts->mountpoint,
					"name an existing folder as MOUNTPOINT, and unmount a dead one");
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
				   "the kernel has it without writeback and direct_io only",
				   "leave one out");
	if (opts->writeback && opts->direct_io)
		return usage_error("-o writeback,direct_io", "direct I/O leaves nothing to write back",
				   "leave one out");
	if (opts->tuned && opts->not_tuned)
		return usage_error(opts->not_tuned, "is for libfuse's own mount",
				   "leave it out, or give it in tuned_options=");
	if (opts->tuned && opts->clone_fd)
		return usage_error("-o tuned,clone_fd", "libfuse clones /dev/fuse only",
				   "leave one out");
	if (opts->tuned_options && !opts->tuned)
		return usage_error("-o tuned_options", "only the module fusetuned knows them",
				   "give tuned too");
	if (opts->served && !opts->delay_ns && !opts->read_delay_ns && !opts->write_delay_ns)
		return usage_error("-o served", "no request takes time that others could wait for",
				   "give delay=, read_delay= or write_delay= too");
	if (opts->served > 1 && opts->singlethread)
		return usage_error("-s", "one thread cannot serve several requests at once",
				   "leave out -s or give served=1");
	return 0;
}

/* Whether a list joined by + has this word. */
static bool has_word(const char *list, const char *word)
{
	size_t length;

	for (; list; list = list[length] ? list + length + 1 : NULL) {
		length = strcspn(list, "+");
		if (length == strlen(word) && strncmp(list, word, length) == 0)
			return true;
	}
	return false;
}

int options_parse(struct options *opts, struct fuse_args *args)
{
	int status;

	*opts = (struct options) {
		.splice = SPLICE_READ | SPLICE_WRITE,
		.timeout_ns = NSEC_PER_SEC,
		.entry_timeout_ns = UINT64_MAX,
		.atomic_open = ATOMIC_OPEN_ON,
		.read_delay_ns = UINT64_MAX,
		.write_delay_ns = UINT64_MAX,
	};
	status = parse_args(opts, args);
	if (status || opts->help || opts->version)
		return status;
	if (!has_word(opts->tuned_options, "atomic_open"))
		opts->atomic_open = ATOMIC_OPEN_OFF;
	if (opts->entry_timeout_ns == UINT64_MAX)
		opts->entry_timeout_ns = opts->timeout_ns;
	if (opts->read_delay_ns == UINT64_MAX)
		opts->read_delay_ns = opts->delay_ns;
	if (opts->write_delay_ns == UINT64_MAX)
		opts->write_delay_ns = opts->delay_ns;
	status = check_combinations(opts);
	if (!status)
		status = check_library(opts);
	if (!status)
		status = check_paths(opts);
	return status;
}

void options_free(struct options *opts)
{
	free(opts->source);
	free(opts->mountpoint);
	free(opts->counters);
	free(opts->tuned_options);
	free(opts->not_tuned);
}

static void help_lines(const char *text)
{
	while (*text) {
		size_t length = strcspn(text, "\n");

		printf("                           %.*s\n", (int)length, text);
		text += length + (text[length] == '\n');
	}
}

void options_help(const char *program)
{
	static const char *const values[] = {
		[SIZE] = "=SIZE", [NUMBER] = "=N", [DURATION] = "=TIME",
		[SECONDS] = "=SECONDS", [PATHNAME] = "=FILE", [LIST] = "=LIST",
		[SPLICE] = "=LIST", [ATOMIC_OPEN] = "=WORD",
	};
	size_t i;

	printf("usage: %s [options] SOURCE MOUNTPOINT\n\n"
	       "Mirrors the folder SOURCE at MOUNTPOINT, counts the kernel's requests and,\n"
	       "if asked, answers as slowly as a disk or a network.\n\n"
	       "    -h   --help            print this and exit\n"
	       "    -V   --version         print the versions and exit\n"
	       "    -f                     stay in the foreground\n"
	       "    -d   -o debug          print each request (implies -f)\n"
	       "    -s                     one thread only\n\n"
	       "SIZE takes K, M or G (powers of 1024); TIME takes us, ms or s.\n\n", program);
	for (i = 0; i < TABLE_SIZE; i++) {
		const char *value = values[table[i].kind];

		printf("    -o %s%s", table[i].name, value ? value : "");
		if (*table[i].range)
			printf("    (%s)", table[i].range);
		putchar('\n');
		help_lines(table[i].help);
	}
	printf("\nOptions of libfuse and of mount(8) also go after -o:\n");
	fuse_lowlevel_help();
}
