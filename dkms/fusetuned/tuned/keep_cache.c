// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keep cached pages across an open if the file is unchanged (as NFS close-to-open).
 *
 * Stock: open(2) drops the file's cached pages unless the server sets
 * FOPEN_KEEP_CACHE in its reply. A server that does so must know by itself that
 * the file is unchanged.
 *
 * Here: with keep_cache, an open of a file that has cached pages sends one GETATTR.
 * If size, mtime and ctime are the ones noted for the pages, the pages stay;
 * otherwise they are dropped, as in stock.
 *
 * Why it is safe:
 * - The three are noted before pages are read. If the file has no pages, they are
 *   the inode's; otherwise they are noted from GETATTR after all pages have been
 *   dropped. So a note may be older than the pages, but never newer.
 * - If the three still equal the note, the file has not changed in between. Size
 *   and mtime alone would not show that: a file may change, be read, and then be
 *   put back with its old mtime, as by cp -p. No one can set ctime back.
 * - The attributes come from the server at each open, whatever their timeout. With
 *   the writeback cache, the kernel's own would not show another client's change.
 *   They may then also differ from the server's after a change made here, as ctime
 *   does on most servers. A note of the inode's then drops unchanged pages, but
 *   only once, because the next note is from GETATTR.
 * - Without a note, and after an error, the pages are dropped, as in stock.
 */
#include "fuse_i.h"

#include <linux/fs.h>
#include <linux/pagemap.h>

#ifdef FOPEN_PASSTHROUGH
#define PAST_CACHE (FOPEN_DIRECT_IO | FOPEN_PASSTHROUGH)
#else
#define PAST_CACHE FOPEN_DIRECT_IO
#endif

static int ask(struct fuse_mount *fm, struct inode *inode, struct tuned_version *version)
{
	FUSE_ARGS(args);
	const struct fuse_getattr_in in = {};
	struct fuse_attr_out out = {};
	int err;

	args.opcode = FUSE_GETATTR;
	args.nodeid = get_node_id(inode);
	args.in_numargs = 1;
	args.in_args[0].size = sizeof(in);
	args.in_args[0].value = &in;
	args.out_numargs = 1;
	args.out_args[0].size = sizeof(out);
	args.out_args[0].value = &out;
	err = fuse_simple_request(fm, &args);
	*version = (struct tuned_version) {
		.size = out.attr.size,
		.mtime = out.attr.mtime,
		.mtime_ns = out.attr.mtimensec,
		.ctime = out.attr.ctime,
		.ctime_ns = out.attr.ctimensec,
		.known = true,
	};
	return err;
}

static struct tuned_version of_inode(struct inode *inode)
{
	const struct timespec64 mtime = tuned_mtime(inode), ctime = tuned_ctime(inode);

	return (struct tuned_version) {
		.size = i_size_read(inode),
		.mtime = mtime.tv_sec,
		.mtime_ns = mtime.tv_nsec,
		.ctime = ctime.tv_sec,
		.ctime_ns = ctime.tv_nsec,
		.known = true,
	};
}

static void note(struct fuse_inode *fi, struct tuned_version version)
{
	spin_lock(&fi->lock);
	fi->tuned.cached = version;
	spin_unlock(&fi->lock);
}

static bool is_noted(struct fuse_inode *fi, const struct tuned_version *version)
{
	const struct tuned_version *cached = &fi->tuned.cached;
	bool same;

	spin_lock(&fi->lock);
	same = cached->known && cached->size == version->size &&
	       cached->mtime == version->mtime && cached->mtime_ns == version->mtime_ns &&
	       cached->ctime == version->ctime && cached->ctime_ns == version->ctime_ns;
	spin_unlock(&fi->lock);
	return same;
}

void tuned_keep_cache(struct inode *inode, struct file *file)
{
	struct fuse_inode *fi = get_fuse_inode(inode);
	struct fuse_file *ff = file->private_data;
	struct tuned_version now;

	if (!ff->fm->fc->tuned.forced[TUNED_KEEP_CACHE] || file->f_flags & O_TRUNC ||
	    ff->open_flags & (PAST_CACHE | FOPEN_KEEP_CACHE))
		return;
	if (!inode->i_mapping->nrpages) {
		note(fi, of_inode(inode));
		return;
	}
	if (ask(ff->fm, inode, &now))
		return;
	if (!is_noted(fi, &now)) {
		if (invalidate_inode_pages2(inode->i_mapping))
			return;
		note(fi, now);
	}
	ff->open_flags |= FOPEN_KEEP_CACHE;
}
