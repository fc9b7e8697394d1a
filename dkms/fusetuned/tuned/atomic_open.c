// SPDX-License-Identifier: GPL-2.0-only
/*
 * Look up and open a name that is not cached with one request (Singh 2022).
 *
 * Stock: open(2) of such a name sends LOOKUP, then OPEN, or CREATE for a new
 * file. On a network file system each request is a round trip.
 *
 * Here: ->atomic_open(), which stock uses for CREATE only, sends TUNED_OPEN while
 * the dentry is in lookup. The reply is that of CREATE: an entry, and an open file
 * if the server could open it.
 *
 * Why it is safe: the VFS checks permissions only after atomic_open(). So the
 * server must not truncate an existing file: it replies with the entry alone, and
 * OPEN follows. The VFS does not check a file that was created, so the server must
 * not claim to have created one without O_CREAT; tuned_is_invalid() turns that
 * into EIO. A dentry in lookup belongs to one task. Others wait for it, as they do
 * during LOOKUP.
 *
 * Stock requests are still sent for directories, O_PATH and O_TMPFILE, O_TRUNC if
 * the server truncates at open, idmapped mounts, O_CREAT with security contexts or
 * supplementary groups, and servers without OPEN. revalidate.c handles cached
 * names.
 */
#include "open_request.h"

#include <linux/namei.h>
#include <linux/pagemap.h>
#include <linux/slab.h>

static int finish(struct inode *inode, struct dentry *entry, struct file *file,
		  struct tuned_lookup *lookup, unsigned int flags)
{
	struct fuse_file *ff = lookup->ff;
	int err;

#ifdef FUSE_PASSTHROUGH
	err = generic_file_open(inode, file);
	if (!err) {
		file->private_data = ff;
		err = finish_open(file, entry, fuse_finish_open);
	}
#else
	err = finish_open(file, entry, generic_file_open);
	if (!err) {
		file->private_data = ff;
		fuse_finish_open(inode, file);
	}
#endif
	if (err)
		tuned_put_file(lookup, get_fuse_inode(inode), flags);
	else if (!(ff->open_flags & FOPEN_KEEP_CACHE))
		invalidate_inode_pages2(inode->i_mapping);
	return err;
}

/* The name does not exist: make the dentry negative, with the server's timeout. */
static int finish_negative(struct fuse_conn *fc, struct dentry *entry, struct file *file,
			   struct tuned_lookup *lookup)
{
	struct dentry *res = d_splice_alias(NULL, entry);

	if (IS_ERR(res))
		return PTR_ERR(res);
	set_dentry_epoch(entry, lookup->epoch);
	fuse_change_entry_timeout(entry, &lookup->entry);
	return finish_no_open(file, NULL);
}

static int finish_positive(struct inode *dir, struct dentry *entry, struct file *file,
			   struct tuned_lookup *lookup, unsigned int flags)
{
	struct fuse_conn *fc = get_fuse_conn(dir);
	struct inode *inode;
	struct dentry *res;

	if (tuned_is_invalid(lookup, flags)) {
		kfree(lookup->forget);
		fuse_file_free(lookup->ff);
		return -EIO;
	}
	inode = get_inode(dir->i_sb, &lookup->entry, lookup->attr_version, lookup->evicted);
	if (!inode) {
		tuned_put_file(lookup, NULL, flags);
		put_lookup(fc, lookup->forget, lookup->entry.nodeid);
		return -ENOMEM;
	}
	kfree(lookup->forget);
	res = d_splice_alias(inode, entry);
	if (IS_ERR(res)) {
		tuned_put_file(lookup, NULL, flags);
		return PTR_ERR(res);
	}
	set_dentry_epoch(res ?: entry, lookup->epoch);
	fuse_change_entry_timeout(res ?: entry, &lookup->entry);
	if (lookup->created) {
		file->f_mode |= FMODE_CREATED;
		fuse_dir_changed(dir);
	} else {
		set_bit(FUSE_I_ADVISE_RDPLUS, &get_fuse_inode(dir)->state);
	}
	if (lookup->opened)
		return finish(inode, entry, file, lookup, flags);
	fuse_file_free(lookup->ff);
	return finish_no_open(file, res);
}

/*
 * O_TRUNC without O_CREAT gains nothing, because the server must not truncate an
 * existing file in TUNED_OPEN. The extensions of CREATE (security context,
 * supplementary groups) are not part of the request.
 */
static bool is_for_us(const struct fuse_conn *fc, struct dentry *entry, struct file *file,
		      unsigned int flags)
{
	if (!d_in_lookup(entry) || entry->d_name.len > NAME_MAX || fc->no_open)
		return false;
	if (flags & O_DIRECTORY || (flags & O_ACCMODE) == O_ACCMODE || is_idmapped(file))
		return false;
	if (flags & O_CREAT) {
#ifdef FUSE_CREATE_SUPP_GROUP
		if (fc->create_supp_group)
			return false;
#endif
		return !fc->init_security;
	}
	return !(file->f_flags & O_TRUNC && fc->atomic_o_trunc);
}

int tuned_atomic_open(struct inode *dir, struct dentry *entry, struct file *file,
		      unsigned int flags, umode_t mode)
{
	struct fuse_mount *fm = get_fuse_mount(dir);
	struct fuse_conn *fc = fm->fc;
	const u32 asked = tuned_sent_flags(fc, flags & ~O_NOCTTY);
	struct tuned_open_in in = { .flags = tuned_readable_flags(fc, asked) };
	struct tuned_lookup lookup;
	bool locked;
	int err;

	if (!is_for_us(fc, entry, file, flags) || !tuned_is_agreed(fm))
		return TUNED_STOCK;
	if (!fc->atomic_o_trunc)
		in.flags &= ~O_TRUNC;
	if (flags & O_CREAT) {
		in.umask = current_umask();
		in.mode = fc->dont_mask ? mode : mode & ~in.umask;
	}
	locked = fuse_lock_inode(dir);
	err = tuned_send_open(fm, get_node_id(dir), &entry->d_name, &in, &lookup);
	fuse_unlock_inode(dir, locked);
	if (err == -ENOSYS || tuned_refuses_reads(fc, asked, err))
		return TUNED_STOCK;
	if (err == -ENOENT && !(flags & O_CREAT))
		return finish_negative(fc, entry, file, &lookup);
	if (err)
		return err;
	return finish_positive(dir, entry, file, &lookup, flags);
}
