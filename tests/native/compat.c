// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A 32-bit program that mounts FUSE, for 64-bit kernels. It uses no C library,
 * because the host may lack a 32-bit one. Its argument is the mount point. It exits
 * with the errno of mount(2), and leaves the mount.
 *
 *	cc -m32 -nostdlib -static -fno-stack-protector -fno-pic -no-pie compat.c
 */

/* arch/x86/entry/syscalls/syscall_32.tbl */
enum { EXIT = 1, OPEN = 5, MOUNT = 21 };

static long call(long number, long a, long b, long c, long d, long e)
{
	long result;

	__asm__ volatile("int $0x80" : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory");
	return result;
}

/* The stack at the start of a program: argc, then argv. */
__attribute__((used)) static void begin(long *stack)
{
	char options[] = "fd=X,rootmode=40000,user_id=0,group_id=0";
	long fd = call(OPEN, (long)"/dev/fuse", 2, 0, 0, 0);

	options[3] = '0' + fd;
	call(EXIT, -call(MOUNT, (long)"src", stack[2], (long)"fuse.compat", 6, (long)options), 0, 0, 0, 0);
	__builtin_unreachable();
}

__asm__(".globl _start\n_start:\n\tmov %esp, %eax\n\tand $-16, %esp\n\tsub $12, %esp\n\tpush %eax\n\tcall begin\n");
