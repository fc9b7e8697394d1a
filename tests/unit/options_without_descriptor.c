// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * options_without_descriptor OPTIONS
 *
 * Prints the mount options that fusetune-intercept passes on to mount(2), before its own.
 */
#include "intercept.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	char *others = argc == 2 ? options_without_descriptor(argv[1]) : NULL;

	if (!others)
		return 2;
	puts(others);
	free(others);
	return 0;
}
