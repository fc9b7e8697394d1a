// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A hostile FUSE server, and clients that use its mounts.
 *
 *   hostile TYPE POINT SEED REPLIES [unmapped] [every]
 *
 * Mounts the file system TYPE (fuse or fusetuned) at POINT, again and again, until its server has
 * sent REPLIES replies. Each mount has its own seed, made from SEED and the mount's number. Up to
 * a point that the seed chooses, the server follows the protocol. From there on, its replies are
 * wrong in one of the ways of `enum lie`, as often as the seed says. Four processes use the mount
 * meanwhile. At the end a line of JSON says what was done. The kernel's complaints are printed with
 * the number of the mount.
 *
 * With `unmapped`, they map no file: if a write to a mapped page fails, the kernel sometimes warns
 * (__folio_mark_dirty), also with its own FUSE. With `every`, each mount of fusetuned has all of
 * its options, and otherwise some.
 *
 * As the first process of a kernel, it also mounts what it needs, loads the module named by the
 * fifth argument, unloads it afterwards, and ends the machine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hostile.h"

static const char *const lies[LIES] = {
	"honest", "error", "short", "long", "length", "shape", "field", "noise", "unique", "twice",
	"late", "never", "notify",
};

struct stage *stage;
struct tally tally;
const char *type, *point;
bool unmapped, every;

void die(const char *what)
{
	perror(what);
	exit(1);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void play(uint64_t wanted)
{
	int log = open_log();
	double began = seconds(), said = began;
	int pipe_ends[2];
	pthread_t thread;
	uint32_t number = 0;

	stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (log < 0 || stage == MAP_FAILED || pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC))
		die("hostile");
	sem_init(&notification_ready, 0, 0);
	sem_init(&notification_sent, 0, 1);
	for (int i = 0; i < CLIENTS; i++)
		start_client(i);
	if (pthread_create(&thread, NULL, send_notifications, NULL))
		die("pthread_create");
	if (mount("none", point, "tmpfs", MS_RDONLY, NULL))
		die(point);
	while (tally.replies < wanted) {
		play_mount(++number, pipe_ends, wanted - tally.replies);
		look_after_clients();
		read_log(log, number);
		if (seconds() - said > 60) {
			said = seconds();
			printf("mount %u: %lu tally.replies in %.0f s\n", number, tally.replies, said - began);
			fflush(stdout);
		}
	}
	end_clients();
	umount(point);
	read_log(log, number);
	printf("{\"type\": \"%s\", \"seed\": %lu, \"replies\": %lu, \"refused\": %lu, "
	       "\"mounts\": %lu, \"mounts_refused\": %lu, \"calls\": %lu, \"deaths\": %lu, "
	       "\"complaints\": %lu, \"tuned_opens\": %lu, \"seconds\": %.0f",
	       type, base_seed, tally.replies, tally.refused, tally.mounts, tally.mounts_refused,
	       atomic_load(&stage->calls), tally.deaths, tally.complaints, tally.tuned_opens, seconds() - began);
	for (int i = 0; i < LIES; i++)
		printf(", \"%s\": %lu", lies[i], tally.told[i]);
	printf("}\n");
	fflush(stdout);
}

static void set_up(const char *module)
{
	char name[64], control[64];
	int fd;

	if (mount("proc", "/proc", "proc", 0, NULL) || mount("sysfs", "/sys", "sysfs", 0, NULL))
		die("proc, sysfs");
	if (mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) && errno != EBUSY)
		die("devtmpfs");
	if (mount("tmpfs", "/mnt", "tmpfs", 0, NULL) || mkdir("/mnt/point", 0755))
		die("/mnt");
	snprintf(name, sizeof(name), "/sys/fs/%s/connections", type);
	snprintf(control, sizeof(control), "%sctl", type);
	fd = open(module, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
		die(module);
	close(fd);
	if (mount("control", name, control, 0, NULL))
		die(name);
}

int main(int argc, char **argv)
{
	bool first = getpid() == 1;
	char name[64];
	int log;

	/* The kernel may have added arguments of its own. */
	if (argc < (first ? 6 : 5)) {
		fprintf(stderr, "usage: hostile TYPE POINT SEED REPLIES [MODULE] [unmapped] [every]\n");
		return 2;
	}
	type = argv[1];
	point = argv[2];
	base_seed = strtoull(argv[3], NULL, 10);
	for (int i = 5; i < argc; i++) {
		unmapped |= !strcmp(argv[i], "unmapped");
		every |= !strcmp(argv[i], "every");
	}
	if (first)
		set_up(argv[5]);
	play(strtoull(argv[4], NULL, 10));
	if (!first)
		return tally.complaints != 0;
	log = open_log();
	snprintf(name, sizeof(name), "/sys/fs/%s/connections", type);
	umount(name);
	if (syscall(SYS_delete_module, type, O_NONBLOCK))
		perror("unload");
	read_log(log, 0);
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
