/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel's FUSE code, changed by rules.toml and rules/, knows of ours.
 */
#ifndef TUNED_H
#define TUNED_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

struct fs_context;
struct fs_parameter;
struct fuse_conn;
struct fuse_file;
struct fuse_in_header;
struct fuse_init_out;
struct fuse_iqueue;
struct fuse_mount;
struct fuse_req;
struct iov_iter;
struct seq_file;
struct tuned_notes;
struct tuned_statistics;

/* Mount options; zero where not given. */
struct tuned_options {
	unsigned int max_pages;
	bool atomic_open;
	bool no_file_caps;
	bool parallel_direct_writes;
	bool parallel_extend;
};

/* In each connection. */
struct tuned_conn {
	struct tuned_options options;
	/* Null until they are first read. */
	struct tuned_statistics *statistics;
	/* Pages a request now, at most fuse_conn.max_pages, for which there is room. */
	unsigned int max_pages;
	/* What the server answered to INIT, where the connection does not keep it. */
	u64 flags;
	unsigned int max_readahead;
	/* Whether TUNED_OPEN is sent. */
	int atomic_open;
	/* Null without atomic_open, or where there was no memory for it. */
	struct tuned_notes *notes;
	/* INIT has been answered: what it settled on may be read. */
	bool settled;
};

/* In each inode. */
struct tuned_inode {
	/* Direct writes in flight where they may extend at once; fuse_inode.lock. */
	struct list_head writes;
	/* Held by who waits for writeback with the inode's lock shared. */
	struct mutex sync;
};

/* A direct write, from when it has its place until its end is known. */
struct tuned_write {
	struct list_head list;
	struct kiocb *iocb;
	/* NULL where writes that extend go alone. */
	struct inode *inode;
	loff_t end;
	/* To be called when it has failed and no other is in flight. */
	void (*truncate)(struct file *file);
	struct file *file;
};

/*
 * For what decides when a request is full. What makes room for it goes on using
 * fuse_conn.max_pages, for this one may change between the two.
 */
#define tuned_max_pages(fc) READ_ONCE((fc)->tuned.max_pages)

/* options.c */

int tuned_open_pipe_limit(void);
void tuned_close_pipe_limit(void);
/* As fs/fuse's own, for those who may mount. */
int tuned_init_fs_context(struct fs_context *fsc);
int tuned_get_tree(struct fs_context *fsc);
/* Returns -ENOPARAM for what is not ours. */
int tuned_parse_param(struct fs_context *fsc, struct fs_parameter *param,
		      struct tuned_options *options);
void tuned_show_options(struct seq_file *m, struct fuse_conn *fc);
void tuned_fill_super(struct fuse_conn *fc, const struct tuned_options *options);
/* Before the first request that is not INIT. */
void tuned_settle(struct fuse_conn *fc, const struct fuse_init_out *arg);

/* Whether a mount without file capabilities has this attribute hidden. */
bool tuned_hides_xattr(struct inode *inode, const char *name);

/* As if the server had answered to OPEN or CREATE what the mount option says. */
void tuned_open_flags(struct fuse_file *ff);

/* extend.c */

void tuned_init_inode(struct tuned_inode *tuned);
/* Whether appends and writes past the end of the file exclude all others. */
bool tuned_extends_alone(struct kiocb *iocb);
/*
 * generic_write_checks(), after which the write has a place of its own until
 * tuned_write_end(). Both under the inode's lock, shared or not;
 * tuned_write_settle() comes after it.
 */
ssize_t tuned_write_begin(struct tuned_write *write, struct kiocb *iocb, struct iov_iter *from);
void tuned_write_end(struct tuned_write *write);
void tuned_write_settle(struct tuned_write *write);
/* Now, or where other writes may be in flight, in tuned_write_settle(). */
void tuned_truncate(struct kiocb *iocb, void (*truncate)(struct file *file));
void tuned_sync_writes(struct inode *inode, void (*sync)(struct inode *inode));
/* A file's flags, as the server is told. */
u32 tuned_sent_flags(const struct fuse_conn *fc, u32 flags);

/* statistics.c */

void tuned_statistics_free(struct fuse_conn *fc);
/* Before the request may wait, for its turn in the background too. */
void tuned_request_begin(struct fuse_req *req);
/* Once for each request. */
void tuned_request_end(struct fuse_req *req);
/* io_uring: the bytes after the header of an answer. */
void tuned_uring_reply(struct fuse_req *req, u32 size);
/* What the server reads and does not answer. */
void tuned_one_way(struct fuse_iqueue *fiq, const struct fuse_in_header *header);
int tuned_show_statistics(struct seq_file *m, struct fuse_conn *fc);

/* atomic_open.c */

enum { TUNED_NEVER, TUNED_ASK };

/* What the kernel has these for differs from series to series. */
struct mnt_idmap;
struct user_namespace;
#ifdef FUSE_ALLOW_IDMAP
#define tuned_idmap struct mnt_idmap
#else
#define tuned_idmap struct user_namespace
#endif

/* What is offered in INIT beyond what the kernel's FUSE knows. */
u64 tuned_init_flags(const struct fuse_conn *fc);
/* Part of tuned_fill_super(). */
void tuned_fill_open(struct fuse_conn *fc);
/* Part of tuned_settle(). */
void tuned_settle_open(struct fuse_conn *fc);
void tuned_conn_free(struct fuse_conn *fc);

/* An answer of tuned_atomic_open(): the kernel's own way is to be gone. */
#define TUNED_STOCK 1
int tuned_atomic_open(struct inode *dir, struct dentry *entry, struct file *file,
		      unsigned int flags, umode_t mode);
/* Whether the open that follows will ask by name, so that no lookup is needed. */
bool tuned_skips_lookup(struct dentry *entry, struct inode *inode, unsigned int flags);
int tuned_permission(tuned_idmap *idmap, struct inode *inode, int mask);
int tuned_do_open(struct fuse_mount *fm, struct inode *inode, struct file *file, bool isdir);

/* fs/fuse's own, not static here. */
int fuse_init(void);
void fuse_exit(void);
int fuse_init_fs_context(struct fs_context *fsc);
int fuse_get_tree(struct fs_context *fsc);
int fuse_permission(tuned_idmap *idmap, struct inode *inode, int mask);
void fuse_dir_changed(struct inode *dir);

/* control.c */

struct tuned_ctl_file {
	const char *name;
	umode_t mode;
	const struct file_operations *fops;
};

#define TUNED_CTL_FILES 3
extern const struct tuned_ctl_file tuned_ctl_files[TUNED_CTL_FILES];

/*
 * Adds our files to a connection's folder; whether that worked. For the one
 * function of fs/fuse that knows fuse_ctl_add_dentry(), whose parameters
 * between mode and operations differ from series to series.
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

/* Kbuild looks up which of the two a kernel's headers have. */
#ifdef TUNED_BACKING_BY_PATH
#define tuned_backing_file_open(file, flags, path, cred) \
	backing_file_open(&(file)->f_path, flags, path, cred)
#else
#define tuned_backing_file_open(file, flags, path, cred) \
	backing_file_open(file, flags, path, cred)
#endif

#endif
