// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Values of options: numbers, sizes, times and lists of words. Each function
 * returns 0, or -1 if the text is not such a value.
 */
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Parses digits with an optional fraction, as a multiple of 1/scale. */
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
	if (*value > UINT64_MAX - fraction)
		return -1;
	*end = (char *)text;
	*value += fraction;
	return 0;
}

int parse_number(const char *text, uint64_t *value)
{
	char *end;

	if (parse_decimal(text, &end, 1, value) != 0)
		return -1;
	return *end == '\0' && !strchr(text, '.') ? 0 : -1;
}

int parse_size(const char *text, uint64_t *value)
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

int parse_duration(const char *text, uint64_t *value)
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

int parse_seconds(const char *text, uint64_t *value)
{
	char *end;

	if (parse_decimal(text, &end, NSEC_PER_SEC, value) != 0)
		return -1;
	return *end == '\0' ? 0 : -1;
}

int parse_splice(const char *text, unsigned int *splice)
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

int parse_atomic_open(const char *text, enum atomic_open *value)
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
