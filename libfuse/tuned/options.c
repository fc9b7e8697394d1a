// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The options: names, ranges and parsing, in one table.
 */
#include "options.h"

#include <string.h>

enum kind { FLAG, NUMBER, SIZE, SPLICE };

static const struct spec {
	const char *name;
	enum kind kind;
	uint32_t low, high;
	const char *wants;
} specs[TUNED_OPTIONS] = {
	[TUNED_MAX_PAGES] = { "max_pages", NUMBER, 1, 65535, "takes a number from 1 to 65535" },
	[TUNED_MAX_WRITE] = { "max_write", SIZE, 4096, 65535U * 4096,
			      "takes a size from 4K to 262140K" },
	[TUNED_MAX_READAHEAD] = { "max_readahead", SIZE, 0, 1U << 30,
				  "takes a size from 0 to 1G" },
	[TUNED_MAX_BACKGROUND] = { "max_background", NUMBER, 1, 65535,
				   "takes a number from 1 to 65535" },
	[TUNED_CONGESTION_THRESHOLD] = { "congestion_threshold", NUMBER, 1, 65535,
					 "takes a number from 1 to 65535" },
	[TUNED_MAX_THREADS] = { "max_threads", NUMBER, 1, 100000,
				"takes a number from 1 to 100000" },
	[TUNED_SPLICE] = { "splice", SPLICE, 0, 0, "takes off, or read, write, move joined by +" },
	[TUNED_WRITEBACK_CACHE] = { "writeback_cache", FLAG, 0, 0, NULL },
	[TUNED_DIRECT_IO] = { "direct_io", FLAG, 0, 0, NULL },
	[TUNED_PARALLEL_DIRECT_WRITES] = { "parallel_direct_writes", FLAG, 0, 0, NULL },
	[TUNED_CLONE_FD] = { "clone_fd", FLAG, 0, 0, NULL },
	[TUNED_IO_URING] = { "io_uring", FLAG, 0, 0, NULL },
	[TUNED_NO_FILE_CAPS] = { "no_file_caps", FLAG, 0, 0, NULL },
	[TUNED_ATOMIC_OPEN] = { "atomic_open", FLAG, 0, 0, NULL },
	[TUNED_MODULE] = { "tuned", FLAG, 0, 0, NULL },
	[TUNED_IF_POSSIBLE] = { "tuned_if_possible", FLAG, 0, 0, NULL },
};

const char *tuned_name(enum tuned_option option)
{
	return specs[option].name;
}

int tuned_has_value(enum tuned_option option)
{
	return specs[option].kind != FLAG;
}

/* Returns -1 unless all of the text is a number; a size may end in K, M or G. */
static int64_t parse_number(const char *text, size_t length, enum kind kind)
{
	int64_t value = 0;
	size_t i;

	for (i = 0; i < length && text[i] >= '0' && text[i] <= '9'; i++) {
		value = value * 10 + (text[i] - '0');
		if (value > UINT32_MAX)
			return -1;
	}
	if (!i)
		return -1;
	if (kind == SIZE && i + 1 == length) {
		switch (text[i++]) {
		case 'K':
			value <<= 10;
			break;
		case 'M':
			value <<= 20;
			break;
		case 'G':
			value <<= 30;
			break;
		default:
			return -1;
		}
	}
	return i == length ? value : -1;
}

static int equals(const char *text, size_t length, const char *word)
{
	return strlen(word) == length && !memcmp(text, word, length);
}

static int64_t parse_splice(const char *text, size_t length)
{
	static const char *const ways[] = { "read", "write", "move" };
	int64_t value = 0;
	size_t part, way;

	if (equals(text, length, "off"))
		return 0;
	for (;;) {
		const char *plus = memchr(text, '+', length);

		part = plus ? (size_t)(plus - text) : length;
		for (way = 0; way < 3 && !equals(text, part, ways[way]); way++)
			;
		if (way == 3)
			return -1;
		value |= 1 << way;
		if (!plus)
			return value;
		text += part + 1;
		length -= part + 1;
	}
}

const char *tuned_take(struct tuned_options *options, const char *word, size_t length)
{
	const char *equal = memchr(word, '=', length);
	size_t name = equal ? (size_t)(equal - word) : length;
	const struct spec *spec;
	int64_t value = 0;
	int option;

	for (option = 0; option < TUNED_OPTIONS; option++)
		if (equals(word, name, specs[option].name))
			break;
	if (option == TUNED_OPTIONS)
		return "is not an option of the tuned libfuse3";
	spec = &specs[option];
	if (spec->kind == FLAG) {
		if (equal)
			return "takes no value";
	} else {
		if (!equal)
			return spec->wants;
		length -= name + 1;
		value = spec->kind == SPLICE ? parse_splice(equal + 1, length) :
					       parse_number(equal + 1, length, spec->kind);
		if (value < 0 || (spec->kind != SPLICE &&
				  (value < spec->low || value > spec->high)))
			return spec->wants;
	}
	options->value[option] = value;
	options->given |= 1U << option;
	return NULL;
}

void tuned_add(struct tuned_options *options, const struct tuned_options *more)
{
	int option;

	for (option = 0; option < TUNED_OPTIONS; option++)
		if (TUNED_GIVEN(more, option) && !TUNED_GIVEN(options, option))
			options->value[option] = more->value[option];
	options->given |= more->given;
}
