// SPDX-License-Identifier: GPL-2.0-or-later
/* Random numbers from the seeds. */
#include <sys/stat.h>

#include "hostile.h"

uint64_t base_seed;
static uint64_t state;

uint64_t draw(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dULL;
}

uint32_t below(uint32_t limit)
{
	return (draw() >> 32) % limit;
}

bool one_in(uint32_t many)
{
	return !below(many);
}

void seed(uint32_t mount, uint32_t process)
{
	state = (base_seed << 40 ^ (uint64_t)mount << 8 ^ process) * 0x9e3779b97f4a7c15ULL | 1;
	draw();
	draw();
}

/* Near the limits of sizes, numbers, offsets and flags. */
uint64_t odd(void)
{
	static const uint64_t odds[] = {
		0, 1, 2, 3, 7, 8, 31, 32, 255, 256, 4095, 4096, 4097, 65535, 65536, 1 << 20,
		INT32_MAX, 1ULL << 31, UINT32_MAX, 1ULL << 32, INT64_MAX - 4095, INT64_MAX, 1ULL << 63,
		UINT64_MAX - 4095, UINT64_MAX, TUNED_FOPEN_LOOKUP, TUNED_FOPEN_CREATED,
		TUNED_INIT_OPEN, TUNED_INIT_OPEN >> 32, S_IFDIR | 0755, S_IFREG | 0644, S_IFLNK | 0777,
		S_IFCHR | 0600,
	};

	return one_in(4) ? draw() : odds[below(COUNT(odds))];
}
