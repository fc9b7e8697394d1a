// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Match the patterns of sections as fusetune does: part by part of a path, or as
 * one text.
 *
 * Backtracking only to the last * (or **) suffices, so no pattern takes
 * exponential time.
 */
#include "options.h"

#include <string.h>

/* Size of a part of a path, with its NUL. */
#define PART	4096

/* Takes one UTF-8 character; a byte that is not UTF-8 is a character by itself. */
static uint32_t take_char(const char **text)
{
	const unsigned char *c = (const unsigned char *)*text;
	unsigned int more = *c >= 0xf0 ? 3 : *c >= 0xe0 ? 2 : *c >= 0xc0 ? 1 : 0;
	uint32_t value = more ? *c & (0x3f >> more) : *c;
	unsigned int i;

	for (i = 1; i <= more; i++) {
		if ((c[i] & 0xc0) != 0x80) {
			more = 0;
			value = *c;
			break;
		}
		value = value << 6 | (c[i] & 0x3f);
	}
	*text += more + 1;
	return value;
}

/* Returns the end of the bracket expression whose inside begins here; NULL if it does not end. */
static const char *bracket_close(const char *inside)
{
	if (*inside == '!')
		inside++;
	if (*inside == ']')
		inside++;
	return strchr(inside, ']');
}

static int in_bracket(const char *inside, const char *close, uint32_t c)
{
	int negated = *inside == '!', found = 0;

	inside += negated;
	while (inside < close) {
		uint32_t low = take_char(&inside), high = low;

		if (*inside == '-' && inside + 1 < close) {
			inside++;
			high = take_char(&inside);
		}
		found |= low <= c && c <= high;
	}
	return found != negated;
}

int tuned_matches_glob(const char *pattern, const char *text)
{
	const char *star = NULL, *again = NULL;

	for (;;) {
		const char *p = pattern, *t = text;

		if (*p == '*') {
			star = ++pattern;
			again = text;
			continue;
		}
		if (!*p && !*t)
			return 1;
		if (*p && *t) {
			uint32_t want = take_char(&p), have = take_char(&t);
			const char *close = want == '[' ? bracket_close(p) : NULL;

			if (close ? in_bracket(p, close, have) : want == '?' || want == have) {
				pattern = close ? close + 1 : p;
				text = t;
				continue;
			}
		}
		if (!again || !*again)
			return 0;
		take_char(&again);
		pattern = star;
		text = again;
	}
}

/* Copies the part up to the next slash, and returns its end; NULL if it is too long. */
static const char *part_of(const char *path, char *part)
{
	size_t length = strcspn(path, "/");

	if (length >= PART)
		return NULL;
	memcpy(part, path, length);
	part[length] = '\0';
	return path + length;
}

int tuned_matches_path(const char *pattern, const char *path)
{
	const char *again_pattern = NULL, *again_path = NULL;
	char want[PART], have[PART];

	for (;;) {
		const char *rest = pattern ? part_of(pattern, want) : NULL;
		const char *left = path ? part_of(path, have) : NULL;

		if (!pattern && !path)
			return 1;
		if ((pattern && !rest) || (path && !left))
			return 0;
		if (pattern && !strcmp(want, "**")) {
			again_pattern = pattern = *rest ? rest + 1 : NULL;
			again_path = path;
			if (!pattern)
				return 1;
			continue;
		}
		if (pattern && path && tuned_matches_glob(want, have)) {
			pattern = *rest ? rest + 1 : NULL;
			path = *left ? left + 1 : NULL;
			continue;
		}
		if (!again_path)
			return 0;
		again_path = strchr(again_path, '/');
		if (!again_path)
			return 0;
		pattern = again_pattern;
		path = ++again_path;
	}
}
