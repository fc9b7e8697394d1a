// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The command line. One table describes each option, for the parser and --help.
 * values.c parses values; check.c checks combinations and paths.
 */
#include "options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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
	const char *range;	/* for --help and errors; min and max decide */
	const char *help;
};

#define AT(field) offsetof(struct options, field)

static const struct option table[] = {
	{ "writeback", FLAG, AT(writeback), 0, 0, "",
	  "the kernel caches writes and combines them" },
	{ "direct_io", FLAG, AT(direct_io), 0, 0, "",
	  "reads and writes bypass the kernel's cache" },
	{ "parallel_direct_writes", FLAG, AT(parallel_direct_writes), 0, 0, "",
	  "direct writes to one file run in parallel (libfuse 3.15)" },
	{ "passthrough", FLAG, AT(passthrough), 0, 0, "",
	  "the kernel reads and writes the source itself\n(libfuse 3.17, Linux 6.9, root)" },
	{ "keep_cache", FLAG, AT(keep_cache), 0, 0, "",
	  "cached data outlives the last close" },
	{ "no_xattr", FLAG, AT(no_xattr), 0, 0, "",
	  "no extended attributes; the kernel asks once" },
	{ "splice", SPLICE, AT(splice), 0, 0, "off or read, write, move combined with +",
	  "what uses splice(2): reading requests, writing\nreplies, moving pages (needs write)" },
	{ "max_write", SIZE, AT(max_write), 4 * KIB, MAX_WRITE_LIMIT, MAX_WRITE_RANGE,
	  "largest WRITE, and thus also the largest READ" },
	{ "max_readahead", SIZE, AT(max_readahead), 4 * KIB, 1024 * MIB, "4K to 1G",
	  "readahead requested at INIT; it can only lower\nthe mount's read_ahead_kb" },
	{ "max_background", NUMBER, AT(max_background), 1, 65535, "1 to 65535 requests",
	  "background requests in flight (kernel default 12)" },
	{ "threads", NUMBER, AT(threads), 1, 4096, "1 to 4096 threads",
	  "worker threads at most (default 10; 64 if slowed;\nnever fewer than 2 * served + 2)" },
	{ "clone_fd", FLAG, AT(clone_fd), 0, 0, "",
	  "each worker thread reads its own /dev/fuse" },
	{ "timeout", SECONDS, AT(timeout_ns), 0, 1000000000 * NSEC_PER_SEC,
	  "0 to 1000000000 seconds, fractions allowed",
	  "how long names and attributes stay cached (default 1)" },
	{ "serialize_alloc", SIZE, AT(serialize_alloc), 4 * KIB, 128 * MIB, "4K to 128M",
	  "a WRITE of at least this size gets all of its\nblocks before another one gets any" },
	{ "entry_timeout", SECONDS, AT(entry_timeout_ns), 0, 1000000000 * NSEC_PER_SEC,
	  "0 to 1000000000 seconds, fractions allowed",
	  "the same for names only, instead of timeout" },
	{ "negative_timeout", SECONDS, AT(negative_timeout_ns), 0, 1000000000 * NSEC_PER_SEC,
	  "0 to 1000000000 seconds, fractions allowed",
	  "how long names that do not exist stay cached\n(default 0)" },
	{ "delay", DURATION, AT(delay_ns), 0, 60 * NSEC_PER_SEC, "0s to 60s; us, ms or s",
	  "each request takes this long, except FORGET,\nRELEASE, RELEASEDIR" },
	{ "read_delay", DURATION, AT(read_delay_ns), 0, 60 * NSEC_PER_SEC,
	  "0s to 60s; us, ms or s", "the same for READ only, instead of delay" },
	{ "write_delay", DURATION, AT(write_delay_ns), 0, 60 * NSEC_PER_SEC,
	  "0s to 60s; us, ms or s", "the same for WRITE only, instead of delay" },
	{ "served", NUMBER, AT(served), 1, 1024, "1 to 1024 requests",
	  "delayed requests served at a time; others queue\n(default: as many as there are threads)" },
	{ "bandwidth", SIZE, AT(bandwidth), 4 * KIB, TIB, "4K to 1024G bytes a second",
	  "limit for READ and WRITE data together" },
	{ "fail_every", NUMBER, AT(fail_every), 1, UINT32_MAX, "1 to 4294967295",
	  "each Nth WRITE since the mount fails with EIO" },
	{ "short_every", NUMBER, AT(short_every), 1, UINT32_MAX, "1 to 4294967295",
	  "each Nth WRITE since the mount writes half of its bytes" },
	{ "tuned", FLAG, AT(tuned), 0, 0, "",
	  "mount with the module fusetuned, as root; mount\noptions then go into tuned_options" },
	{ "tuned_options", LIST, AT(tuned_options), 0, 0, "names and name=value combined with +",
	  "mount options for the module fusetuned" },
	{ "atomic_open", ATOMIC_OPEN, AT(atomic_open), 0, 0, "off, echo or on",
	  "how the server reacts to tuned_options=atomic_open:\nignore it, only return INIT's bit, or serve it\n(default on)" },
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

static int value_error(const char *arg, const struct option *option)
{
	fprintf(stderr, "mirrorfs: -o %s: not a valid value; give %s\n", arg, option->range);
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

/* Whether a list combined with + has this word. */
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
	return options_check(opts);
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
	       "Mirrors the directory SOURCE at MOUNTPOINT, counts the kernel's requests and,\n"
	       "if asked, replies as slowly as a disk or a network.\n\n"
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
