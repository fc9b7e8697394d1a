// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Start, signals and end of the server.
 */
#include "mirrorfs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_THREADS 10
#define DEFAULT_THREADS_SLOWED 64

/* Interrupts the main thread's wait; nothing else uses it. */
#define WAKE_SIGNAL (SIGRTMIN)
#define WAKE_PERIOD_NS (10 * 1000 * 1000L)

struct signal_thread {
	pthread_t thread;
	pthread_t main_thread;
	struct mirror *mirror;
	atomic_bool loop_ended;
};

static void on_wake(int sig)
{
	(void)sig;
}

static void handled_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGUSR1);
	sigaddset(set, SIGUSR2);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
}

/*
 * libfuse's loop checks its exit flag only when a signal interrupts it. A signal
 * between the check and the wait is lost, so send it until the loop has ended.
 */
static void end_loop(struct signal_thread *st)
{
	const struct timespec period = { .tv_nsec = WAKE_PERIOD_NS };

	throttle_stop();
	fuse_session_exit(st->mirror->session);
	while (!atomic_load(&st->loop_ended)) {
		pthread_kill(st->main_thread, WAKE_SIGNAL);
		nanosleep(&period, NULL);
	}
}

/* Signals are accepted here, one at a time, so that their handling is ordinary code. */
static void *take_signals(void *arg)
{
	struct signal_thread *st = arg;
	sigset_t set;
	int sig;

	handled_signals(&set);
	for (;;) {
		if (sigwait(&set, &sig) != 0)
			continue;
		if (atomic_load(&st->loop_ended))
			return NULL;
		switch (sig) {
		case SIGUSR1:
			document_write(false);
			break;
		case SIGUSR2:
			/* Pending signals come in any order; `resets` in the document shows which. */
			document_reset();
			document_write(false);
			break;
		default:
			end_loop(st);
			return NULL;
		}
	}
}

static int start_signal_thread(struct signal_thread *st)
{
	const struct sigaction action = { .sa_handler = on_wake };

	/* Without SA_RESTART, because it must interrupt system calls. */
	sigaction(WAKE_SIGNAL, &action, NULL);
	st->main_thread = pthread_self();
	errno = pthread_create(&st->thread, NULL, take_signals, st);
	if (errno) {
		fprintf(stderr, "mirrorfs: cannot start a thread: %s\n", strerror(errno));
		return -1;
	}
	return 0;
}

static void stop_signal_thread(struct signal_thread *st)
{
	atomic_store(&st->loop_ended, true);
	pthread_kill(st->thread, SIGTERM);
	pthread_join(st->thread, NULL);
}

/* Reports the status to the parent and releases the terminal. */
static void report_status(struct mirror *mirror, int status)
{
	unsigned char byte = (unsigned char)status;
	int null;

	if (mirror->status_fd == -1)
		return;
	if (status == 0) {
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null != -1) {
			dup2(null, STDIN_FILENO);
			dup2(null, STDOUT_FILENO);
			dup2(null, STDERR_FILENO);
			close(null);
		}
	}
	while (write(mirror->status_fd, &byte, 1) == -1 && errno == EINTR)
		;
	close(mirror->status_fd);
	mirror->status_fd = -1;
}

static void on_started(struct mirror *mirror)
{
	report_status(mirror, 0);
}

static void on_refused(struct mirror *mirror, const char *why)
{
	fprintf(stderr, "mirrorfs: %s\n", why);
	mirror->status = EXIT_RUNTIME;
	fuse_session_exit(mirror->session);
}

/*
 * The parent waits until INIT has been negotiated, so its exit status tells whether
 * the mount works. Returns -1 in the child.
 */
static int go_to_background(struct mirror *mirror)
{
	unsigned char status = EXIT_RUNTIME;
	int fds[2];
	pid_t child;

	if (pipe2(fds, O_CLOEXEC) == -1 || (child = fork()) == -1) {
		fprintf(stderr, "mirrorfs: cannot go to the background: %s; try -f\n",
			strerror(errno));
		return EXIT_RUNTIME;
	}
	if (child == 0) {
		close(fds[0]);
		setsid();
		if (chdir("/") == -1)
			perror("mirrorfs: /");
		mirror->status_fd = fds[1];
		return -1;
	}
	close(fds[1]);
	/* End of file: the child has ended, and has printed the reason itself. */
	while (read(fds[0], &status, 1) == -1 && errno == EINTR)
		;
	close(fds[0]);
	return status;
}

static void raise_file_limit(void)
{
	struct rlimit limit;

	/* Each inode that the kernel knows holds a descriptor. */
	if (getrlimit(RLIMIT_NOFILE, &limit) == -1)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static unsigned int worker_threads(const struct options *opts)
{
	bool slowed = opts->delay_ns || opts->read_delay_ns || opts->write_delay_ns ||
		      opts->bandwidth;
	uint64_t threads = opts->threads;

	if (!threads)
		threads = slowed ? DEFAULT_THREADS_SLOWED : DEFAULT_THREADS;
	/* Each request in service needs a thread, and so does the next one in the queue. */
	if (opts->served && threads < 2 * opts->served + 2)
		threads = 2 * opts->served + 2;
	return (unsigned int)threads;
}

static int run_loop(struct mirror *mirror)
{
	struct fuse_loop_config *config;
	int err;

	if (mirror->opts.singlethread)
		return fuse_session_loop(mirror->session);
	config = fuse_loop_cfg_create();
	if (!config)
		return -ENOMEM;
	fuse_loop_cfg_set_clone_fd(config, mirror->opts.clone_fd);
	fuse_loop_cfg_set_max_threads(config, worker_threads(&mirror->opts));
	err = fuse_session_loop_mt(mirror->session, config);
	fuse_loop_cfg_destroy(config);
	return err;
}

static int serve(struct mirror *mirror)
{
	struct signal_thread signals = { .mirror = mirror };
	int err;

	/* Replaces a document that an earlier server may have left. */
	document_write(false);
	if (start_signal_thread(&signals) != 0)
		return EXIT_RUNTIME;
	err = run_loop(mirror);
	stop_signal_thread(&signals);
	if (err < 0 && !mirror->status) {
		fprintf(stderr, "mirrorfs: %s: the session ended: %s\n",
			mirror->opts.mountpoint, strerror(-err));
		mirror->status = EXIT_RUNTIME;
	}
	return mirror->status;
}

/*
 * With default_permissions, because requests are carried out as the server's
 * user, and only the kernel can check the caller's permissions.
 */
static int add_mount_options(const struct options *opts, struct fuse_args *args)
{
	char *name = NULL, *mount_options = NULL;
	int failed = -1;

	if (fuse_opt_add_opt(&mount_options, "default_permissions,subtype=mirrorfs") == -1)
		goto out;
	if (!opts->fsname_given) {
		if (asprintf(&name, "fsname=%s", opts->source) == -1) {
			name = NULL;
			goto out;
		}
		if (fuse_opt_add_opt_escaped(&mount_options, name) == -1)
			goto out;
	}
	if (fuse_opt_add_arg(args, "-o") == -1 || fuse_opt_add_arg(args, mount_options) == -1)
		goto out;
	failed = 0;
out:
	free(name);
	free(mount_options);
	return failed;
}

static int mount_and_serve(struct mirror *mirror)
{
	const struct options *opts = &mirror->opts;
	char device[32];
	int fd = -1, status = EXIT_RUNTIME, err;

	if (opts->tuned) {
		fd = tuned_mount(opts);
		if (fd == -1)
			return status;
		snprintf(device, sizeof(device), "/dev/fd/%d", fd);
	}
	if (opts->tuned && opts->atomic_open != ATOMIC_OPEN_OFF)
		err = atomic_open_session(mirror, fd);
	else
		err = fuse_session_mount(mirror->session, opts->tuned ? device : opts->mountpoint);
	if (err) {
		fprintf(stderr, "mirrorfs: %s: cannot mount; see the line above\n",
			opts->mountpoint);
		if (opts->tuned)
			tuned_unmount(opts, fd);
		return status;
	}
	status = serve(mirror);
	if (opts->tuned)
		tuned_unmount(opts, fd);
	fuse_session_unmount(mirror->session);
	document_write(true);
	return status;
}

static int run(struct mirror *mirror, struct fuse_args *args)
{
	const struct options *opts = &mirror->opts;
	sigset_t set;
	int status;

	handled_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	raise_file_limit();
	umask(0);
	/* Inherited by threads. With the default slack, delays end up to 50 us late. */
	prctl(PR_SET_TIMERSLACK, 1UL);

	if (inode_table_init(opts->source) == -1) {
		fprintf(stderr, "mirrorfs: %s: %s; name a directory that this user can open\n",
			opts->source, strerror(errno));
		return EXIT_RUNTIME;
	}
	throttle_init(opts->served, opts->bandwidth);
	document_init(opts);
	mirror->session = fuse_session_new(args, &mirror_ops, sizeof(mirror_ops), mirror);
	/* libfuse has printed which option it does not know. */
	if (!mirror->session) {
		inode_table_free();
		return EXIT_USAGE;
	}
	status = opts->foreground ? -1 : go_to_background(mirror);
	if (status == -1) {
		status = mount_and_serve(mirror);
		report_status(mirror, status);
	}
	fuse_session_destroy(mirror->session);
	inode_table_free();
	retired_clear();
	return status;
}

int main(int argc, char *argv[])
{
	struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
	struct mirror mirror = {
		.open_lock = PTHREAD_MUTEX_INITIALIZER,
		.started = on_started,
		.refused = on_refused,
		.owned_by_caller = geteuid() == 0,
		.status_fd = -1,
	};
	int status = options_parse(&mirror.opts, &args);

	if (status)
		goto out;
	if (mirror.opts.help) {
		options_help(argv[0]);
		goto out;
	}
	if (mirror.opts.version) {
		printf("mirrorfs %s\nlibfuse %s\n", VERSION, fuse_pkgversion());
		goto out;
	}
	status = EXIT_RUNTIME;
	if (add_mount_options(&mirror.opts, &args) == 0)
		status = run(&mirror, &args);
	else
		fprintf(stderr, "mirrorfs: out of memory\n");
out:
	options_free(&mirror.opts);
	fuse_opt_free_args(&args);
	return status;
}
