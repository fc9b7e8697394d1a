/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mirrorfs - a FUSE server that mirrors a directory, counts the kernel's requests
 * and can be slowed down to resemble a disk or a network.
 */
#ifndef MIRRORFS_H
#define MIRRORFS_H

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 12)

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

/* fuse_file_info.parallel_direct_writes came with libfuse 3.15. */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 15)
#define HAVE_PARALLEL_DIRECT_WRITES 1
#endif

/*
 * From 3.17 on the request buffer follows the negotiated max_write; before,
 * it is fixed at 256 pages and a larger max_write breaks the connection.
 */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define HAVE_LARGE_WRITES 1
#define HAVE_FEATURE_FLAGS 1
#endif

#if defined(HAVE_FEATURE_FLAGS) && defined(FUSE_CAP_PASSTHROUGH)
#define HAVE_PASSTHROUGH 1
#endif

#define EXIT_RUNTIME 1
#define EXIT_USAGE 2

#define NSEC_PER_SEC 1000000000ULL

struct mirror;

/* options.c */

enum {
	SPLICE_READ = 1 << 0,	/* requests are spliced from /dev/fuse */
	SPLICE_WRITE = 1 << 1,	/* replies to READ are spliced to /dev/fuse */
	SPLICE_MOVE = 1 << 2,	/* ... with SPLICE_F_MOVE */
};

enum atomic_open {
	ATOMIC_OPEN_OFF,
	ATOMIC_OPEN_ECHO,	/* returns INIT's bit, but does not serve it */
	ATOMIC_OPEN_ON,
};

/* Zero means "not given" unless said otherwise. */
struct options {
	char *source;		/* resolved */
	char *mountpoint;	/* resolved */
	char *counters;		/* resolved */
	char *tuned_options;	/* combined with + */
	char *not_tuned;	/* an option that only libfuse's own mount has */
	bool foreground;
	bool debug;
	bool singlethread;
	bool writeback;
	bool direct_io;
	bool parallel_direct_writes;
	bool passthrough;
	bool keep_cache;
	bool no_xattr;
	bool clone_fd;
	bool fsname_given;
	bool tuned;
	bool help;
	bool version;
	unsigned int splice;
	enum atomic_open atomic_open;
	uint64_t max_write;
	uint64_t max_readahead;
	uint64_t max_background;
	uint64_t threads;
	uint64_t timeout_ns;
	uint64_t entry_timeout_ns;
	uint64_t negative_timeout_ns;
	uint64_t delay_ns;
	uint64_t read_delay_ns;
	uint64_t write_delay_ns;
	uint64_t served;
	uint64_t bandwidth;	/* bytes per second */
	uint64_t serialize_alloc;	/* bytes of a write; 0: never */
	uint64_t fail_every;	/* every Nth WRITE; 0: none */
	uint64_t short_every;
};

/*
 * Fills opts and leaves libfuse's own options in args. Returns 0, or the exit
 * status after one line on stderr. With opts->help or ->version set nothing
 * else is checked.
 */
int options_parse(struct options *opts, struct fuse_args *args);
void options_free(struct options *opts);
void options_help(const char *program);

/* tuned.c */

/*
 * Mounts with the module fusetuned. Returns the open device, or -1 after one
 * line on stderr.
 */
int tuned_mount(const struct options *opts);
/* Unmounts what tuned_mount() mounted, if that is still there. */
void tuned_unmount(const struct options *opts, int fd);

/* allocate.c */

/* Allocates the missing blocks of a range of a file while other large writes wait. */
void allocate_whole(int fd, off_t offset, off_t size);

/* atomic_open.c */

/* Makes libfuse serve the open device, with TUNED_OPEN; returns 0 or -errno. */
int atomic_open_session(struct mirror *mirror, int fd);
/* Whether the request that libfuse sees as CREATE is TUNED_OPEN; and its result. */
bool atomic_open_asked(void);
void atomic_open_looked_up(void);
void atomic_open_made(void);

/* throttle.c */

struct throttle_state {
	uint64_t most_in_service;
	uint64_t most_waiting;
};

void throttle_init(uint64_t served, uint64_t bandwidth);
/* Occupies one of the `served` slots for delay_ns; the rest queue in order. */
void throttle_serve(uint64_t delay_ns);
/* Waits until the simulated link has carried this many bytes. */
void throttle_transfer(uint64_t bytes);
/* Ends all waits and makes later ones return at once. */
void throttle_stop(void);
void throttle_state(struct throttle_state *state);
void throttle_reset(void);

/* counters.c */

enum opcode {
	OP_LOOKUP, OP_FORGET, OP_GETATTR, OP_SETATTR, OP_READLINK, OP_SYMLINK,
	OP_MKNOD, OP_MKDIR, OP_UNLINK, OP_RMDIR, OP_RENAME, OP_LINK, OP_OPEN,
	OP_READ, OP_WRITE, OP_STATFS, OP_RELEASE, OP_FSYNC, OP_SETXATTR,
	OP_GETXATTR, OP_LISTXATTR, OP_REMOVEXATTR, OP_FLUSH, OP_OPENDIR,
	OP_READDIR, OP_READDIRPLUS, OP_RELEASEDIR, OP_FSYNCDIR, OP_CREATE,
	OP_FALLOCATE, OP_LSEEK, OP_COPY_FILE_RANGE, OP_TUNED_HELLO, OP_TUNED_OPEN,
	OP_COUNT,
	OP_ALL = OP_COUNT	/* not a request: all of them together */
};

/* Requests of one kind, or on one file. */
struct tally {
	_Atomic uint64_t count;
	_Atomic uint64_t bytes;
	_Atomic uint64_t largest;
	_Atomic uint64_t in_flight;
	_Atomic uint64_t most_in_flight;
};

void tally_begin(struct tally *tally, uint64_t bytes);
void tally_end(struct tally *tally);
void tally_reset(struct tally *tally);

void counters_begin(enum opcode op, uint64_t bytes);
/* Must be called before the reply is sent. */
void counters_end(enum opcode op, bool failed);
/* Notes what INIT negotiated. */
void counters_negotiated(const struct fuse_conn_info *conn);

/* file_tallies.c */

/* Keeps the tally of a file that the kernel forgot. */
void retired_add(const char *path, struct tally *tally);
void retired_clear(void);

/* document.c */

void document_init(const struct options *opts);
/* Sets all counters to zero. */
void document_reset(void);
/* Writes the document, if the user asked for one. */
void document_write(bool final);

/* inode.c */

struct inode {
	struct inode *next;	/* hash chain; table lock */
	uint64_t nlookup;	/* table lock */
	dev_t dev;
	ino_t ino;
	uint64_t generation;
	int fd;			/* O_PATH */
	int backing_id;		/* open_lock of struct mirror */
	unsigned int nopen;	/* the same */
	struct tally writes;
};

int inode_table_init(const char *source);
void inode_table_free(void);
struct inode *inode_get(fuse_ino_t nodeid);
fuse_ino_t inode_nodeid(const struct inode *inode);
/*
 * Takes over fd (O_PATH) and returns the inode with one more lookup, or NULL
 * with fd closed when there is no memory.
 */
struct inode *inode_lookup(int fd, const struct stat *st);
void inode_ref(struct inode *inode);
void inode_forget(struct inode *inode, uint64_t nlookup);
/* Path of the file relative to the source; "" if it is not known. */
void inode_path(const struct inode *inode, char *buf, size_t size);
void inode_table_lock(void);
void inode_table_unlock(void);
/* Calls fn for each known inode. The caller holds the table lock. */
void inode_for_each(void (*fn)(struct inode *inode, void *arg), void *arg);

/* ops.c */

extern const struct fuse_lowlevel_ops mirror_ops;

/*
 * The session's user pointer. `started` is called when INIT has been negotiated,
 * `refused` if it cannot be.
 */
struct mirror {
	struct options opts;
	pthread_mutex_t open_lock;	/* backing_id and nopen of all inodes */
	size_t splice_room;		/* larger READs are copied */
	bool owned_by_caller;		/* running as root: new files get their owner */
	void (*started)(struct mirror *mirror);
	void (*refused)(struct mirror *mirror, const char *why);
	struct fuse_session *session;
	int status;			/* exit status */
	int status_fd;			/* tells the waiting parent; -1 in the foreground */
};

#endif
