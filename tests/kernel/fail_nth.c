// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Make one system call whose Nth allocation in the kernel fails (fail-nth of
 * Documentation/fault-injection).
 *
 *   fail_nth N mount POINT OPTIONS    mounts fusetuned; the server is this process
 *   fail_nth N init POINT OPTIONS     the same, but for allocations of the reply to INIT
 *   fail_nth N unmount POINT
 *   fail_nth N open|create|truncate|stat|list|read|write|append|map PATH
 *
 * Prints the call's errno (0: none), and whether an allocation failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char buffer[256 << 10] __attribute__((aligned(4096)));
static int control, device = -1, file = -1;
static const char *number, *target;
static char *mapped;
static sigjmp_buf faulted;

static int mount_it(const char *options)
{
	char all[256];

	snprintf(all, sizeof(all), "fd=%d,rootmode=40755,user_id=0,group_id=0%s%s", device,
		 *options ? "," : "", options);
	return mount("nth", target, "fusetuned", 0, all);
}

static int answer_init(void)
{
	struct {
		struct fuse_out_header head;
		struct fuse_init_out init;
	} reply = { .head.len = sizeof(reply) };
	const struct fuse_in_header *head = (const void *)buffer;
	const struct fuse_init_in *in = (const void *)(head + 1);

	if (read(device, buffer, sizeof(buffer)) < 0)
		return -1;
	reply.head.unique = head->unique;
	reply.init.major = FUSE_KERNEL_VERSION;
	reply.init.minor = in->minor;
	reply.init.flags = in->flags;
	reply.init.flags2 = in->flags2;
	reply.init.max_write = 128 << 10;
	reply.init.max_pages = 32;
	return write(device, &reply, sizeof(reply)) < 0 ? -1 : 0;
}

static int map_it(void)
{
	if (sigsetjmp(faulted, 1)) {
		errno = EFAULT;
		return -1;
	}
	mapped[0]++;
	return 0;
}

static void on_fault(int signal_number)
{
	(void)signal_number;
	siglongjmp(faulted, 1);
}

static int call(const char *what, const char *options)
{
	struct stat stat_buffer;

	if (!strcmp(what, "mount"))
		return mount_it(options);
	if (!strcmp(what, "init"))
		return answer_init();
	if (!strcmp(what, "unmount"))
		return umount2(target, 0);
	if (!strcmp(what, "open"))
		return open(target, O_RDONLY);
	if (!strcmp(what, "create"))
		return open(target, O_RDWR | O_CREAT | O_EXCL, 0644);
	if (!strcmp(what, "truncate"))
		return truncate(target, 100);
	if (!strcmp(what, "stat"))
		return stat(target, &stat_buffer);
	if (!strcmp(what, "list"))
		return syscall(SYS_getdents64, file, buffer, sizeof(buffer));
	if (!strcmp(what, "read"))
		return pread(file, buffer, sizeof(buffer), 0);
	if (!strcmp(what, "write") || !strcmp(what, "append"))
		return write(file, buffer, sizeof(buffer));
	return map_it();
}

/* Prepared before the call, so that this does not fail. */
static void prepare(const char *what, const char *options)
{
	int flags = O_RDWR;

	if (!strcmp(what, "mount") || !strcmp(what, "init")) {
		device = open("/dev/fusetuned", O_RDWR);
		if (device < 0 || (!strcmp(what, "init") && mount_it(options)))
			exit(3);
	} else if (!strcmp(what, "list") || !strcmp(what, "read") || !strcmp(what, "write") ||
		   !strcmp(what, "append") || !strcmp(what, "map")) {
		if (!strcmp(what, "list"))
			flags = O_RDONLY | O_DIRECTORY;
		else if (!strcmp(what, "append"))
			flags |= O_APPEND | O_DIRECT;
		file = open(target, flags);
		if (file < 0)
			exit(3);
		if (!strcmp(what, "map"))
			mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	}
	signal(SIGBUS, on_fault);
	memset(buffer, 'x', sizeof(buffer));
}

int main(int argc, char **argv)
{
	char left[16] = "";
	int failed;

	if (argc != 4 && argc != 5)
		return 2;
	number = argv[1];
	target = argv[3];
	control = open("/proc/thread-self/fail-nth", O_RDWR);
	if (control < 0)
		return 3;
	mlockall(MCL_CURRENT);
	prepare(argv[2], argc == 5 ? argv[4] : "");
	if (pwrite(control, number, strlen(number), 0) < 0)
		return 3;
	failed = call(argv[2], argc == 5 ? argv[4] : "") < 0 ? errno : 0;
	/* It is 0 if an allocation failed. */
	if (pread(control, left, sizeof(left) - 1, 0) < 0 || pwrite(control, "0", 1, 0) < 0)
		return 3;
	printf("%d %d\n", failed, !atoi(left));
	return 0;
}
