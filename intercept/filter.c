// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The filter traps mount(2) for new mounts, fsopen(2), and calls of fsconfig(2) that
 * may pass a FUSE device. It does not trap remounts, bind mounts, moves and changes
 * of propagation. The calls of 32-bit programs are trapped as well.
 *
 * libseccomp generates the filter. It is loaded here, because libseccomp before 2.6
 * cannot set SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (Linux 5.19). Without that flag,
 * a signal would interrupt a call that is being handled, and restart it.
 */
#include "intercept.h"

#include <errno.h>
#include <linux/filter.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

/* With any of these flags it is not a new mount (fs/namespace.c, path_mount()). */
#define NOT_NEW (MS_REMOUNT | MS_BIND | MS_MOVE | MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE)
/* With MS_MGC_VAL in the upper half, as from old mount(8), the upper half has no meaning. */
#define NOT_NEW_OLD (MS_MGC_MSK | MS_REMOUNT | MS_BIND | MS_MOVE)

/* Programs of other word sizes use these on the same kernel. */
static const uint32_t architectures[] = {
	SCMP_ARCH_NATIVE,
#if defined(__x86_64__)
	SCMP_ARCH_X86,
	SCMP_ARCH_X32,
#elif defined(__aarch64__)
	SCMP_ARCH_ARM,
#endif
};

static int add_rules(scmp_filter_ctx filter)
{
	const uint32_t trap = SCMP_ACT_NOTIFY;
	int err;

	err = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ALLOW);
	for (size_t i = 0; i < sizeof(architectures) / sizeof(*architectures) && !err; i++) {
		err = seccomp_arch_add(filter, architectures[i]);
		if (err == -EEXIST)
			err = 0;
	}
	if (!err)
		err = seccomp_rule_add(filter, trap, SCMP_SYS(mount), 1,
				       SCMP_A3(SCMP_CMP_MASKED_EQ, NOT_NEW, 0));
	if (!err)
		err = seccomp_rule_add(filter, trap, SCMP_SYS(mount), 1,
				       SCMP_A3(SCMP_CMP_MASKED_EQ, NOT_NEW_OLD, MS_MGC_VAL));
	if (!err)
		err = seccomp_rule_add(filter, trap, SCMP_SYS(fsopen), 0);
	if (!err)
		err = seccomp_rule_add(filter, trap, SCMP_SYS(fsconfig), 1,
				       SCMP_A1(SCMP_CMP_EQ, FSCONFIG_SET_STRING));
	if (!err)
		err = seccomp_rule_add(filter, trap, SCMP_SYS(fsconfig), 1,
				       SCMP_A1(SCMP_CMP_EQ, FSCONFIG_SET_FD));
	return err;
}

/* Loads the classic BPF program in a file. */
static int load(int file)
{
	off_t size = lseek(file, 0, SEEK_END);
	struct sock_fprog program = { .len = size / sizeof(struct sock_filter) };
	int listener = -1;

	program.filter = malloc(size);
	if (program.filter && pread(file, program.filter, size, 0) == size)
		listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				   SECCOMP_FILTER_FLAG_NEW_LISTENER |
				   SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &program);
	free(program.filter);
	return listener;
}

int filter_install(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int file = memfd_create("filter", MFD_CLOEXEC);
	int err = filter && file != -1 ? add_rules(filter) : -ENOMEM;
	int listener = -1, error;

	if (!err)
		err = seccomp_export_bpf(filter, file);
	if (!err)
		listener = load(file);
	error = err ? -err : errno;
	seccomp_release(filter);
	close(file);
	errno = error;
	return listener;
}
