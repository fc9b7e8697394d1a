// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Any bytes as an option: taken within its range or not at all, and adding it changes no other.
 */
#include "options.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tuned_options before = { 0 }, after, more = { 0 };
	const char *wrong;

	before.given = size ? data[0] : 0;
	after = before;
	wrong = tuned_take(&after, (const char *)data, size);
	if (wrong)
		assert(!memcmp(&before, &after, sizeof(after)));
	else
		assert(after.given && after.given < 1U << TUNED_OPTIONS);
	if (TUNED_GIVEN(&after, TUNED_SPLICE))
		assert(after.value[TUNED_SPLICE] <= 7);
	if (after.given != before.given && TUNED_GIVEN(&after, TUNED_MAX_PAGES))
		assert(before.given & 1 || after.value[TUNED_MAX_PAGES] - 1 < 65535);
	tuned_add(&more, &after);
	assert(!memcmp(&more, &after, sizeof(more)) || after.given != more.given ||
	       !memcmp(more.value, after.value, sizeof(more.value)));
	return 0;
}
