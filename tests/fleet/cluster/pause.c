// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A pod's first process, which holds its namespaces. The runtime ends it by SIGKILL.
 */
#include <unistd.h>

int main(void)
{
	for (;;)
		pause();
}
