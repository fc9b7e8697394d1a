/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fusetune-intercept - run an unmodified FUSE server with another FUSE device,
 * file system type and mount options.
 *
 * How it works. A seccomp filter that all processes of the server inherit traps
 * the system calls that make a mount. For FUSE's types the listener opens the
 * device that it was given, makes the mount at the caller's location and with the
 * caller's rights, and replaces the device that the caller has opened. The kernel
 * continues all other mounts, and all calls with unusable arguments, unchanged. LXD
 * intercepts mounts of containers in the same way.
 *
 * The processes. The process that was started becomes the server by execve(2), so
 * its parent sees no difference. A supervisor and the listener leave its session and
 * terminal, unless an autofs daemon started it, and end when no process has the
 * filter any longer. Each trapped call is handled by its own process, so that several
 * calls can be served at once, and because only a process can enter the caller's
 * namespaces.
 *
 *	main.c		arguments; becomes the server
 *	filter.c	which calls are trapped
 *	listener.c	starts, waits for calls, and ends with the server
 *	requests.c	a process for each call; undoes the mount of one that was killed
 *	call.c		dispatches a call
 *	reply.c		replies to a call
 *	caller.c	the caller's arguments and descriptors
 *	rights.c	the caller's root, working directory, namespaces and rights
 *	device.c	the device that replaces the caller's
 *	mount.c		mount(2)
 *	options.c	file system types and mount options
 *	context.c	fsopen(2) and fsconfig(2)
 *	message.c	messages for the user
 *	pass.c		passes descriptors through a socket
 *	cgroup.c	a cgroup for supervisor and listener
 *
 * Why it is safe. The filter is not a security boundary: a caller may always mount
 * the kernel's FUSE as if there was no filter. What matters is that a caller gains
 * no rights. The device is opened and the mount is made with the caller's user,
 * groups and capabilities. The process that does so cannot be traced by the caller,
 * whose rights it has. The caller's memory is copied once, and only the copy is
 * used. While the call waits, /proc/TID belongs to the calling thread. Later it may
 * belong to a set-uid program. So the kernel is asked whether the call still waits
 * after reading and before using what was read.
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
	bool apart;		/* a separate cgroup for the listener */
	int proc;		/* used instead of /proc; -1: none */
	int program;		/* what the command runs; -1: what its first word names */
	char **command;
};

/* filter.c */

/* Returns the listener's descriptor, or -1 with errno. */
int filter_install(void);

/* listener.c */

/*
 * Starts the listener for this process, which is about to become the server.
 * Returns NULL when it is listening, or the reason why it is not.
 */
const char *listener_start(const struct settings *settings);

/* requests.c */

/* Starts a process that handles the call. */
void requests_begin(const struct settings *settings, int listener,
		    const struct seccomp_notif *call);
bool requests_full(void);
/* Cleans up after those of these processes that have ended. */
void requests_reap(const struct settings *settings, int listener);

/* caller.c */

/* A thread that waits in a trapped system call. */
struct caller {
	const struct settings *settings;
	int listener;
	const struct seccomp_notif *call;
	int channel;	/* to the listener's process */
	int proc;	/* /proc of this process's PID namespace */
	int thread;	/* /proc/TID */
	int errors;	/* its standard error; -1: none */
};

/* Opens /proc or what replaces it. Returns -1 with errno on error. */
int proc_open(const struct settings *settings);
/* Returns false if the caller is gone or cannot be seen. */
bool caller_find(struct caller *caller);
/* Whether it still waits; if so, what was read under its TID was its own. */
bool caller_waits(const struct caller *caller);
/*
 * Copies at most size - 1 bytes, up to a null byte or to unreadable memory, and adds
 * a null byte. Returns whether the caller's text ends within size.
 */
bool caller_text(const struct caller *caller, uint64_t address, char *text, size_t size);
/*
 * Opens a path (O_PATH), resolved as the caller would after rights_take(). A path
 * below /proc/self/fd/3, /proc/self/cwd or the like leads to the caller. Any other
 * use of such links fails with ELOOP. Returns -1 with errno on error.
 */
int caller_path(const struct caller *caller, const char *path);
/* Finds a value in a file such as /proc/TID/status; text is "" if there is none. */
void caller_value(const struct caller *caller, const char *file, const char *name,
		  char *text, size_t size);

/* rights.c */

/* Adopts the caller's root, working directory, namespaces and rights; 0 or -errno. */
int rights_take(const struct caller *caller);

/* reply.c */

/* What happens to a call. */
enum verdict {
	CONTINUED,	/* the kernel continues it as if it was not trapped */
	REPLIED,	/* it has been replied to, or its caller is gone */
};

/* Ends the call with 0 or -errno. Returns false if nobody waits for it any more. */
bool reply_send(int listener, uint64_t id, int error);
/* Lets the kernel continue the call. */
void reply_continue(int listener, uint64_t id);
/* Whether the call has no reply yet and its caller is alive. */
bool reply_awaited(int listener, uint64_t id);
/* Ends the call with this error, and reports why unless that is "". */
enum verdict reply_failed(const struct caller *caller, int error, const char *why);
/* The module cannot serve this call: lets the kernel's FUSE do it, or fails if `required`. */
enum verdict reply_stock(const struct caller *caller, const char *why);

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
 * device_find() finds the device here, before rights_take(); device_open() opens it
 * with the caller's rights, afterwards. Both return a descriptor, or -1 with errno.
 */
int device_find(const struct caller *caller);
int device_open(const struct caller *caller, int found, struct device *device);
/* Replaces the caller's descriptor with the device. Returns 0 or -errno. */
int device_replace(const struct caller *caller, const struct device *device);

/* options.c */

/* Whether a file system type is FUSE's; sets block for FUSE on a block device. */
bool is_fuse(const char *type, bool *block);

/* The longest value that fsconfig(2) takes (fs/fsopen.c, strndup_user(_value, 256)). */
#define OPTIONS_LONGEST 255

/* Gives a file system context all options but the descriptor. Returns 0 or -errno. */
int options_set(int context, const char *options);
/* The descriptor in the options: the last one counts; -1: none. */
int options_descriptor(const char *options);
/* A copy as mount(2) takes it, each with a comma after it; NULL without memory. */
char *options_without_descriptor(const char *options);
/* Whether fsconfig(2) takes each option. */
bool options_fit(const char *options);

/* mount.c */

enum verdict mount_call(struct caller *caller);
/*
 * Opens a context of our type, after rights_take(). Returns -1 with errno on error;
 * then why is NULL unless the kernel's own FUSE may be mounted in its place.
 */
int mount_context(const struct caller *caller, bool block, const char **why);
/* Ends a call whose mount was refused with -errno, and passes on the kernel's message. */
enum verdict mount_refused(const struct caller *caller, int context, int error);
/* Unmounts the top mount of those on a descriptor, in this process's namespace. */
void mount_undo(int proc, int mount);

/* context.c */

enum verdict context_open(struct caller *caller);
enum verdict context_configure(struct caller *caller);

/* call.c */

/* Handles one call; runs in its own process. */
void call_handle(const struct settings *settings, int listener, int channel,
		 const struct seccomp_notif *call);

/* message.c */

/* One line on standard error. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* One line on another process's standard error or, if that is not possible, in syslog. */
void tell(int errors, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* cgroup.c */

/* Moves this process, and those that it starts later, into a child cgroup. */
bool cgroup_leave(void);

/* pass.c */

/* Sends a byte with a descriptor; returns whether it was sent. */
bool pass_fd(int socket, int fd);
/* Returns the descriptor that was sent, or -1 if there is none. */
int receive_fd(int socket, int flags);

#endif
