// SPDX-License-Identifier: GPL-2.0-only
/*
 * Our files in a connection's directory of fusectl.
 *
 * Stock: the directory has waiting, abort, max_background and
 * congestion_threshold. No file shows what INIT negotiated.
 *
 * Here: init shows what INIT negotiated and what mount options forced, max_pages
 * changes the pages per request on the live mount, and statistics has the counters
 * of statistics.c.
 *
 * Why it is safe: fs/fuse clears the inode's pointer to the connection under
 * fuse_mutex when the connection ends, so conn_of() either takes a reference or
 * returns ENODEV. Until INIT has been answered there are no values, and init and
 * max_pages return EAGAIN. connection.c explains why max_pages may change at any
 * time.
 */
#include "fuse_i.h"
#include "protocol.h"
#ifdef TUNED_CHANNELS
#include "dev.h"
#endif

#include <linux/fs.h>
#include <linux/kstrtox.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/stat.h>
#include <linux/uaccess.h>

/* kstrtouint_from_user() silently truncates longer input. */
#define LONGEST_NUMBER 32

/* Returns the file's connection with a reference held, or an error. */
static struct fuse_conn *conn_of(struct inode *inode)
{
	struct fuse_conn *fc;

	mutex_lock(&fuse_mutex);
	fc = inode->i_private;
	fc = fc ? fuse_conn_get(fc) : ERR_PTR(-ENODEV);
	mutex_unlock(&fuse_mutex);
	return fc;
}

/* The same, but EAGAIN until INIT has been answered. */
static struct fuse_conn *negotiated_conn(struct file *file)
{
	struct fuse_conn *fc = conn_of(file_inode(file));

	/* Pairs with tuned_negotiated(). */
	if (IS_ERR(fc) || smp_load_acquire(&fc->tuned.negotiated))
		return fc;
	fuse_conn_put(fc);
	return ERR_PTR(-EAGAIN);
}

static ssize_t max_pages_read(struct file *file, char __user *buf, size_t len, loff_t *ppos)
{
	struct fuse_conn *fc = negotiated_conn(file);
	char text[16];
	int size;

	if (IS_ERR(fc))
		return PTR_ERR(fc);
	size = scnprintf(text, sizeof(text), "%u\n", tuned_max_pages(fc));
	fuse_conn_put(fc);
	return simple_read_from_buffer(buf, len, ppos, text, size);
}

static ssize_t max_pages_write(struct file *file, const char __user *buf, size_t len,
			       loff_t *ppos)
{
	struct fuse_conn *fc;
	unsigned int pages;
	ssize_t res = len;

	if (*ppos || len > LONGEST_NUMBER || kstrtouint_from_user(buf, len, 0, &pages))
		return -EINVAL;
	fc = negotiated_conn(file);
	if (IS_ERR(fc))
		return PTR_ERR(fc);
	if (pages >= 1 && pages <= fc->max_pages)
		WRITE_ONCE(fc->tuned.max_pages, pages);
	else
		res = -EINVAL;
	fuse_conn_put(fc);
	return res;
}

static const struct file_operations max_pages_ops = {
	.owner = THIS_MODULE,
	.open = nonseekable_open,
	.read = max_pages_read,
	.write = max_pages_write,
};

/* Names of the INIT flags by bit. New bits are added; the meaning of a bit never changes. */
static const char *const init_flags[] = {
	"async_read", "posix_locks", "file_ops", "atomic_o_trunc",
	"export_support", "big_writes", "dont_mask", "splice_write",
	"splice_move", "splice_read", "flock_locks", "has_ioctl_dir",
	"auto_inval_data", "do_readdirplus", "readdirplus_auto", "async_dio",
	"writeback_cache", "no_open_support", "parallel_dirops", "handle_killpriv",
	"posix_acl", "abort_error", "max_pages", "cache_symlinks",
	"no_opendir_support", "explicit_inval_data", "map_alignment", "submounts",
	"handle_killpriv_v2", "setxattr_ext", "init_ext", "init_reserved",
	"security_ctx", "has_inode_dax", "create_supp_group", "has_expire_only",
	"direct_io_allow_mmap", "passthrough", "no_export_support", "has_resend",
	"allow_idmap", "over_io_uring", "request_timeout", "has_io_uring_bufpool",
	[61] = "tuned_open",
};

static_assert(FUSE_WRITEBACK_CACHE == 1 << 16);
static_assert(FUSE_INIT_EXT == 1 << 30);
static_assert(FUSE_HAS_INODE_DAX == 1ULL << 33);
static_assert(TUNED_INIT_OPEN == 1ULL << 61);

static int format_init(const struct fuse_conn *fc, char *text, int room)
{
	const unsigned int *forced = fc->tuned.forced;
	const char *before = "\nforced";
	unsigned int bit, option;
	char name[TUNED_FORCED_TEXT];
	int used;

	used = scnprintf(text, room,
			 "minor %u\nmax_write %u\nmax_read %u\nmax_readahead %u\nmax_pages %u\nflags",
			 fc->minor, fc->max_write, fc->max_read, fc->tuned.max_readahead,
			 fc->max_pages);
	for (bit = 0; bit < 64; bit++) {
		if (!(fc->tuned.flags & BIT_ULL(bit)))
			continue;
		if (bit < ARRAY_SIZE(init_flags) && init_flags[bit])
			used += scnprintf(text + used, room - used, " %s", init_flags[bit]);
		else
			used += scnprintf(text + used, room - used, " bit%u", bit);
	}
	for (option = 0; option < TUNED_FORCED; option++) {
		if (!tuned_is_forced(fc, option))
			continue;
		used += scnprintf(text + used, room - used, "%s %s", before,
				  tuned_forced_text(option, forced[option], name));
		before = "";
	}
	return used + scnprintf(text + used, room - used, "\n");
}

static ssize_t init_read(struct file *file, char __user *buf, size_t len, loff_t *ppos)
{
	struct fuse_conn *fc;
	ssize_t res = -ENOMEM;
	char *text;

	fc = negotiated_conn(file);
	if (IS_ERR(fc))
		return PTR_ERR(fc);
	text = kmalloc(PAGE_SIZE, GFP_KERNEL);
	if (text)
		res = simple_read_from_buffer(buf, len, ppos, text,
					      format_init(fc, text, PAGE_SIZE));
	kfree(text);
	fuse_conn_put(fc);
	return res;
}

static const struct file_operations init_ops = {
	.owner = THIS_MODULE,
	.open = nonseekable_open,
	.read = init_read,
};

static int statistics_show(struct seq_file *m, void *unused)
{
	struct fuse_conn *fc = conn_of(m->private);
	int err;

	if (IS_ERR(fc))
		return PTR_ERR(fc);
	err = tuned_show_statistics(m, fc);
	fuse_conn_put(fc);
	return err;
}

static int statistics_open(struct inode *inode, struct file *file)
{
	return single_open(file, statistics_show, inode);
}

static const struct file_operations statistics_ops = {
	.owner = THIS_MODULE,
	.open = statistics_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = single_release,
};

const struct tuned_ctl_file tuned_ctl_files[TUNED_CTL_FILES] = {
	{ "init", S_IFREG | 0400, &init_ops },
	{ "max_pages", S_IFREG | 0600, &max_pages_ops },
	{ "statistics", S_IFREG | 0400, &statistics_ops },
};
