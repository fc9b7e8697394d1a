// SPDX-License-Identifier: GPL-2.0-only
/*
 * Our files in a connection's folder of the control filesystem.
 */
#include "fuse_i.h"
/* Where a series has the references to a connection declared apart. */
#if __has_include("dev.h")
#include "dev.h"
#endif

#include <linux/fs.h>
#include <linux/kstrtox.h>
#include <linux/stat.h>
#include <linux/uaccess.h>

/* The file's connection once INIT has been answered, or an error. */
static struct fuse_conn *settled_conn(struct file *file)
{
	struct fuse_conn *fc;

	mutex_lock(&fuse_mutex);
	fc = file_inode(file)->i_private;
	if (!fc)
		fc = ERR_PTR(-ENODEV);
	/* Pairs with tuned_settle(). */
	else if (!smp_load_acquire(&fc->tuned.settled))
		fc = ERR_PTR(-EAGAIN);
	else
		fc = fuse_conn_get(fc);
	mutex_unlock(&fuse_mutex);
	return fc;
}

static ssize_t max_pages_read(struct file *file, char __user *buf, size_t len, loff_t *ppos)
{
	struct fuse_conn *fc = settled_conn(file);
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

	if (*ppos || kstrtouint_from_user(buf, len, 0, &pages))
		return -EINVAL;
	fc = settled_conn(file);
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

const struct tuned_ctl_file tuned_ctl_files[TUNED_CTL_FILES] = {
	{ "max_pages", S_IFREG | 0600, &max_pages_ops },
};
