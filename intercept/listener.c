// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The listener and its supervisor. Neither is a child of the server, which may wait
 * for any child, and they share no descriptor, terminal or working directory with
 * it. Signals to the server's process group do not reach them, and SIGTERM to all
 * processes of its service does not end them, because the server may still mount.
 * They end when no process has the filter any longer.
 *
 * A server that an autofs daemon starts, such as systemd for x-systemd.automount, is in
 * that daemon's process group. Everybody else who looks up the mount point waits for
 * the mount (fs/autofs/root.c, autofs_d_manage()), so there they stay in the group, and
 * only ignore the signals of its terminal.
 *
 * The supervisor only reports if the listener is killed. The kernel then fails every
 * trapped call with ENOSYS, which no server explains to its user.
 */
#include "intercept.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

/* Descriptors are moved here first, because those that stay open become 3 and 4. */
#define MOVED 5

/* The structures of newer kernels may be larger than in these headers. */
static struct seccomp_notif *new_call(void)
{
	struct seccomp_notif_sizes sizes;

	if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes))
		return NULL;
	return calloc(1, sizes.seccomp_notif > sizeof(struct seccomp_notif) ?
			 sizes.seccomp_notif : sizeof(struct seccomp_notif));
}

static void on_child(int signal)
{
	(void)signal;
}

static void listen_for_calls(const struct settings *settings, int listener)
{
	struct sigaction child = { .sa_handler = on_child };
	sigset_t blocked, waiting;
	struct seccomp_notif *call;

	sigaction(SIGCHLD, &child, NULL);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_BLOCK, &blocked, &waiting);
	sigdelset(&waiting, SIGCHLD);
	for (;;) {
		struct pollfd ready = { listener, requests_full() ? 0 : POLLIN, 0 };

		if (ppoll(&ready, 1, NULL, &waiting) == 1 && ready.revents & POLLIN) {
			call = new_call();
			/* Fails if the caller has just been killed. */
			if (call && !ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, call))
				requests_begin(settings, listener, call);
			free(call);
		} else if (ready.revents) {
			return;
		}
		requests_reap(settings, listener);
	}
}

static void supervise(const struct settings *settings, int listener, int server)
{
	pid_t process = fork();
	int status = 0, errors;

	if (!process) {
		listen_for_calls(settings, listener);
		_exit(0);
	}
	close(listener);
	while (waitpid(process, &status, 0) == -1 && errno == EINTR)
		;
	if (!WIFSIGNALED(status))
		return;
	errors = pidfd_getfd(server, STDERR_FILENO, 0);
	tell(errors, "signal %d ended the listener of %s: from now on its mounts fail with \"%s\"; "
	     "existing mounts stay. Start it again", WTERMSIG(status), settings->command[0],
	     strerror(ENOSYS));
}

/* Whether this process group is that of an autofs daemon. */
static bool is_autofs_group(const struct settings *settings)
{
	int proc = proc_open(settings), fd = openat(proc, "self/mountinfo", O_RDONLY | O_CLOEXEC);
	FILE *lines = fd == -1 ? NULL : fdopen(fd, "re");
	char *line = NULL, *group;
	bool found = false;
	size_t room = 0;

	while (lines && !found && getline(&line, &room, lines) > 0) {
		group = strstr(line, " - autofs ") ? strstr(strrchr(line, ' '), ",pgrp=") : NULL;
		found = group && atoi(group + strlen(",pgrp=")) == getpgrp();
	}
	free(line);
	if (lines)
		fclose(lines);
	close(proc);
	return found;
}

/*
 * Detaches this process from the server and its parent. Only the socket, whose new descriptor is
 * returned, and the replacement of /proc stay open.
 */
static int leave(struct settings *settings, int socket)
{
	static const int ignored[] = {
		SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2,
		SIGTSTP, SIGTTIN, SIGTTOU
	};
	int null = open("/dev/null", O_RDWR);

	if (!is_autofs_group(settings))
		setsid();
	/* Also for the processes of the calls, which have descriptors that their callers lack. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		_exit(0);
	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	/*
	 * Move both first: the final number of one may be the other's present number, and
	 * the socket has one below 3 if the server was started without standard input.
	 */
	socket = fcntl(socket, F_DUPFD_CLOEXEC, MOVED);
	if (settings->proc != -1)
		settings->proc = fcntl(settings->proc, F_DUPFD_CLOEXEC, MOVED);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	dup3(socket, 3, O_CLOEXEC);
	if (settings->proc != -1)
		dup3(settings->proc, 4, O_CLOEXEC);
	close_range(settings->proc != -1 ? 5 : 4, ~0U, 0);
	settings->proc = settings->proc != -1 ? 4 : -1;
	if (chdir("/"))
		_exit(0);
	openlog("fusetune-intercept", LOG_PID | LOG_NDELAY, LOG_DAEMON);
	return 3;
}

static void run(const struct settings *settings, int socket, pid_t server)
{
	int pidfd = pidfd_open(server, 0), listener;

	/* If the server has ended, its pid may be another's; then nothing is received here. */
	listener = receive_fd(socket, 0);
	if (settings->apart && !cgroup_leave())
		syslog(LOG_WARNING, "%s: the listener has no own cgroup", settings->command[0]);
	if (listener != -1 && pidfd != -1 && send(socket, "", 1, MSG_NOSIGNAL) == 1) {
		close(socket);
		supervise(settings, listener, pidfd);
	}
	_exit(0);
}

/* Returns NULL when the listener has the filter's descriptor. */
static const char *hand_over(int socket)
{
	int listener = filter_install();
	bool listens;
	char byte;

	if (listener == -1)
		return errno == EBUSY ? "another program listens to its system calls already" :
		       errno == EINVAL ? "Linux is older than 5.19" : strerror(errno);
	listens = pass_fd(socket, listener);
	close(listener);
	/* Without a listener the server's mounts fail, so it must not start. */
	if (!listens || recv(socket, &byte, 1, 0) != 1) {
		complain("the listener did not start");
		exit(EXIT_FAILED);
	}
	return NULL;
}

const char *listener_start(const struct settings *settings)
{
	struct settings own = *settings;
	pid_t server = getpid(), child;
	const char *why;
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		return strerror(errno);
	child = fork();
	if (!child) {
		close(sockets[0]);
		if (!fork())
			run(&own, leave(&own, sockets[1]), server);
		_exit(0);
	}
	close(sockets[1]);
	if (child == -1)
		return strerror(errno);
	while (waitpid(child, NULL, 0) == -1 && errno == EINTR)
		;
	why = hand_over(sockets[0]);
	close(sockets[0]);
	return why;
}
