/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface between fs/fuse, as modified by rules.toml and rules/, and our files.
 */
#ifndef TUNED_H
#define TUNED_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

struct dentry;
struct fs_context;
struct fs_parameter;
struct fuse_conn;
struct fuse_entry_out;
struct fuse_file;
struct fuse_in_header;
struct fuse_init_out;
struct fuse_inode;
struct fuse_iqueue;
struct fuse_mount;
struct fuse_open_out;
struct fuse_req;
struct iov_iter;
struct seq_file;
struct tuned_notes;
struct tuned_statistics;
struct tuned_timeout;

/* Mount options that override the server; forced.c. */
enum tuned_forced {
	TUNED_ASYNC_DIO,
	TUNED_ASYNC_READ,
	TUNED_ATTR_TIMEOUT,
	TUNED_BIG_WRITES,
	TUNED_CONGESTION_THRESHOLD,
	TUNED_ENTRY_TIMEOUT,
	TUNED_KEEP_CACHE,
	TUNED_MAX_BACKGROUND,
	TUNED_MAX_READAHEAD,
	TUNED_NEGATIVE_TIMEOUT,
	TUNED_NO_ACCESS,
	TUNED_NO_XATTR,
	TUNED_PARALLEL_DIROPS,
	TUNED_REQUEST_TIMEOUT,
	TUNED_WRITEBACK_CACHE,
	TUNED_FORCED,
};

/* Mount options; zero if not given. */
struct tuned_options {
	/* The value, or 1 for an option without one. */
	unsigned int forced[TUNED_FORCED];
	unsigned int max_pages;
	bool atomic_open;
	bool no_file_caps;
	bool parallel_direct_writes;
	bool parallel_extend;
};

/* In each connection. */
struct tuned_conn {
	struct tuned_options options;
	/* options.forced without those that the reply to INIT ruled out; zero before it. */
	unsigned int forced[TUNED_FORCED];
	/* NULL without request_timeout, and if the kernel has it. */
	struct tuned_timeout *timeout;
	/* NULL until the file is first read. */
	struct tuned_statistics *statistics;
	/* Current limit of pages per request; at most fuse_conn.max_pages. */
	unsigned int max_pages;
	/* Parts of the server's reply to INIT that fuse_conn does not keep. */
	u64 flags;
	unsigned int max_readahead;
	/* State of TUNED_OPEN: TUNED_NEVER and so on. */
	int atomic_open;
	/* NULL without atomic_open, or if it could not be allocated. */
	struct tuned_notes *notes;
	/* INIT has been answered, and its results may be read. */
	bool negotiated;
};

/* A file's size, mtime and ctime as the server has them; keep_cache.c. */
struct tuned_version {
	u64 size;
	u64 mtime;
	u64 ctime;
	u32 mtime_ns;
	u32 ctime_ns;
	bool known;
};

/* In each inode. */
struct tuned_inode {
	/* Direct writes in flight, with parallel_extend; protected by fuse_inode.lock. */
	struct list_head writes;
	/* Held while waiting for writeback with the inode's lock shared. */
	struct mutex sync;
	/* The next attributes are older than the current ones; protected by fuse_inode.lock. */
	bool attr_overtaken;
	/* The version of the cached pages, with keep_cache; protected by fuse_inode.lock. */
	struct tuned_version cached;
};

/* A direct write, from the choice of its position until i_size includes it. */
struct tuned_write {
	struct list_head list;
	struct kiocb *iocb;
	/* NULL if extending writes exclude all others. */
	struct inode *inode;
	loff_t end;
	/* Called after a failed write, when no other is in flight. */
	void (*truncate)(struct file *file);
	struct file *file;
};

/*
 * For code that decides when a request is full. Code that allocates its pages
 * keeps using fuse_conn.max_pages, because this limit may change in between.
 */
#define tuned_max_pages(fc) READ_ONCE((fc)->tuned.max_pages)

/* options.c */

int tuned_open_pipe_limit(void);
void tuned_close_pipe_limit(void);
/* Check who mounts, then call fs/fuse's own. */
int tuned_init_fs_context(struct fs_context *fsc);
int tuned_get_tree(struct fs_context *fsc);
/* Returns -ENOPARAM for an option that is not ours. */
int tuned_parse_param(struct fs_context *fsc, struct fs_parameter *param,
		      struct tuned_options *options);
void tuned_show_options(struct seq_file *m, struct fuse_conn *fc);
/* The parameter max_pages_per_req, at most what a pipe can hold now; 0: stock. */
unsigned int tuned_default_pages(void);

/* Whether a mount without file capabilities hides this attribute. */
bool tuned_hides_xattr(struct inode *inode, const char *name);

/* Adds the mount option's flag to the reply to OPEN or CREATE. */
void tuned_open_flags(struct fuse_file *ff);

/* forced.c */

#define TUNED_FORCED_TEXT 40
/* Returns -ENOPARAM for an option that is not one of enum tuned_forced. */
int tuned_parse_forced(struct fs_context *fsc, struct fs_parameter *param,
		       struct tuned_options *options);
/* Changes the server's reply to INIT before fs/fuse reads it, and keeps the original. */
void tuned_force(struct fuse_conn *fc, struct fuse_init_out *arg);
/* Part of tuned_negotiated(): sets limits that INIT can only lower. */
void tuned_force_limits(struct fuse_mount *fm);
/* Whether an option is in force that the server did not set itself. */
bool tuned_is_forced(const struct fuse_conn *fc, enum tuned_forced option);
/* Returns "name" or "name=value"; the latter is written to text. */
const char *tuned_forced_text(enum tuned_forced option, unsigned int value,
			      char text[TUNED_FORCED_TEXT]);
/* Raises the timeout of an entry, or of a negative one (node 0). */
void tuned_entry_timeout(const struct dentry *entry, struct fuse_entry_out *out);
/* Turns ENOENT into a negative entry; returns whether it may be cached. */
bool tuned_negative_entry(struct inode *dir, struct fuse_entry_out *out);
/* Returns the time, in jiffies, at which attributes expire. */
u64 tuned_attr_time(struct fuse_inode *fi, u64 time);

/* keep_cache.c */

/* After OPEN: sets FOPEN_KEEP_CACHE if the cached pages are still valid. */
void tuned_keep_cache(struct inode *inode, struct file *file);

/* writeback.c */

/* Whether the writeback cache is on although the server did not ask for it. */
bool tuned_writes_back(const struct fuse_conn *fc);
/* The open flags that the writeback cache needs: O_RDWR instead of O_WRONLY. */
u32 tuned_readable_flags(const struct fuse_conn *fc, u32 flags);
/* Whether the server may have refused an open with these flags because of O_RDWR. */
bool tuned_refuses_reads(const struct fuse_conn *fc, u32 flags, int err);
/* fuse_send_open(), first with tuned_readable_flags(). */
int tuned_open_readable(struct fuse_mount *fm, u64 nodeid, unsigned int flags, int opcode,
			struct fuse_open_out *out);
/* The same for CREATE; a macro, because the call that sends it differs between series. */
#define tuned_create(fc, args, in, send)						\
({											\
	u32 __asked = (in)->flags;							\
	struct fuse_open_out *__out = (args)->out_args[1].value;			\
	int __err;									\
											\
	(in)->flags = tuned_readable_flags(fc, __asked);				\
	__err = send;									\
	if (tuned_refuses_reads(fc, __asked, __err)) {					\
		(in)->flags = __asked;							\
		__err = send;								\
		if (!__err)								\
			__out->open_flags |= FOPEN_DIRECT_IO;				\
	}										\
	__err;										\
})
/* Whether a direct write must remove set-ID bits, which needs the exclusive inode lock. */
bool tuned_removes_privs(const struct file *file);
/* Called before and after a direct write, with the inode lock held. */
int tuned_past_cache_begin(struct kiocb *iocb);
void tuned_past_cache_end(struct file *file);

/* request_timeout.c */

#ifdef FUSE_REQUEST_TIMEOUT
static inline void tuned_timeout_stop(struct fuse_conn *fc) {}
#else
/* Starts checking for late requests. Returns 0 or -ENOMEM. */
int tuned_timeout_start(struct fuse_conn *fc, unsigned int seconds);
/* Part of tuned_conn_free(). */
void tuned_timeout_stop(struct fuse_conn *fc);
#endif

/* connection.c */

void tuned_fill_super(struct fuse_conn *fc, const struct tuned_options *options);
/* Called on the reply to INIT, before any other request is sent. */
void tuned_negotiated(struct fuse_mount *fm);

/* extend.c */

void tuned_init_inode(struct tuned_inode *tuned);
/* Whether a direct write, which may extend the file, excludes all other writes. */
bool tuned_writes_alone(struct kiocb *iocb, bool extends);
/*
 * generic_write_checks(), which also reserves the write's position until
 * tuned_write_end(). Both are called with the inode's lock held, shared or
 * exclusively, and tuned_write_finish() after it has been dropped.
 */
ssize_t tuned_write_begin(struct tuned_write *write, struct kiocb *iocb, struct iov_iter *from);
void tuned_write_end(struct tuned_write *write);
void tuned_write_finish(struct tuned_write *write);
/* Truncates now or, if other writes may be in flight, in tuned_write_finish(). */
void tuned_truncate(struct kiocb *iocb, void (*truncate)(struct file *file));
void tuned_sync_writes(struct inode *inode, void (*sync)(struct inode *inode));
/* The open flags sent to the server: without O_APPEND if the kernel appends. */
u32 tuned_sent_flags(const struct fuse_conn *fc, u32 flags);

/* passthrough.c */

/* Returns whether it is held shared. */
bool tuned_passthrough_lock(struct kiocb *iocb, struct iov_iter *iter);
void tuned_passthrough_unlock(struct inode *inode, bool shared);
/* A macro, because Linux 6.1 has no backing files. */
#define tuned_passthrough_write(inode, iocb, iter, write)		\
({									\
	bool __shared = tuned_passthrough_lock(iocb, iter);		\
	ssize_t __res = write;						\
									\
	tuned_passthrough_unlock(inode, __shared);			\
	__res;								\
})

/* statistics.c */

void tuned_statistics_free(struct fuse_conn *fc);
/* Called before the request may wait, for example for a background slot. */
void tuned_request_begin(struct fuse_req *req);
/* Called once for each request. */
void tuned_request_end(struct fuse_req *req);
/* io_uring: notes the size of a reply without its header. */
void tuned_uring_reply(struct fuse_req *req, u32 size);
/* Counts a request that has no reply. */
void tuned_one_way(struct fuse_iqueue *fiq, const struct fuse_in_header *header);
int tuned_show_statistics(struct seq_file *m, struct fuse_conn *fc);

/* open_request.c, atomic_open.c, revalidate.c */

enum { TUNED_NEVER, TUNED_ASK };

/* The type of an ID mapping differs between series. */
struct mnt_idmap;
struct user_namespace;
#ifdef FUSE_ALLOW_IDMAP
#define tuned_idmap struct mnt_idmap
#define tuned_mtime(inode) inode_get_mtime(inode)
#define tuned_ctime(inode) inode_get_ctime(inode)
#else
#define tuned_idmap struct user_namespace
#define tuned_mtime(inode) ((inode)->i_mtime)
#define tuned_ctime(inode) ((inode)->i_ctime)
#endif

/* The INIT flags that are offered in addition to those of fs/fuse. */
u64 tuned_init_flags(const struct fuse_conn *fc);
/* Part of tuned_fill_super(). */
void tuned_notes_alloc(struct fuse_conn *fc);
/* Part of tuned_negotiated(). */
void tuned_negotiate_open(struct fuse_conn *fc);
void tuned_conn_free(struct fuse_conn *fc);

/* Returned by tuned_atomic_open(): take the stock path. */
#define TUNED_STOCK 1
int tuned_atomic_open(struct inode *dir, struct dentry *entry, struct file *file,
		      unsigned int flags, umode_t mode);
/* Whether the open that follows will be sent by name, so that no LOOKUP is needed. */
bool tuned_skips_lookup(struct dentry *entry, struct inode *inode, unsigned int flags);
int tuned_permission(tuned_idmap *idmap, struct inode *inode, int mask);
int tuned_do_open(struct fuse_mount *fm, struct inode *inode, struct file *file, bool isdir);

/* Functions of fs/fuse; the import makes them non-static. */
int fuse_init(void);
void fuse_exit(void);
int fuse_init_fs_context(struct fs_context *fsc);
int fuse_get_tree(struct fs_context *fsc);
int fuse_permission(tuned_idmap *idmap, struct inode *inode, int mask);
void fuse_dir_changed(struct inode *dir);
int fuse_send_open(struct fuse_mount *fm, u64 nodeid, unsigned int open_flags, int opcode,
		   struct fuse_open_out *outargp);

/* control.c */

struct tuned_ctl_file {
	const char *name;
	umode_t mode;
	const struct file_operations *fops;
};

#define TUNED_CTL_FILES 3
extern const struct tuned_ctl_file tuned_ctl_files[TUNED_CTL_FILES];

/*
 * Adds our files to a connection's directory and returns whether that worked. A
 * macro, because fuse_ctl_add_dentry() is static in fs/fuse, and its parameters
 * between mode and operations differ between series.
 */
#define tuned_ctl_add(parent, fc, ...)						\
({										\
	const struct tuned_ctl_file *__file = tuned_ctl_files;			\
										\
	while (__file < tuned_ctl_files + TUNED_CTL_FILES &&			\
	       fuse_ctl_add_dentry(parent, fc, __file->name, __file->mode,	\
				   __VA_ARGS__, __file->fops))			\
		__file++;							\
	__file == tuned_ctl_files + TUNED_CTL_FILES;				\
})

/* Kbuild probes which of the two the kernel's headers declare. */
#ifdef TUNED_BACKING_BY_PATH
#define tuned_backing_file_open(file, flags, path, cred) \
	backing_file_open(&(file)->f_path, flags, path, cred)
#else
#define tuned_backing_file_open(file, flags, path, cred) \
	backing_file_open(file, flags, path, cred)
#endif

#endif
