// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module's parameters and mount options, and what each option changes.
 *
 * max_pages (Hayasaka 2012). Stock: a request has at most 256 pages, from 6.13 on
 * fs.fuse.max_pages_limit. Here: the mount option, or the parameter
 * max_pages_per_req for new mounts, may allow up to 65535, the most that INIT can
 * carry. Both are bounded by fs.pipe-max-size, because a request that does not
 * fit into a pipe cannot be moved by splice(2). Callers without CAP_SYS_ADMIN get
 * at most the parameter. connection.c handles the limit of a live mount.
 *
 * no_file_caps (Szeredi 2013). Stock: each write sends a GETXATTR for
 * security.capability, because the kernel must remove it. Here: the mount has no
 * file capabilities, so nothing is sent. Getting one fails with ENODATA and
 * setting one with EOPNOTSUPP; removing one is still sent.
 *
 * parallel_direct_writes (Singh 2022). Stock: direct writes of one file run in
 * parallel if the server sets FOPEN_PARALLEL_DIRECT_WRITES in its reply to OPEN or
 * CREATE. Here: the bit is set for all files of the mount, as if the server had
 * set it. passthrough.c handles backing files. Linux 6.1 runs cached and parallel
 * direct writes of one file together; extend.c makes that safe.
 *
 * Mounts in user namespaces. Stock: allowed. Here: EPERM unless the parameter
 * userns_mounts is set, so an administrator decides whether unprivileged users
 * reach this code. tuned_init_fs_context() refuses before any option is parsed. A
 * device that root opened and passed on does not help, because fs/fuse requires
 * that it belongs to the user namespace of the mount. The module has no alias for
 * its types either, so a user's mount(2) does not load it.
 */
#include "fuse_i.h"

#include <linux/capability.h>
#include <linux/file.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/seq_file.h>
#include <linux/xattr.h>

/* INIT carries it in 16 bits. */
#define MOST_PAGES U16_MAX
#define LEAST_PAGES_PER_REQ FUSE_DEFAULT_MAX_PAGES_PER_REQ

/* The series' own limit: a constant, from 6.13 on a sysctl. */
#ifdef FUSE_MAX_MAX_PAGES
#define STOCK_PAGES FUSE_MAX_MAX_PAGES
#else
#define STOCK_PAGES READ_ONCE(fuse_max_pages_limit)
#endif

/*
 * fs.pipe-max-size, whose variable is private to fs/pipe.c. The file is opened
 * once, in a procfs mount that no process sees. So a process that mounts cannot
 * substitute another file by its root directory, and reading never blocks.
 */
static struct file *pipe_limit;

int __init tuned_open_pipe_limit(void)
{
	struct file_system_type *proc = get_fs_type("proc");
	struct vfsmount *mount;
	struct path root;

	if (!proc)
		return -ENODEV;
	mount = kern_mount(proc);
	module_put(proc->owner);
	if (IS_ERR(mount))
		return PTR_ERR(mount);
	root.mnt = mount;
	root.dentry = mount->mnt_root;
	pipe_limit = file_open_root(&root, "sys/fs/pipe-max-size", O_RDONLY, 0);
	/* The open file pins the mount. */
	kern_unmount(mount);
	return PTR_ERR_OR_ZERO(pipe_limit);
}

/*
 * The parameters are removed later. The lock waits for a write that has found the
 * module live and reads the file; later writes find that the module is going.
 */
void tuned_close_pipe_limit(void)
{
	kernel_param_lock(THIS_MODULE);
	fput(pipe_limit);
	kernel_param_unlock(THIS_MODULE);
}

/* Sets *pages to what a pipe can hold. Returns 0 or an error of the read. */
static int pipe_pages(unsigned int *pages)
{
	char text[16] = "";
	unsigned int bytes;
	loff_t pos = 0;
	ssize_t length;

	length = kernel_read(pipe_limit, text, sizeof(text) - 1, &pos);
	if (length < 0)
		return length;
	if (kstrtouint(strim(text), 10, &bytes))
		return -EINVAL;
	*pages = min_t(unsigned int, bytes >> PAGE_SHIFT, MOST_PAGES);
	return 0;
}

/* Lowers pages to what a pipe can hold; if that is unknown, to the stock limit. */
static unsigned int fitting(unsigned int pages)
{
	unsigned int most;

	return pipe_pages(&most) ? min_t(unsigned int, pages, STOCK_PAGES) :
				   min(pages, most);
}

/* 0: the limit of the kernel's own FUSE. */
static unsigned int max_pages_per_req;

/*
 * At boot, modules are loaded before sysctls are set. A value given at load time
 * is therefore checked against the pipe limit at each mount, not here.
 */
static int set_max_pages_per_req(const char *text, const struct kernel_param *param)
{
	unsigned int pages, most = MOST_PAGES;
	int err;

	err = kstrtouint(text, 0, &pages);
	if (err)
		return -EINVAL;
	if (pages) {
		err = THIS_MODULE->state == MODULE_STATE_LIVE ? pipe_pages(&most) : 0;
		if (err)
			return err;
		if (pages < LEAST_PAGES_PER_REQ || pages > most)
			return -EINVAL;
	}
	WRITE_ONCE(max_pages_per_req, pages);
	return 0;
}

static const struct kernel_param_ops max_pages_per_req_ops = {
	.set = set_max_pages_per_req,
	.get = param_get_uint,
};

module_param_cb(max_pages_per_req, &max_pages_per_req_ops, &max_pages_per_req, 0644);
__MODULE_PARM_TYPE(max_pages_per_req, "uint");
MODULE_PARM_DESC(max_pages_per_req,
		 "Pages per request of new mounts: 32 to what fs.pipe-max-size holds; 0: as stock");

static bool userns_mounts;
module_param(userns_mounts, bool, 0644);
MODULE_PARM_DESC(userns_mounts, "Allow mounts from non-initial user namespaces; default N");

/* fs/fuse sets FS_USERNS_MOUNT, so the VFS lets the owner of a user namespace mount there. */
static bool may_mount(const struct fs_context *fsc)
{
	return fsc->user_ns == &init_user_ns || READ_ONCE(userns_mounts);
}

int tuned_init_fs_context(struct fs_context *fsc)
{
	if (fsc->purpose == FS_CONTEXT_FOR_MOUNT && !may_mount(fsc))
		return -EPERM;
	return fuse_init_fs_context(fsc);
}

/* Checked again, because the parameter may have changed since fsopen(2). */
int tuned_get_tree(struct fs_context *fsc)
{
	return may_mount(fsc) ? fuse_get_tree(fsc) : -EPERM;
}

enum {
	OPT_ATOMIC_OPEN,
	OPT_MAX_PAGES,
	OPT_NO_FILE_CAPS,
	OPT_PARALLEL_DIRECT_WRITES,
	OPT_PARALLEL_EXTEND,
};

static const struct fs_parameter_spec tuned_parameters[] = {
	fsparam_flag("atomic_open", OPT_ATOMIC_OPEN),
	fsparam_u32("max_pages", OPT_MAX_PAGES),
	fsparam_flag("no_file_caps", OPT_NO_FILE_CAPS),
	fsparam_flag("parallel_direct_writes", OPT_PARALLEL_DIRECT_WRITES),
	fsparam_flag("parallel_extend", OPT_PARALLEL_EXTEND),
	{}
};

/* Mounts from a user namespace may lower the limit, not raise it. */
static int parse_max_pages(struct fs_context *fsc, unsigned int pages,
			   struct tuned_options *options)
{
	unsigned int most = READ_ONCE(max_pages_per_req);
	int err;

	if (options->max_pages)
		return invalfc(fsc, "max_pages is given twice");
	if (!most)
		most = STOCK_PAGES;
	if (capable(CAP_SYS_ADMIN)) {
		err = pipe_pages(&most);
		if (err)
			return err;
	} else {
		most = fitting(most);
	}
	if (!pages || pages > most)
		return invalfc(fsc, "max_pages may be 1 to %u", most);
	options->max_pages = pages;
	return 0;
}

int tuned_parse_param(struct fs_context *fsc, struct fs_parameter *param,
		      struct tuned_options *options)
{
	struct fs_parse_result result;
	int opt = fs_parse(fsc, tuned_parameters, param, &result);

	switch (opt) {
	case OPT_ATOMIC_OPEN:
		options->atomic_open = true;
		return 0;
	case OPT_MAX_PAGES:
		return parse_max_pages(fsc, result.uint_32, options);
	case OPT_NO_FILE_CAPS:
		options->no_file_caps = true;
		return 0;
	case OPT_PARALLEL_EXTEND:
		options->parallel_extend = true;
		fallthrough;
	case OPT_PARALLEL_DIRECT_WRITES:
		options->parallel_direct_writes = true;
		return 0;
	default:
		return opt == -ENOPARAM ? tuned_parse_forced(fsc, param, options) : opt;
	}
}

void tuned_show_options(struct seq_file *m, struct fuse_conn *fc)
{
	const struct tuned_options *options = &fc->tuned.options;
	char text[TUNED_FORCED_TEXT];
	unsigned int option;

	for (option = 0; option < TUNED_FORCED; option++)
		if (options->forced[option])
			seq_printf(m, ",%s",
				   tuned_forced_text(option, options->forced[option], text));
	if (options->atomic_open)
		seq_puts(m, ",atomic_open");
	if (options->max_pages)
		seq_printf(m, ",max_pages=%u", options->max_pages);
	if (options->no_file_caps)
		seq_puts(m, ",no_file_caps");
	if (options->parallel_direct_writes)
		seq_puts(m, ",parallel_direct_writes");
	if (options->parallel_extend)
		seq_puts(m, ",parallel_extend");
}

unsigned int tuned_default_pages(void)
{
	unsigned int pages = READ_ONCE(max_pages_per_req);

	return pages ? fitting(pages) : 0;
}

bool tuned_hides_xattr(struct inode *inode, const char *name)
{
	return get_fuse_conn(inode)->tuned.options.no_file_caps &&
	       !strcmp(name, XATTR_NAME_CAPS);
}

void tuned_open_flags(struct fuse_file *ff)
{
	if (ff->fm->fc->tuned.options.parallel_direct_writes)
		ff->open_flags |= FOPEN_PARALLEL_DIRECT_WRITES;
}
