// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Makes system calls by the 32-bit numbering, in which the number of pread64(2) means
 * another call, on a file that it opens. Its argument is the file.
 */

#include <fcntl.h>

/* pread64 in arch/x86/entry/syscalls/syscall_64.tbl, break in syscall_32.tbl, which only fails */
enum { CALLS = 100, NUMBER = 17 };

int main(int argc, char **argv)
{
	int fd = open(argv[argc - 1], O_RDONLY);

	for (int i = 0; i < CALLS; i++) {
		long result = NUMBER;

		__asm__ volatile("int $0x80" : "+a"(result) : "b"(fd), "c"(0), "d"(512), "S"(i * 512) : "memory");
	}
	return fd < 0;
}
