// SPDX-License-Identifier: GPL-2.0-or-later
/* The processes that use the mounts. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hostile.h"

static pid_t clients[CLIENTS];

static void be_client(uint32_t number)
{
	uint32_t mount = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	survive_faults();
	for (;;) {
		uint32_t now = atomic_load(&stage->mount);
		bool expected = true;

		if (now != mount) {
			let_go();
			mount = now;
			seed(mount, 1 + number);
		}
		if (!mount) {
			syscall(SYS_futex, &stage->mount, FUTEX_WAIT, 0, NULL);
			continue;
		}
		if (atomic_compare_exchange_strong(&stage->unmount, &expected, false))
			umount2(point, MNT_DETACH);
		act();
		atomic_fetch_add_explicit(&stage->calls, 1, memory_order_relaxed);
	}
}

void start_client(int number)
{
	clients[number] = fork();
	if (clients[number] < 0)
		die("fork");
	if (!clients[number])
		be_client(number);
}

void look_after_clients(void)
{
	for (int i = 0; i < CLIENTS; i++) {
		if (waitpid(clients[i], NULL, WNOHANG) == clients[i]) {
			tally.deaths++;
			start_client(i);
		}
	}
}

void end_clients(void)
{
	for (int i = 0; i < CLIENTS; i++) {
		kill(clients[i], SIGKILL);
		waitpid(clients[i], NULL, 0);
	}
}
