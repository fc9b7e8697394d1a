// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sections PATH SOURCE SERVER FSTYPE <FILE
 *
 * Prints the number of the line that cannot be parsed, and the options that the tuned libfuse reads
 * from a file in /etc/fusetune/mounts.d.
 */
#include "options.h"

#include <stdio.h>

int main(int argc, char **argv)
{
	struct tuned_section best = { 0 };
	static char text[65536];
	size_t size;

	if (argc != 5)
		return 2;
	struct tuned_about about = { argv[1], argv[2], argv[3], argv[4] };

	size = fread(text, 1, sizeof(text), stdin);
	printf("%u ", tuned_find(text, size, &about, &best));
	printf("%s\n", best.found && !best.left_alone ? best.options : "");
	return 0;
}
