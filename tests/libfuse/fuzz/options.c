// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Any bytes as an option: it is accepted only within its range, and added only if it
 * is not given.
 */
#include "options.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tuned_options none = { 0 }, taken = { 0 }, added = { 0 }, full, same;
	const char *wrong = tuned_take(&taken, (const char *)data, size);

	if (wrong) {
		assert(*wrong && !memcmp(&taken, &none, sizeof(none)));
		return 0;
	}
	assert(taken.given && taken.given < 1U << TUNED_OPTIONS);
	assert(!(taken.given & (taken.given - 1)));
	if (TUNED_GIVEN(&taken, TUNED_MAX_PAGES))
		assert(taken.value[TUNED_MAX_PAGES] - 1 < 65535);
	if (TUNED_GIVEN(&taken, TUNED_MAX_WRITE))
		assert(taken.value[TUNED_MAX_WRITE] >= 4096);
	if (TUNED_GIVEN(&taken, TUNED_SPLICE))
		assert(taken.value[TUNED_SPLICE] <= 7);
	tuned_add(&added, &taken);
	assert(!memcmp(&added, &taken, sizeof(added)));
	memset(&full, 0xff, sizeof(full));
	same = full;
	tuned_add(&full, &taken);
	assert(!memcmp(&full, &same, sizeof(full)));
	return 0;
}
