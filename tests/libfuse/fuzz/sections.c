// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Any bytes as a file of sections: a reported line is one of its lines, and the options found are a
 * string.
 */
#include "options.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct tuned_about about = {
		"/srv/a/b", "host:/x", "/usr/bin/sshfs", "fuse.sshfs"
	};
	struct tuned_section best = { 0 };
	unsigned int lines = 1, wrong;
	size_t i;
	/* Allocated with the exact length, so that reading one byte too many is detected. */
	char *text = malloc(size ? size : 1);

	for (i = 0; i < size; i++)
		lines += data[i] == '\n';
	if (size)
		memcpy(text, data, size);
	wrong = tuned_find(text, size, &about, &best);
	assert(wrong <= lines);
	assert(memchr(best.options, '\0', sizeof(best.options)));
	for (i = 0; best.found && i < TUNED_MATCHES; i++)
		assert(best.rank.of[2 * i] <= 2);
	free(text);
	return 0;
}
