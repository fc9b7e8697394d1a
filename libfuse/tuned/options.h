/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Options and configuration as text. Nothing here knows about sessions.
 */
#ifndef TUNED_OPTIONS_H
#define TUNED_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

enum tuned_option {
	TUNED_MAX_PAGES,
	TUNED_MAX_WRITE,
	TUNED_MAX_READAHEAD,
	TUNED_MAX_BACKGROUND,
	TUNED_CONGESTION_THRESHOLD,
	TUNED_MAX_THREADS,
	TUNED_SPLICE,
	TUNED_WRITEBACK_CACHE,
	TUNED_DIRECT_IO,
	TUNED_PARALLEL_DIRECT_WRITES,
	TUNED_CLONE_FD,
	TUNED_IO_URING,
	TUNED_NO_FILE_CAPS,
	TUNED_ATOMIC_OPEN,
	TUNED_MODULE,
	TUNED_IF_POSSIBLE,
	TUNED_OPTIONS
};

/* The value of TUNED_SPLICE: any of these, or none. */
#define TUNED_SPLICE_READ	1
#define TUNED_SPLICE_WRITE	2
#define TUNED_SPLICE_MOVE	4

/* A bit for each option that is given, and the values; sizes are in bytes. */
struct tuned_options {
	uint32_t given;
	uint32_t value[TUNED_OPTIONS];
};

#define TUNED_GIVEN(options, option)	((options)->given & (1U << (option)))

const char *tuned_name(enum tuned_option option);
int tuned_has_value(enum tuned_option option);

/*
 * Takes one option, "name" or "name=value", of this length. Returns NULL, or what is wrong with it;
 * options is unchanged then.
 */
const char *tuned_take(struct tuned_options *options, const char *word, size_t length);

/* Adds the options that are given in more but not in options. */
void tuned_add(struct tuned_options *options, const struct tuned_options *more);

/* What sections match: properties of a mount; NULL if not known. */
struct tuned_about {
	const char *path;
	const char *source;
	const char *server;
	const char *fstype;
};

/* path, source, server, fstype; most significant first */
#define TUNED_MATCHES	4

/* How specific a section is, compared number by number. */
struct tuned_rank {
	unsigned int of[2 * TUNED_MATCHES];
};

/* Size of "options" in a section, with its NUL. */
#define TUNED_LIST	1024

/*
 * What sections say: options, and whether they do not apply because the mount is left alone. Each
 * is found by itself, so each has the rank of its section.
 */
struct tuned_section {
	int found;
	int left_alone;
	struct tuned_rank rank, alone_rank;
	char options[TUNED_LIST];
};

/*
 * Searches the text of one file for the most specific section that matches and has options, and for
 * the one with leave_alone; of equally specific ones, takes the last. best may hold some already.
 * Returns 0, or the number, from 1, of the line that cannot be parsed.
 */
unsigned int tuned_find(const char *text, size_t length, const struct tuned_about *about,
			struct tuned_section *best);

/* glob.c */

/* Like Python's fnmatchcase(), in any locale. */
int tuned_matches_glob(const char *pattern, const char *text);
/* The same for each part of a path; a part that is ** matches any number of directories. */
int tuned_matches_path(const char *pattern, const char *path);

#endif
