// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * File system types and mount options as mount(2) takes them: the options are one
 * string, separated by commas.
 */
#include "intercept.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

bool is_fuse(const char *type, bool *block)
{
	size_t length = strcspn(type, ".");

	*block = length == 7 && !strncmp(type, "fuseblk", length);
	return *block || (length == 4 && !strncmp(type, "fuse", length));
}

/* SELinux allows commas within quotes in these (security/selinux/hooks.c). */
static bool is_label(const char *option)
{
	static const char *const labels[] = { "context=", "fscontext=", "defcontext=", "rootcontext=" };

	for (size_t i = 0; i < sizeof(labels) / sizeof(*labels); i++)
		if (!strncmp(option, labels[i], strlen(labels[i])))
			return true;
	return false;
}

/* The length of the first option, with its quotes. */
static size_t option_length(const char *options)
{
	bool label = is_label(options), quoted = false;
	size_t length;

	for (length = 0; options[length] && (quoted || options[length] != ','); length++)
		quoted ^= label && options[length] == '"';
	return length;
}

/* Splits off the next option, without its quotes; NULL after the last one. */
static char *next_option(char **rest)
{
	char *option = *rest, *end, *from, *to;
	bool label;

	if (!option)
		return NULL;
	label = is_label(option);
	end = option + option_length(option);
	*rest = *end ? end + 1 : NULL;
	for (from = to = option; from < end; from++)
		if (!label || *from != '"')
			*to++ = *from;
	*to = 0;
	return option;
}

/* As generic_parse_monolithic() in fs/fs_context.c. */
static int set_option(int context, char *option)
{
	char *value = strchr(option, '=');

	if (!*option || value == option)
		return 0;
	if (value)
		*value++ = 0;
	return fsconfig(context, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, option, value, 0) ?
		-errno : 0;
}

int options_set(int context, const char *options)
{
	char *copy = strdup(options), *rest = copy, *option;
	int err = copy ? 0 : -ENOMEM;

	while (!err && (option = next_option(&rest)))
		if (strncmp(option, "fd=", 3))
			err = set_option(context, option);
	free(copy);
	return err;
}

int options_descriptor(const char *options)
{
	char *copy = strdup(options), *rest = copy, *option, *end;
	long fd = -1;

	while (copy && (option = next_option(&rest)))
		if (!strncmp(option, "fd=", 3)) {
			fd = strtol(option + 3, &end, 0);
			if (end == option + 3 || *end || fd < 0 || fd > INT_MAX)
				fd = -1;
		}
	free(copy);
	return fd;
}

char *options_without_descriptor(const char *options)
{
	/* Room for the comma after the last one. */
	char *others = malloc(strlen(options) + 2), *to = others;
	const char *option;
	size_t length;

	if (!others)
		return NULL;
	for (option = options; *option; option += length + (option[length] == ',')) {
		length = option_length(option);
		if (!length || !strncmp(option, "fd=", 3))
			continue;
		to = mempcpy(to, option, length);
		*to++ = ',';
	}
	*to = 0;
	return others;
}

bool options_fit(const char *options)
{
	char *copy = strdup(options), *rest = copy, *option;
	bool fit = copy;

	while (copy && (option = next_option(&rest)))
		fit = fit && strlen(option) <= OPTIONS_LONGEST;
	free(copy);
	return fit;
}
