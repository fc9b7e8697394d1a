// SPDX-License-Identifier: GPL-2.0-or-later
/* A client's action on a mount: one of many system calls, on a few names and files. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "hostile.h"

/* FS_IOC_GETFLAGS, whose header conflicts with sys/mount.h on some systems. */
#define GET_FLAGS _IOR('f', 1, long)

static sigjmp_buf faulted;
static int files[FILES] = { -1, -1, -1, -1, -1, -1 };
static uint8_t buffer[192 << 10] __attribute__((aligned(4096)));
static uint8_t *mapped = MAP_FAILED;
static size_t mapped_size;

static void on_fault(int signal_number)
{
	(void)signal_number;
	siglongjmp(faulted, 1);
}

static const char *path(void)
{
	static const char *const names[] = { "a", "b", "c", "d", "e", "l", "p", "d/a", "e/b", "" };
	static char paths[2][256];
	static unsigned int turn;
	char *at = paths[turn++ & 1];

	snprintf(at, sizeof(paths[0]), "%s/%s", point, names[below(COUNT(names))]);
	return at;
}

/* An open file, if there is one. */
static int *file(void)
{
	uint32_t first = below(FILES);

	for (uint32_t i = 0; i < FILES; i++)
		if (files[(first + i) % FILES] >= 0)
			return files + (first + i) % FILES;
	return files;
}

static void unmap(void)
{
	if (mapped != MAP_FAILED)
		munmap(mapped, mapped_size);
	mapped = MAP_FAILED;
}

static void close_file(int *at)
{
	if (*at >= 0)
		close(*at);
	*at = -1;
}

static void open_one(void)
{
	static const int flags[] = {
		O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC,
		O_RDWR | O_CREAT | O_EXCL, O_RDONLY | O_DIRECTORY, O_RDWR | O_TRUNC, O_RDWR | O_DIRECT,
		O_RDWR | O_APPEND | O_CREAT, O_PATH, O_RDWR | O_CREAT | O_DIRECT, O_RDONLY | O_NOFOLLOW,
		O_RDWR | O_APPEND | O_DIRECT,
	};
	int *at = files + below(FILES);

	close_file(at);
	if (one_in(30))
		*at = open(point, O_TMPFILE | O_RDWR, 0600);
	else
		*at = open(path(), flags[below(COUNT(flags))] | O_NONBLOCK | O_CLOEXEC, 0644);
}

static size_t length(void)
{
	return one_in(20) ? below(sizeof(buffer)) : one_in(3) ? 512 * below(32) : below(5000);
}

static off_t place(void)
{
	return one_in(20) ? (off_t)(odd() & INT64_MAX) : one_in(2) ? 512 * below(64) : below(20000);
}

static void map_one(void)
{
	int how = one_in(3) ? MAP_PRIVATE : MAP_SHARED;

	if (unmapped)
		return;
	unmap();
	mapped_size = 4096 * (1 + below(4));
	mapped = mmap(NULL, mapped_size, PROT_READ | PROT_WRITE, how, *file(), 4096 * below(3));
	if (mapped == MAP_FAILED)
		mapped = mmap(NULL, mapped_size, PROT_READ, how, *file(), 0);
}

static void touch(void)
{
	volatile uint8_t *at;

	if (mapped == MAP_FAILED || sigsetjmp(faulted, 1))
		return;
	at = mapped + below(mapped_size);
	if (one_in(2))
		*at = 1;
	else
		(void)*at;
}

static void list_names(void)
{
	char list[4096];

	for (int turn = 0; turn < 3; turn++)
		if (syscall(SYS_getdents64, *file(), list, sizeof(list)) <= 0)
			return;
}

static void lock_file(void)
{
	struct flock lock = { .l_type = below(3), .l_start = below(100), .l_len = below(100) };

	fcntl(*file(), one_in(2) ? F_GETLK : F_SETLK, &lock);
}

static void change_tree(void)
{
	switch (below(9)) {
	case 0:
		rename(path(), path());
		break;
	case 1:
		renameat2(AT_FDCWD, path(), AT_FDCWD, path(), 1 << below(3));
		break;
	case 2:
		unlink(path());
		break;
	case 3:
		mkdir(path(), 0755);
		break;
	case 4:
		rmdir(path());
		break;
	case 5:
		(void)!symlink("a", path());
		break;
	case 6:
		(void)!link(path(), path());
		break;
	case 7:
		mknod(path(), S_IFREG | 0644, 0);
		break;
	default:
		chdir(one_in(2) ? point : "/");
	}
}

static void change_inode(void)
{
	struct timespec times[2] = { { below(100), 0 }, { 0, UTIME_NOW } };

	switch (below(10)) {
	case 0:
		(void)!truncate(path(), place());
		break;
	case 1:
		(void)!ftruncate(*file(), place());
		break;
	case 2:
		chmod(path(), below(01000));
		break;
	case 3:
		(void)!lchown(path(), below(3), below(3));
		break;
	case 4:
		utimensat(AT_FDCWD, path(), times, 0);
		break;
	case 5:
		setxattr(path(), "user.x", buffer, below(300), 0);
		break;
	case 6:
		removexattr(path(), "user.x");
		break;
	case 7:
		fallocate(*file(), below(4), below(20000), 1 + below(20000));
		break;
	case 8:
		fsync(*file());
		break;
	default:
		syncfs(*file());
	}
}

static void look(void)
{
	struct statx statx_buffer;
	struct stat stat_buffer;
	struct statfs statfs_buffer;
	struct pollfd polled = { *file(), POLLIN | POLLOUT, 0 };
	char text[300];

	switch (below(10)) {
	case 0:
		stat(path(), &stat_buffer);
		break;
	case 1:
		fstat(*file(), &stat_buffer);
		break;
	case 2:
		statx(AT_FDCWD, path(), below(2) * AT_STATX_FORCE_SYNC, STATX_ALL, &statx_buffer);
		break;
	case 3:
		(void)!readlink(path(), text, sizeof(text));
		break;
	case 4:
		getxattr(path(), one_in(2) ? "security.capability" : "user.x", text, below(300));
		break;
	case 5:
		listxattr(path(), text, below(300));
		break;
	case 6:
		access(path(), below(8));
		break;
	case 7:
		statfs(path(), &statfs_buffer);
		break;
	case 8:
		poll(&polled, 1, 0);
		break;
	default:
		ioctl(*file(), one_in(2) ? GET_FLAGS : draw(), buffer);
	}
}

static void move_bytes(void)
{
	int from = *file(), to = *file();

	switch (below(7)) {
	case 0:
	case 1:
		(void)!pwrite(*file(), buffer, length(), place());
		break;
	case 2:
		(void)!write(*file(), buffer, length());
		break;
	case 3:
	case 4:
		(void)!pread(*file(), buffer, length(), place());
		break;
	case 5:
		copy_file_range(from, NULL, to, NULL, length(), 0);
		break;
	default:
		lseek(*file(), below(9000), below(5));
	}
}

void act(void)
{
	uint32_t action = *file() < 0 ? 0 : below(16);

	switch (action) {
	case 0:
	case 1:
	case 2:
		open_one();
		break;
	case 3:
	case 4:
	case 5:
	case 6:
		move_bytes();
		break;
	case 7:
		map_one();
		break;
	case 8:
		touch();
		break;
	case 9:
		list_names();
		break;
	case 10:
		lock_file();
		break;
	case 11:
		change_tree();
		break;
	case 12:
	case 13:
		change_inode();
		break;
	default:
		look();
	}
}

/* Close and unmap everything, and leave the mount. */
void let_go(void)
{
	(void)!chdir("/");
	unmap();
	for (int i = 0; i < FILES; i++)
		close_file(files + i);
}

/* A page that cannot be read or written, or a too large file, must not kill the client. */
void survive_faults(void)
{
	signal(SIGBUS, on_fault);
	signal(SIGSEGV, on_fault);
	signal(SIGXFSZ, SIG_IGN);
}
