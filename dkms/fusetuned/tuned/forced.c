// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mount options that override the server.
 *
 * Stock: the server's reply to INIT selects the features of the connection, and
 * each reply says how long names and attributes are cached. If a server is older
 * than a flag, or its FUSE library does not set it, the feature is not used.
 *
 * Here: root decides. tuned_force() changes the reply to INIT before fs/fuse
 * reads it, as if the server had set the flag; tuned_conn keeps what the server
 * replied for the file "init". Limits that INIT can only lower are set
 * afterwards. Timeouts are raised where a reply is converted to a time.
 *
 * Why it is safe:
 * - The options require CAP_SYS_ADMIN. So no user overrides a limit that root has
 *   set for users, and this code cannot be reached from a user namespace.
 * - A server may set every flag in this file by itself, so a hostile one gains
 *   nothing. Neither requests nor replies become larger than the server's buffer:
 *   big_writes uses the max_write of the server's reply.
 * - An option that the reply rules out is not forced. A line in the kernel log
 *   says why, and the mount continues without the option.
 * - Timeouts are not raised for the root's attributes before INIT, nor for
 *   attributes that newer ones have overtaken (tuned_attr_time()).
 */
#include "fuse_i.h"
#ifdef TUNED_CHANNELS
#include "dev.h"
#endif

#include <linux/backing-dev.h>
#include <linux/capability.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/jiffies.h>
#include <linux/sizes.h>

/* Kernels before 6.15 lack it and use request_timeout.c. */
#ifdef FUSE_REQUEST_TIMEOUT
#define TIMEOUT_FLAG FUSE_REQUEST_TIMEOUT
#else
#define TIMEOUT_FLAG 0
#endif

static const struct fs_parameter_spec specs[] = {
	[TUNED_ASYNC_DIO] = fsparam_flag("async_dio", TUNED_ASYNC_DIO),
	[TUNED_ASYNC_READ] = fsparam_flag("async_read", TUNED_ASYNC_READ),
	[TUNED_ATTR_TIMEOUT] = fsparam_u32("attr_timeout", TUNED_ATTR_TIMEOUT),
	[TUNED_BIG_WRITES] = fsparam_flag("big_writes", TUNED_BIG_WRITES),
	[TUNED_CONGESTION_THRESHOLD] =
		fsparam_u32("congestion_threshold", TUNED_CONGESTION_THRESHOLD),
	[TUNED_ENTRY_TIMEOUT] = fsparam_u32("entry_timeout", TUNED_ENTRY_TIMEOUT),
	[TUNED_KEEP_CACHE] = fsparam_flag("keep_cache", TUNED_KEEP_CACHE),
	[TUNED_MAX_BACKGROUND] = fsparam_u32("max_background", TUNED_MAX_BACKGROUND),
	[TUNED_MAX_READAHEAD] = fsparam_u32("max_readahead", TUNED_MAX_READAHEAD),
	[TUNED_NEGATIVE_TIMEOUT] = fsparam_u32("negative_timeout", TUNED_NEGATIVE_TIMEOUT),
	[TUNED_NO_ACCESS] = fsparam_flag("no_access", TUNED_NO_ACCESS),
	[TUNED_NO_XATTR] = fsparam_flag("no_xattr", TUNED_NO_XATTR),
	[TUNED_PARALLEL_DIROPS] = fsparam_flag("parallel_dirops", TUNED_PARALLEL_DIROPS),
	[TUNED_REQUEST_TIMEOUT] = fsparam_u32("request_timeout", TUNED_REQUEST_TIMEOUT),
	[TUNED_WRITEBACK_CACHE] = fsparam_flag("writeback_cache", TUNED_WRITEBACK_CACHE),
	{}
};

/* An option's range of values, and its flag in the reply to INIT, if it has them. */
static const struct {
	unsigned int least, most;
	u64 flag;
} rules[TUNED_FORCED] = {
	[TUNED_ASYNC_DIO] = { .flag = FUSE_ASYNC_DIO },
	[TUNED_ASYNC_READ] = { .flag = FUSE_ASYNC_READ },
	[TUNED_ATTR_TIMEOUT] = { 1, U32_MAX },
	[TUNED_BIG_WRITES] = { .flag = FUSE_BIG_WRITES },
	[TUNED_CONGESTION_THRESHOLD] = { 1, U16_MAX },
	[TUNED_ENTRY_TIMEOUT] = { 1, U32_MAX },
	[TUNED_MAX_BACKGROUND] = { 1, U16_MAX },
	[TUNED_MAX_READAHEAD] = { PAGE_SIZE, SZ_1G },
	[TUNED_NEGATIVE_TIMEOUT] = { 1, U32_MAX },
	[TUNED_PARALLEL_DIROPS] = { .flag = FUSE_PARALLEL_DIROPS },
	[TUNED_REQUEST_TIMEOUT] = { 1, U16_MAX, TIMEOUT_FLAG },
	[TUNED_WRITEBACK_CACHE] = { .flag = FUSE_WRITEBACK_CACHE },
};

static_assert(ARRAY_SIZE(specs) == TUNED_FORCED + 1);

int tuned_parse_forced(struct fs_context *fsc, struct fs_parameter *param,
		       struct tuned_options *options)
{
	struct fs_parse_result result;
	int option = fs_parse(fsc, specs, param, &result);
	unsigned int value;

	if (option < 0)
		return option;
	if (!capable(CAP_SYS_ADMIN)) {
		errorfc(fsc, "%s overrides the server, which needs CAP_SYS_ADMIN", param->key);
		return -EPERM;
	}
	value = rules[option].most ? result.uint_32 : 1;
	if (rules[option].most && (value < rules[option].least || value > rules[option].most))
		return invalfc(fsc, "%s may be %u to %u", param->key, rules[option].least,
			       rules[option].most);
	options->forced[option] = value;
	return 0;
}

static void refuse(struct fuse_conn *fc, enum tuned_forced option, const char *reason)
{
	if (!fc->tuned.forced[option])
		return;
	fc->tuned.forced[option] = 0;
	pr_warn("connection %u: %s is not in force: %s\n", fc->dev, specs[option].name, reason);
}

/* Drops the options that the server's reply rules out. */
static void check(struct fuse_conn *fc, const struct fuse_init_out *arg)
{
	unsigned int option;

	for (option = 0; arg->minor < 6 && option < TUNED_FORCED; option++)
		if (rules[option].flag)
			refuse(fc, option, "the server's protocol is older than 7.6");
	if (arg->minor < 5 || arg->max_write < 2 * PAGE_SIZE)
		refuse(fc, TUNED_BIG_WRITES, "the server takes writes of one page");
	/* Without its xattr, an ACL's mask would be taken for the group's permissions. */
	if (arg->flags & FUSE_POSIX_ACL)
		refuse(fc, TUNED_NO_XATTR, "the server has POSIX ACLs");
#ifdef FUSE_PASSTHROUGH
	/*
	 * fs/fuse does not combine the two: it then refuses the server backing files. Many
	 * servers offer passthrough without using it, such as those of go-fuse 2.9.
	 */
	if (fc->tuned.forced[TUNED_WRITEBACK_CACHE] && fc->tuned.flags & FUSE_PASSTHROUGH &&
	    arg->max_stack_depth)
		pr_info("connection %u: no passthrough, because of writeback_cache\n", fc->dev);
#endif
}

static void force_timeout(struct fuse_conn *fc, struct fuse_init_out *arg)
{
	unsigned int seconds = fc->tuned.forced[TUNED_REQUEST_TIMEOUT];

#ifdef FUSE_REQUEST_TIMEOUT
	if (seconds)
		arg->request_timeout = seconds;
#else
	if (seconds && tuned_timeout_start(fc, seconds))
		refuse(fc, TUNED_REQUEST_TIMEOUT, "out of memory");
#endif
}

void tuned_force(struct fuse_conn *fc, struct fuse_init_out *arg)
{
	unsigned int option;
	u64 flags = 0;

	fc->tuned.max_readahead = arg->max_readahead;
	fc->tuned.flags = arg->flags;
	if (arg->flags & FUSE_INIT_EXT)
		fc->tuned.flags |= (u64)arg->flags2 << 32;
	memcpy(fc->tuned.forced, fc->tuned.options.forced, sizeof(fc->tuned.forced));
	check(fc, arg);
	for (option = 0; option < TUNED_FORCED; option++)
		if (fc->tuned.forced[option])
			flags |= rules[option].flag;
	if (flags >> 32) {
		if (!(arg->flags & FUSE_INIT_EXT))
			arg->flags2 = 0;
		flags |= FUSE_INIT_EXT;
		arg->flags2 |= flags >> 32;
	}
	arg->flags |= flags;
	if (fc->tuned.forced[TUNED_NO_ACCESS])
		fc->no_access = 1;
	if (fc->tuned.forced[TUNED_NO_XATTR]) {
		fc->no_getxattr = 1;
		fc->no_setxattr = 1;
		fc->no_listxattr = 1;
		fc->no_removexattr = 1;
	}
	force_timeout(fc, arg);
}

static void set_max_background(struct fuse_conn *fc, unsigned int requests)
{
#ifdef TUNED_CHANNELS
	fuse_chan_max_background_set(fc->chan, requests);
#else
	spin_lock(&fc->bg_lock);
	fc->max_background = requests;
	spin_unlock(&fc->bg_lock);
#endif
}

void tuned_force_limits(struct fuse_mount *fm)
{
	struct backing_dev_info *bdi = fm->sb->s_bdi;
	struct fuse_conn *fc = fm->fc;
	const unsigned int *forced = fc->tuned.forced;
	unsigned long request = min(fc->max_pages, fc->max_read >> PAGE_SHIFT);

	if (forced[TUNED_MAX_BACKGROUND])
		set_max_background(fc, forced[TUNED_MAX_BACKGROUND]);
	if (forced[TUNED_CONGESTION_THRESHOLD])
		WRITE_ONCE(fc->congestion_threshold, forced[TUNED_CONGESTION_THRESHOLD]);
	if (forced[TUNED_MAX_READAHEAD]) {
		bdi->ra_pages = forced[TUNED_MAX_READAHEAD] >> PAGE_SHIFT;
		/*
		 * A read(2) that is larger than ra_pages still becomes one request. From 7.3
		 * on fs/fuse sets io_pages for every mount.
		 */
		bdi->io_pages = max(bdi->io_pages, request);
	}
}

void tuned_entry_timeout(const struct dentry *entry, struct fuse_entry_out *out)
{
	const struct fuse_conn *fc = get_fuse_conn_super(entry->d_sb);
	u64 least;

	least = fc->tuned.forced[out->nodeid ? TUNED_ENTRY_TIMEOUT : TUNED_NEGATIVE_TIMEOUT];
	out->entry_valid = max(out->entry_valid, least);
}

bool tuned_negative_entry(struct inode *dir, struct fuse_entry_out *out)
{
	memset(out, 0, sizeof(*out));
	return get_fuse_conn(dir)->tuned.forced[TUNED_NEGATIVE_TIMEOUT];
}

u64 tuned_attr_time(struct fuse_inode *fi, u64 time)
{
	u64 least = get_fuse_conn(&fi->inode)->tuned.forced[TUNED_ATTR_TIMEOUT];
	bool overtaken = fi->tuned.attr_overtaken;

	lockdep_assert_held(&fi->lock);
	fi->tuned.attr_overtaken = false;
	return !least || overtaken ? time : max(time, get_jiffies_64() + least * HZ);
}

bool tuned_is_forced(const struct fuse_conn *fc, enum tuned_forced option)
{
	return fc->tuned.forced[option] &&
	       (rules[option].most || !(fc->tuned.flags & rules[option].flag));
}

const char *tuned_forced_text(enum tuned_forced option, unsigned int value,
			      char text[TUNED_FORCED_TEXT])
{
	if (!rules[option].most)
		return specs[option].name;
	scnprintf(text, TUNED_FORCED_TEXT, "%s=%u", specs[option].name, value);
	return text;
}
