// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Read the sections of /etc/fusetune/mounts.d: the subset of TOML that these files need ([[mount]],
 * strings on one line, numbers, booleans). Sections match and rank as in the program fusetune.
 */
#include "options.h"

#include <string.h>

/* Sizes of a key and of a pattern or value, with their NUL. */
#define KEY	64
#define VALUE	4096

static const char *const matches[TUNED_MATCHES] = { "path", "source", "server", "fstype" };
/* Only the program fusetune can match these, so a section that has one never matches here. */
static const char *const matches_elsewhere[] = { "volume_handle", "volume", "label", "namespace",
						 "csi_driver", "mount_option" };

/* Bits of the keys that a section has, after those of matches and options. */
#define SEEN_LEAVE_ALONE	(1U << (TUNED_MATCHES + 1))

struct text {
	const char *at, *end;
};

/* A section while its lines are read. */
struct reading {
	int in_section;
	int about_it;
	unsigned int seen;
	struct tuned_section section;
};

static void skip_blanks(struct text *line)
{
	while (line->at < line->end && (*line->at == ' ' || *line->at == '\t'))
		line->at++;
}

static int at_end(struct text *line)
{
	skip_blanks(line);
	return line->at == line->end || *line->at == '#';
}

static int is_bare(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-';
}

static int read_key(struct text *line, char *key)
{
	size_t length = 0;

	while (line->at < line->end && is_bare(*line->at)) {
		if (length == KEY - 1)
			return -1;
		key[length++] = *line->at++;
	}
	key[length] = '\0';
	skip_blanks(line);
	if (!length || line->at == line->end || *line->at++ != '=')
		return -1;
	skip_blanks(line);
	return 0;
}

/* Supports two escapes: a backslash and a double quote. */
static int read_string(struct text *line, char *value)
{
	char quote = *line->at++;
	size_t length = 0;

	while (line->at < line->end && *line->at != quote) {
		unsigned char c = *line->at++;

		if (c == '\\' && quote == '"') {
			if (line->at == line->end || (*line->at != '\\' && *line->at != '"'))
				return -1;
			c = *line->at++;
		}
		if (c < ' ' || c == 0x7f || length == VALUE - 1)
			return -1;
		value[length++] = c;
	}
	value[length] = '\0';
	return line->at++ < line->end ? 0 : -1;
}

/* Reads a number or a boolean. */
static int read_bare(struct text *line, char *value)
{
	size_t length = 0;

	while (line->at < line->end &&
	       (is_bare(*line->at) || *line->at == '+' || *line->at == '.')) {
		if (length == VALUE - 1)
			return -1;
		value[length++] = *line->at++;
	}
	value[length] = '\0';
	return length ? 0 : -1;
}

/* Skips a list of strings on one line; no key that is used here has one. */
static int read_list(struct text *line)
{
	char value[VALUE];

	line->at++;
	while (!at_end(line) && *line->at != ']') {
		if ((*line->at != '"' && *line->at != '\'') || read_string(line, value) == -1)
			return -1;
		skip_blanks(line);
		if (line->at < line->end && *line->at == ',')
			line->at++;
		else if (line->at == line->end || *line->at != ']')
			return -1;
	}
	return line->at < line->end && *line->at++ == ']' ? 0 : -1;
}

/* Returns the end of the bracket expression that begins here, or the bracket if it has no end. */
static const char *bracket_end(const char *pattern)
{
	const char *end = strchr(pattern + 1, ']');

	return end ? end : pattern;
}

/* Ranks a pattern: 1 with wildcards or 2 without, then the number of its literal characters. */
static void specificity(const char *pattern, unsigned int *rank)
{
	unsigned int literal = 0, wild = 0;
	const char *c;

	for (c = pattern; *c; c++) {
		if (*c == '*' || *c == '?') {
			wild = 1;
		} else if (*c == '[' && bracket_end(c) > c) {
			wild = 1;
			c = bracket_end(c);
		} else if (((unsigned char)*c & 0xc0) != 0x80) {
			literal++;
		}
	}
	rank[0] = wild ? 1 : 2;
	rank[1] = literal;
}

static int section_matches(int which, const char *pattern, const struct tuned_about *about)
{
	const char *const values[] = { about->path, about->source, about->server, about->fstype };
	const char *value = values[which];
	const char *slash;

	if (!value)
		return 0;
	if (value == about->path)
		return tuned_matches_path(pattern, value);
	if (value != about->server)
		return tuned_matches_glob(pattern, value);
	if (strchr(pattern, '/'))
		return tuned_matches_path(pattern, value);
	slash = strrchr(value, '/');
	return tuned_matches_glob(pattern, slash ? slash + 1 : value);
}

/* Whether a section of this rank counts instead of the best before it. */
static int outranks(const struct tuned_rank *rank, const struct tuned_rank *best)
{
	unsigned int i;

	for (i = 0; i < 2 * TUNED_MATCHES; i++)
		if (rank->of[i] != best->of[i])
			return rank->of[i] > best->of[i];
	return 1;
}

static void end_section(struct reading *reading, struct tuned_section *best)
{
	const struct tuned_section *section = &reading->section;

	if (!reading->in_section || !reading->about_it)
		return;
	if (section->found && outranks(&section->rank, &best->rank)) {
		best->found = 1;
		best->rank = section->rank;
		strcpy(best->options, section->options);
	}
	if (reading->seen & SEEN_LEAVE_ALONE && outranks(&section->rank, &best->alone_rank)) {
		best->left_alone = section->left_alone;
		best->alone_rank = section->rank;
	}
}

static int take_leave_alone(struct reading *reading, const char *value, int quoted)
{
	if (quoted || reading->seen & SEEN_LEAVE_ALONE)
		return -1;
	if (strcmp(value, "true") && strcmp(value, "false"))
		return -1;
	reading->seen |= SEEN_LEAVE_ALONE;
	reading->section.left_alone = !strcmp(value, "true");
	return 0;
}

/* value: "" if it is a list */
static int take_key(struct reading *reading, const char *key, const char *value, int quoted,
		    const struct tuned_about *about)
{
	unsigned int other;
	int which;

	if (!strcmp(key, "leave_alone"))
		return take_leave_alone(reading, value, quoted);
	for (other = 0; other < sizeof(matches_elsewhere) / sizeof(*matches_elsewhere); other++)
		if (!strcmp(key, matches_elsewhere[other]))
			reading->about_it = 0;
	for (which = 0; which < TUNED_MATCHES; which++)
		if (!strcmp(key, matches[which]))
			break;
	if (which == TUNED_MATCHES && strcmp(key, "options"))
		return 0;
	/* The key is given twice, or is not a string. */
	if (!quoted || (reading->seen & (1U << which)))
		return -1;
	reading->seen |= 1U << which;
	if (which == TUNED_MATCHES) {
		if (strlen(value) >= TUNED_LIST)
			return -1;
		strcpy(reading->section.options, value);
		reading->section.found = 1;
		return 0;
	}
	specificity(value, &reading->section.rank.of[2 * which]);
	if (!section_matches(which, value, about))
		reading->about_it = 0;
	return 0;
}

static int read_line(struct reading *reading, struct text *line, const struct tuned_about *about,
		     struct tuned_section *best)
{
	static const char header[] = "[[mount]]";
	char key[KEY], value[VALUE];

	if (line->at < line->end && line->end[-1] == '\r')
		line->end--;
	if (at_end(line))
		return 0;
	if (*line->at == '[') {
		size_t length = sizeof(header) - 1;

		if ((size_t)(line->end - line->at) < length || memcmp(line->at, header, length))
			return -1;
		line->at += length;
		end_section(reading, best);
		memset(reading, 0, sizeof(*reading));
		reading->in_section = reading->about_it = 1;
	} else {
		int quoted, got;

		if (!reading->in_section || read_key(line, key) == -1 || line->at == line->end)
			return -1;
		quoted = *line->at == '"' || *line->at == '\'';
		value[0] = '\0';
		if (quoted)
			got = read_string(line, value);
		else
			got = *line->at == '[' ? read_list(line) : read_bare(line, value);
		if (got == -1 || take_key(reading, key, value, quoted, about) == -1)
			return -1;
	}
	return at_end(line) ? 0 : -1;
}

unsigned int tuned_find(const char *text, size_t length, const struct tuned_about *about,
			struct tuned_section *best)
{
	const char *end = text + length;
	struct reading reading;
	unsigned int number;

	memset(&reading, 0, sizeof(reading));
	for (number = 1; text < end; number++) {
		const char *newline = memchr(text, '\n', end - text);
		struct text line = { text, newline ? newline : end };

		if (read_line(&reading, &line, about, best) == -1)
			return number;
		text = newline ? newline + 1 : end;
	}
	end_section(&reading, best);
	return 0;
}
