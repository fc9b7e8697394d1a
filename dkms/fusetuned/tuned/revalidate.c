// SPDX-License-Identifier: GPL-2.0-only
/*
 * Open a cached name whose timeout has expired with one request (Singh 2022).
 *
 * Stock: d_revalidate() sends LOOKUP for the name, and open() sends OPEN for the
 * inode that the name had.
 *
 * Here: d_revalidate() sends nothing and notes the task and the inode; open() by
 * that task then sends TUNED_OPEN for the name. If the name is gone or is another
 * file now, open() fails with EOPENSTALE. The VFS then walks the path once more
 * with LOOKUP_REVAL, and d_revalidate() does what stock does. A permission denied
 * before the open, or ETXTBSY that the VFS is about to return, concerns the old
 * file and becomes EOPENSTALE as well.
 *
 * Why it is safe:
 * - An open that was not reached by a name (/proc/self/fd) finds no note, and opens
 *   the inode as stock does.
 * - A note never replaces another task's, because that task's open would then use
 *   the old file unchecked. There are NOTES places, indexed by pid. While a task
 *   that left a note lives, tasks with the same place revalidate as stock. The
 *   note of an open that failed before it reached the file system stays until its
 *   task leaves another or has ended; it does no harm (take_note()).
 * - Permissions are checked again with the attributes that TUNED_OPEN returned.
 * - overlayfs passes LOOKUP_OPEN to the lower layer and opens in the same task.
 *   From Linux 6.12 on that file has the lower path, and is opened by name. On 6.1
 *   it has the overlay's path: the first attempt fails with EOPENSTALE without a
 *   request, and the second revalidates as stock.
 *
 * Left to stock: O_CREAT and directories, O_TRUNC if the server truncates at open,
 * and mount points. One difference is visible: O_NOATIME by a user who does not
 * own the old file fails with EPERM, although the name may be another file's.
 */
#include "open_request.h"

#include <linux/namei.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/posix_acl.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

/*
 * Says which task skipped the revalidation of a name of which inode. Inodes are only
 * compared, never dereferenced. With the lock, 250 places fit into a page.
 */
#define NOTES 250
struct tuned_notes {
	spinlock_t lock;	/* protects all places */
	struct tuned_note {
		pid_t task;
		struct inode *inode;
	} places[NOTES];
};

void tuned_notes_alloc(struct fuse_conn *fc)
{
	/* If this fails, every name is revalidated as in stock. */
	fc->tuned.notes = kzalloc(sizeof(*fc->tuned.notes), GFP_KERNEL_ACCOUNT);
	if (fc->tuned.notes)
		spin_lock_init(&fc->tuned.notes->lock);
}

void tuned_conn_free(struct fuse_conn *fc)
{
	kfree(fc->tuned.notes);
	tuned_timeout_stop(fc);
}

static bool is_alive(pid_t task)
{
	bool alive;

	rcu_read_lock();
	alive = pid_task(find_pid_ns(task, &init_pid_ns), PIDTYPE_PID);
	rcu_read_unlock();
	return alive;
}

static struct tuned_note *my_note(struct tuned_notes *notes)
{
	return notes->places + task_pid_nr(current) % NOTES;
}

/* Returns whether there was a free place for the note. */
static bool leave_note(struct fuse_conn *fc, struct inode *inode)
{
	struct tuned_notes *notes = fc->tuned.notes;
	struct tuned_note *note;
	bool free;

	if (!notes)
		return false;
	note = my_note(notes);
	spin_lock(&notes->lock);
	free = !note->inode || note->task == task_pid_nr(current) || !is_alive(note->task);
	if (free)
		*note = (struct tuned_note) { task_pid_nr(current), inode };
	spin_unlock(&notes->lock);
	return free;
}

/*
 * May sleep in tuned_is_agreed(): fuse_dentry_revalidate() has already returned
 * -ECHILD for LOOKUP_RCU.
 */
bool tuned_skips_lookup(struct dentry *entry, struct inode *inode, unsigned int flags)
{
	const unsigned int others = LOOKUP_CREATE | LOOKUP_EXCL | LOOKUP_REVAL |
				    LOOKUP_RENAME_TARGET | LOOKUP_DIRECTORY;
	struct fuse_mount *fm = get_fuse_mount(inode);
	struct fuse_conn *fc = fm->fc;

	if (!(flags & LOOKUP_OPEN) || flags & others || fc->no_open)
		return false;
	/*
	 * On a mount point the VFS opens the mounted root, so nothing would check the name.
	 * If something is mounted after this, the note does no harm. The type never changes.
	 */
	if (!S_ISREG(data_race(inode->i_mode)) || data_race(d_mountpoint(entry)) ||
	    !tuned_is_agreed(fm))
		return false;
	return leave_note(fc, inode);
}

/*
 * Whether this task skipped the revalidation of a name of this inode; true only once.
 * A note left by an open that failed elsewhere does no harm: a later open of the
 * same file is sent by name, and if the name is another file's by then, the
 * VFS's second attempt finds no note.
 */
static bool take_note(struct fuse_conn *fc, struct inode *inode)
{
	struct tuned_notes *notes = fc->tuned.notes;
	struct tuned_note *note;
	bool found;

	if (!notes)
		return false;
	note = my_note(notes);
	spin_lock(&notes->lock);
	found = note->inode == inode && note->task == task_pid_nr(current);
	if (found)
		note->inode = NULL;
	spin_unlock(&notes->lock);
	return found;
}

/*
 * The refusal may concern a file that the name no longer refers to. If the file is
 * a running program, the VFS returns ETXTBSY next.
 */
int tuned_permission(tuned_idmap *idmap, struct inode *inode, int mask)
{
	int err = fuse_permission(idmap, inode, mask);

	if (!(mask & MAY_OPEN))
		return err;
	if (!err && !(mask & MAY_WRITE && atomic_read(&inode->i_writecount) < 0))
		return 0;
	return take_note(get_fuse_conn(inode), inode) ? -EOPENSTALE : err;
}

/* Repeats the VFS's permission checks with the attributes of the reply. */
static int check_again(struct inode *inode, struct file *file)
{
	int mask = ACC_MODE(file->f_flags);

	if (file->f_flags & __FMODE_EXEC) {
		/* The VFS reads the mode without a lock here, too. */
		if (!(data_race(inode->i_mode) & 0111))
			return -EACCES;
		mask = MAY_EXEC;
	}
	if (file->f_flags & O_TRUNC)
		mask |= MAY_WRITE;
	if (!get_fuse_conn(inode)->default_permissions)
		return 0;
	return generic_permission(file_idmap(file), inode, mask);
}

/*
 * Uses the opened file if it is this inode. Otherwise releases it and returns an
 * error.
 */
static int accept(struct inode *inode, struct file *file, struct tuned_lookup *lookup)
{
	struct fuse_inode *fi = get_fuse_inode(inode);
	struct fuse_conn *fc = get_fuse_conn(inode);
	struct fuse_entry_out *entry = &lookup->entry;
	int err = -EOPENSTALE;

	if (tuned_is_invalid(lookup, 0)) {
		kfree(lookup->forget);
		fuse_file_free(lookup->ff);
		return -EIO;
	}
	if (entry->nodeid != get_node_id(inode)) {
		tuned_put_file(lookup, NULL, file->f_flags);
		put_lookup(fc, lookup->forget, entry->nodeid);
		return err;
	}
	kfree(lookup->forget);
	spin_lock(&fi->lock);
	fi->nlookup++;
	spin_unlock(&fi->lock);
	if (!lookup->opened ||
	    fuse_stale_inode(inode, entry->generation, &entry->attr))
		goto out_put;
	forget_all_cached_acls(inode);
	change_attributes(inode, entry, lookup->attr_version);
	fuse_change_entry_timeout(file->f_path.dentry, entry);
	err = check_again(inode, file);
	if (err)
		goto out_put;
	file->private_data = lookup->ff;
	return 0;

out_put:
	tuned_put_file(lookup, fi, file->f_flags);
	return err;
}

static int open_by_name(struct fuse_mount *fm, struct inode *inode, struct file *file)
{
	const unsigned int handled = O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC;
	const u32 asked = tuned_sent_flags(fm->fc, file->f_flags & ~handled);
	const struct tuned_open_in in = { .flags = tuned_readable_flags(fm->fc, asked) };
	struct dentry *parent, *entry = file->f_path.dentry;
	struct name_snapshot name;
	struct tuned_lookup lookup;
	int err;

	/* Permissions must be checked before the server truncates, so send LOOKUP first. */
	if (file->f_flags & O_TRUNC && fm->fc->atomic_o_trunc)
		return -EOPENSTALE;
	/* The name may go at any moment; the server then replies ENOENT. */
	if (d_inode(entry) != inode || data_race(d_unlinked(entry)))
		return -EOPENSTALE;
	take_dentry_name_snapshot(&name, entry);
	parent = dget_parent(entry);
	err = tuned_send_open(fm, get_node_id(d_inode(parent)), &name.name, &in, &lookup);
	dput(parent);
	release_dentry_name_snapshot(&name);
	if (err == -ENOENT || err == -ENOSYS || tuned_refuses_reads(fm->fc, asked, err))
		return -EOPENSTALE;
	return err ?: accept(inode, file, &lookup);
}

int tuned_do_open(struct fuse_mount *fm, struct inode *inode, struct file *file, bool isdir)
{
	int err;

	if (!isdir && take_note(fm->fc, inode))
		err = open_by_name(fm, inode, file);
	else
		err = fuse_do_open(fm, get_node_id(inode), file, isdir);
	if (!err && !isdir)
		tuned_keep_cache(inode, file);
	return err;
}
