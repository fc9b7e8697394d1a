// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Run a parser without a fuzzer, on each argument and each prefix of it.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		size_t length = strlen(argv[i]) + 1;

		while (length--) {
			/* The exact length, so that reading one byte too many is detected. */
			uint8_t *text = malloc(length ? length : 1);

			if (!text)
				return 1;
			memcpy(text, argv[i], length);
			LLVMFuzzerTestOneInput(text, length);
			free(text);
		}
	}
	return 0;
}
