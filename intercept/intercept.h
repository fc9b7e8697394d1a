/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fusetune-intercept - runs a FUSE server that knows nothing of it with another
 * FUSE device, file system type and mount options.
 *
 * What is done. A seccomp filter that all processes of the server inherit traps
 * the calls that make a mount. For FUSE's types the listener opens the device that
 * it was given, makes the mount in the place and with the rights of the caller,
 * and puts the device in place of the one that the caller had opened. All other
 * mounts, and all calls with arguments that cannot be used, go on to the kernel as
 * they are. LXD intercepts mounts of containers in the same way.
 *
 * The processes. The process that was started becomes the server by execve(2), so
 * its parent sees it as if it had been started alone. A supervisor and the listener
 * belong to no session or terminal and end when no process has the filter any
 * longer. Each trapped call has a process of its own: several calls are answered
 * at once, and only a process may enter the caller's namespaces.
 *
 *	main.c		arguments; becomes the server
 *	filter.c	which calls are trapped
 *	listener.c	starts, waits for calls, and ends with the server
 *	requests.c	a process a call; takes back what one that was killed has mounted
 *	answer.c	replies to calls
 *	caller.c	arguments and descriptors of the process that called
 *	rights.c	its root, working directory, namespaces and rights
 *	device.c	the device that is put in place of its own
 *	mount.c		mount(2)
 *	options.c	its options
 *	context.c	fsopen(2) and fsconfig(2)
 *	message.c	lines for people
 *	pass.c		descriptors by socket
 *	cgroup.c	a control group of their own
 *
 * Why it is safe. The filter is no barrier: who calls may always mount the kernel's
 * FUSE as if it was not there. So what matters is that the caller gets nothing that
 * it has no right to. The device is opened and the mount is made with the caller's
 * user, groups and capabilities. What its memory holds is copied once, and only the
 * copy is used. A descriptor of /proc/TID never becomes another thread's, and the
 * kernel says whether the call still waits after that was opened.
 */
#ifndef INTERCEPT_H
#define INTERCEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/seccomp.h>
#include <sys/types.h>

#define EXIT_FAILED 1
#define EXIT_USAGE 2

struct settings {
	const char *type;	/* for FUSE on a block device, "blk" is added */
	const char *device;
	const char *options;	/* more mount options, separated by commas; "" for none */
	bool required;		/* fail rather than mount as usual */
	bool apart;		/* a control group of the listener's own */
	int proc;		/* in place of /proc; -1 without one */
	int program;		/* what the command runs; -1 for what its first word names */
	char **command;
};

/* filter.c */

/* Returns the listener's descriptor, or -1 with errno. */
int filter_install(void);

/* listener.c */

/*
 * Starts the listener for this process, which is about to become the server.
 * Returns NULL when it listens, or why it does not.
 */
const char *listener_start(const struct settings *settings);

/* requests.c */

/* Has a process of its own answer the call. */
void requests_begin(const struct settings *settings, int listener,
		    const struct seccomp_notif *call);
bool requests_full(void);
/* Sees which of these processes have ended. */
void requests_reap(const struct settings *settings, int listener);

/* caller.c */

/* A thread that waits for the end of its system call. */
struct caller {
	const struct settings *settings;
	int listener;
	const struct seccomp_notif *call;
	int channel;	/* to the listener's process */
	int proc;	/* /proc, of this process's own PID namespace */
	int thread;	/* /proc/TID */
	int errors;	/* its standard error; -1 without one */
};

/* Opens /proc, or what stands in its place; -1 with errno without it. */
int proc_open(const struct settings *settings);
/* Returns false if the caller is gone or cannot be seen. */
bool caller_find(struct caller *caller);
/* Whether it still waits, so that what was read by its number is its own. */
bool caller_waits(const struct caller *caller);
/*
 * Copies at most size - 1 bytes, up to a null byte or memory that cannot be read,
 * and adds a null byte. Returns whether the caller's text ends within size.
 */
bool caller_text(const struct caller *caller, uint64_t address, char *text, size_t size);
/*
 * Opens a path (O_PATH), from the place that rights_take() took. Links to the
 * process itself lead to the caller. Returns -1 with errno without it.
 */
int caller_path(const struct caller *caller, const char *path);
/* Finds a value of a file such as "status" in /proc/TID; text stays "" without it. */
void caller_value(const struct caller *caller, const char *file, const char *name,
		  char *text, size_t size);

/* rights.c */

/* Takes the caller's root, working directory, namespaces and rights; 0 or -errno. */
int rights_take(const struct caller *caller);

/* answer.c */

/* What becomes of a call. */
enum verdict {
	CONTINUED,	/* the kernel goes on with it as if it was not trapped */
	ANSWERED,	/* it has been replied to, or its caller is gone */
};

/* Answers one call; runs in a process of its own. */
void answer(const struct settings *settings, int listener, int channel,
	    const struct seccomp_notif *call);
/* Ends the call with 0 or -errno. Returns false if nobody waits for it any longer. */
bool answer_send(int listener, uint64_t id, int error);
/* Whether the call has no reply yet and its caller is alive. */
bool answer_awaited(int listener, uint64_t id);
/* Ends the call with this error; says why if the text is not "". */
enum verdict answer_failed(const struct caller *caller, int error, const char *why);
/* The module cannot serve this call: the kernel's FUSE does, or nothing if it was asked for. */
enum verdict answer_stock(const struct caller *caller, const char *why);
/* Whether a file system type is FUSE's; sets block for FUSE on a block device. */
bool is_fuse(const char *type, bool *block);

/* device.c */

/* The device that replaces a descriptor of the caller. */
struct device {
	int fd;
	int replaces;		/* the caller's descriptor */
	bool closed_on_exec;
};

/* Whether the caller has the kernel's FUSE device open as this descriptor. */
bool device_is_stock(const struct caller *caller, int fd);
/*
 * To be called before and after rights_take(): finds the device here, opens it with
 * the caller's rights. Both return a descriptor, or -1 with errno.
 */
int device_find(const struct caller *caller);
int device_open(const struct caller *caller, int found, struct device *device);
/* Puts the device in place of the caller's descriptor. Returns 0 or -errno. */
int device_replace(const struct caller *caller, const struct device *device);

/* options.c */

/* Bytes of a value that fsconfig(2) takes (fs/fsopen.c, strndup_user(_value, 256)). */
#define OPTIONS_LONGEST 255

/* Gives a file system context all options but the descriptor. Returns 0 or -errno. */
int options_set(int context, const char *options);
/* The descriptor that counts, which is the last one; -1 without one. */
int options_descriptor(const char *options);
/* Whether fsconfig(2) takes each option. */
bool options_fit(const char *options);

/* mount.c */

enum verdict mount_answer(struct caller *caller);
/* Ends a call whose mount this context refused with -errno, and says what the kernel says. */
enum verdict mount_refused(const struct caller *caller, int context, int error);
/* Removes a mount of this process's namespace, by an open descriptor of it. */
void mount_undo(int proc, int mount);

/* context.c */

enum verdict context_open(struct caller *caller);
enum verdict context_configure(struct caller *caller);

/* message.c */

/* One line on standard error. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* One line to another process's standard error or, without one, to the system's log. */
void tell(int errors, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* cgroup.c */

/* Moves this process, and those that it starts later, into a group below its own. */
bool cgroup_leave(void);

/* pass.c */

/* Sends a byte with a descriptor; returns whether it was sent. */
bool pass_fd(int socket, int fd);
/* Returns the descriptor that was sent, or -1 if there is none. */
int receive_fd(int socket, int flags);

#endif
