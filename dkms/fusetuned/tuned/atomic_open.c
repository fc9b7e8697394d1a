// SPDX-License-Identifier: GPL-2.0-only
/*
 * Names looked up and opened by one request; docs/architecture.md has the whole.
 *
 * A name not in the cache is opened while its dentry is in lookup. Of a cached
 * one whose time is over, the revalidation is skipped, and the task noted; its
 * open then asks by name, and fails with EOPENSTALE if that is another file
 * now, on which the VFS walks the path again and has each name revalidated.
 */
#include "fuse_i.h"
#include "protocol.h"

#include <linux/namei.h>
#include <linux/pagemap.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/posix_acl.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

/* How the series differ. */
#ifdef TUNED_CHANNELS
#include "dev.h"
#define put_lookup(fc, link, nodeid) fuse_chan_queue_forget((fc)->chan, link, nodeid, 1)
#define dentry_epoch(fc) atomic_read(&(fc)->epoch)
#define set_dentry_epoch(dentry, epoch) fuse_dentry_set_epoch(dentry, epoch)
#else
#define put_lookup(fc, link, nodeid) fuse_queue_forget(fc, link, nodeid, 1)
#define dentry_epoch(fc) 0
#define set_dentry_epoch(dentry, epoch) ((void)(epoch))
#endif

#ifdef FUSE_ALLOW_IDMAP
#define file_idmap(file) file_mnt_idmap(file)
#define is_idmapped(file) (file_mnt_idmap(file) != &nop_mnt_idmap)
#define send_as_create(fm, args) fuse_simple_idmap_request(&nop_mnt_idmap, fm, args)
#define attr_time(entry) ATTR_TIMEOUT(entry)
#define change_attributes(inode, entry, version)					\
	fuse_change_attributes(inode, &(entry)->attr, NULL, attr_time(entry), version)
#define keep_backing(ff, open) ((ff)->args->open_outarg = *(open))
#else
#define file_idmap(file) file_mnt_user_ns(file)
#define is_idmapped(file) is_idmapped_mnt((file)->f_path.mnt)
#define send_as_create(fm, args) fuse_simple_request(fm, args)
#define attr_time(entry) entry_attr_timeout(entry)
#define change_attributes(inode, entry, version)					\
	fuse_change_attributes(inode, &(entry)->attr, attr_time(entry), version)
#define keep_backing(ff, open) ((void)(open))
#endif

/* It differs within 6.12: Kbuild looks into fuse_i.h. */
#ifdef TUNED_EVICT_COUNT
#define evict_count(fc) fuse_get_evict_ctr(fc)
#define get_inode(sb, entry, version, evicted)						\
	fuse_iget(sb, (entry)->nodeid, (entry)->generation, &(entry)->attr,		\
		  attr_time(entry), version, evicted)
#else
#define evict_count(fc) 0
#define get_inode(sb, entry, version, evicted)						\
	fuse_iget(sb, (entry)->nodeid, (entry)->generation, &(entry)->attr,		\
		  attr_time(entry), version)
#endif

/* States of tuned_conn.atomic_open, after what the header says. */
enum { TUNED_ASKING = TUNED_ASK + 1, TUNED_AGREED };

/*
 * Which task skipped the revalidation of a name of which inode; inodes are only
 * compared. A task has one place. Tasks that share one, and of which the noted
 * one lives, go as stock: to drop its note would let it open an old file.
 */
#define NOTES 250
struct tuned_notes {
	/* Of all places. */
	spinlock_t lock;
	struct tuned_note {
		pid_t task;
		struct inode *inode;
	} places[NOTES];
};

/* One request, and what came back. */
struct lookup {
	struct fuse_entry_out entry;
	struct fuse_open_out open;
	/* For what comes back; whose they are in the end is settled by then. */
	struct fuse_forget_link *forget;
	struct fuse_file *ff;
	u64 attr_version;
	u64 evicted;
	int epoch;
	bool created;
	bool opened;
};

u64 tuned_init_flags(const struct fuse_conn *fc)
{
	return fc->tuned.options.atomic_open ? TUNED_INIT_OPEN : 0;
}

void tuned_settle_open(struct fuse_conn *fc)
{
	if (fc->tuned.options.atomic_open && fc->tuned.flags & TUNED_INIT_OPEN)
		WRITE_ONCE(fc->tuned.atomic_open, TUNED_ASK);
}

void tuned_fill_open(struct fuse_conn *fc)
{
	if (!fc->tuned.options.atomic_open)
		return;
	fc->tuned.notes = kzalloc(sizeof(*fc->tuned.notes), GFP_KERNEL_ACCOUNT);
	if (fc->tuned.notes)
		spin_lock_init(&fc->tuned.notes->lock);
}

void tuned_conn_free(struct fuse_conn *fc)
{
	kfree(fc->tuned.notes);
}

static int send_hello(struct fuse_mount *fm)
{
	FUSE_ARGS(args);
	const struct tuned_hello in = { .magic = TUNED_MAGIC, .version = TUNED_VERSION };
	struct tuned_hello out = {};
	int err;

	args.opcode = TUNED_HELLO;
	args.nodeid = FUSE_ROOT_ID;
	args.in_numargs = 1;
	args.in_args[0].size = sizeof(in);
	args.in_args[0].value = &in;
	args.out_numargs = 1;
	args.out_args[0].size = sizeof(out);
	args.out_args[0].value = &out;
	err = fuse_simple_request(fm, &args);
	if (err)
		return err;
	return out.magic == in.magic && out.version == in.version ? 0 : -EPROTO;
}

/* Whether the server takes TUNED_OPEN: one task asks it, the others do not wait. */
static bool agreed(struct fuse_mount *fm)
{
	int *state = &fm->fc->tuned.atomic_open;
	int now;

	now = READ_ONCE(*state);
	if (now != TUNED_ASK)
		return now == TUNED_AGREED;
	if (cmpxchg(state, TUNED_ASK, TUNED_ASKING) != TUNED_ASK)
		return false;
	switch (send_hello(fm)) {
	case 0:
		now = TUNED_AGREED;
		break;
	case -EINTR:
	case -ENOMEM:
		break;
	default:
		now = TUNED_NEVER;
	}
	WRITE_ONCE(*state, now);
	return now == TUNED_AGREED;
}

static void put_file(struct lookup *lookup, struct fuse_inode *fi, unsigned int flags)
{
	if (lookup->opened)
		fuse_sync_release(fi, lookup->ff, flags & ~(O_CREAT | O_EXCL | O_TRUNC));
	else if (lookup->ff)
		fuse_file_free(lookup->ff);
}

/*
 * Returns 0, with everything in `lookup` the caller's, or an error, with nothing.
 * No entry is ENOENT also here, save that its time is valid if the node is 0.
 */
static int send_open(struct fuse_mount *fm, u64 parent, const struct qstr *name,
		     const struct tuned_open_in *in, struct lookup *lookup)
{
	FUSE_ARGS(args);
	int err = -ENOMEM;

	memset(lookup, 0, sizeof(*lookup));
	lookup->forget = fuse_alloc_forget();
	lookup->ff = fuse_file_alloc(fm, true);
	if (!lookup->forget || !lookup->ff)
		goto out_free;
	lookup->attr_version = fuse_get_attr_version(fm->fc);
	lookup->evicted = evict_count(fm->fc);
	lookup->epoch = dentry_epoch(fm->fc);

	args.opcode = TUNED_OPEN;
	args.nodeid = parent;
	args.in_numargs = 2;
	args.in_args[0].size = sizeof(*in);
	args.in_args[0].value = in;
	args.in_args[1].size = name->len + 1;
	args.in_args[1].value = name->name;
	args.out_numargs = 2;
	args.out_args[0].size = sizeof(lookup->entry);
	args.out_args[0].value = &lookup->entry;
	args.out_args[1].size = sizeof(lookup->open);
	args.out_args[1].value = &lookup->open;
	err = in->flags & O_CREAT ? send_as_create(fm, &args) : fuse_simple_request(fm, &args);
	if (err == -ENOSYS)
		WRITE_ONCE(fm->fc->tuned.atomic_open, TUNED_NEVER);
	if (!err && !lookup->entry.nodeid)
		err = -ENOENT;
	if (err)
		goto out_free;

	lookup->created = lookup->open.open_flags & TUNED_FOPEN_CREATED;
	lookup->opened = !(lookup->open.open_flags & TUNED_FOPEN_LOOKUP);
	lookup->open.open_flags &= ~(TUNED_FOPEN_CREATED | TUNED_FOPEN_LOOKUP);
	lookup->ff->fh = lookup->open.fh;
	lookup->ff->nodeid = lookup->entry.nodeid;
	lookup->ff->open_flags = lookup->open.open_flags;
	tuned_open_flags(lookup->ff);
	keep_backing(lookup->ff, &lookup->open);
	return 0;

out_free:
	kfree(lookup->forget);
	put_file(lookup, NULL, 0);
	return err;
}

/*
 * What a server must not say; nothing of it is given back, as after CREATE. The
 * VFS checks no permissions of a file that was created.
 */
static bool is_nonsense(const struct lookup *lookup, unsigned int flags)
{
	umode_t mode = lookup->entry.attr.mode;

	return invalid_nodeid(lookup->entry.nodeid) ||
	       fuse_invalid_attr((struct fuse_attr *)&lookup->entry.attr) ||
	       (lookup->opened && !S_ISREG(mode)) ||
	       (lookup->created && !(lookup->opened && flags & O_CREAT));
}

static int finish(struct inode *inode, struct dentry *entry, struct file *file,
		  struct lookup *lookup, unsigned int flags)
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
		put_file(lookup, get_fuse_inode(inode), flags);
	else if (!(ff->open_flags & FOPEN_KEEP_CACHE))
		invalidate_inode_pages2(inode->i_mapping);
	return err;
}

/* The name is not there: stays known for as long as the server says. */
static int finish_negative(struct fuse_conn *fc, struct dentry *entry, struct file *file,
			   struct lookup *lookup)
{
	struct dentry *res = d_splice_alias(NULL, entry);

	if (IS_ERR(res))
		return PTR_ERR(res);
	set_dentry_epoch(entry, lookup->epoch);
	fuse_change_entry_timeout(entry, &lookup->entry);
	return finish_no_open(file, NULL);
}

static int finish_positive(struct inode *dir, struct dentry *entry, struct file *file,
			   struct lookup *lookup, unsigned int flags)
{
	struct fuse_conn *fc = get_fuse_conn(dir);
	struct inode *inode;
	struct dentry *res;

	if (is_nonsense(lookup, flags)) {
		kfree(lookup->forget);
		fuse_file_free(lookup->ff);
		return -EIO;
	}
	inode = get_inode(dir->i_sb, &lookup->entry, lookup->attr_version, lookup->evicted);
	if (!inode) {
		put_file(lookup, NULL, flags);
		put_lookup(fc, lookup->forget, lookup->entry.nodeid);
		return -ENOMEM;
	}
	kfree(lookup->forget);
	res = d_splice_alias(inode, entry);
	if (IS_ERR(res)) {
		put_file(lookup, NULL, flags);
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
 * An existing file is not truncated before the VFS has checked permissions, so
 * without O_CREAT nothing is gained. Extensions of CREATE are not sent.
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
	struct tuned_open_in in = { .flags = tuned_sent_flags(fc, flags & ~O_NOCTTY) };
	struct lookup lookup;
	bool locked;
	int err;

	if (!is_for_us(fc, entry, file, flags) || !agreed(fm))
		return TUNED_STOCK;
	if (!fc->atomic_o_trunc)
		in.flags &= ~O_TRUNC;
	if (flags & O_CREAT) {
		in.umask = current_umask();
		in.mode = fc->dont_mask ? mode : mode & ~in.umask;
	}
	locked = fuse_lock_inode(dir);
	err = send_open(fm, get_node_id(dir), &entry->d_name, &in, &lookup);
	fuse_unlock_inode(dir, locked);
	if (err == -ENOSYS)
		return TUNED_STOCK;
	if (err == -ENOENT && !(flags & O_CREAT))
		return finish_negative(fc, entry, file, &lookup);
	if (err)
		return err;
	return finish_positive(dir, entry, file, &lookup, flags);
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

/* Whether there is a place for it. */
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

bool tuned_skips_lookup(struct dentry *entry, struct inode *inode, unsigned int flags)
{
	const unsigned int others = LOOKUP_CREATE | LOOKUP_EXCL | LOOKUP_REVAL |
				    LOOKUP_RENAME_TARGET | LOOKUP_DIRECTORY;
	struct fuse_mount *fm = get_fuse_mount(inode);
	struct fuse_conn *fc = fm->fc;

	if (!(flags & LOOKUP_OPEN) || flags & others || fc->no_open)
		return false;
	/* What is mounted there would be opened, and nobody look at the name. */
	if (!S_ISREG(inode->i_mode) || d_mountpoint(entry) || !agreed(fm))
		return false;
	return leave_note(fc, inode);
}

/*
 * Whether this task skipped the revalidation of a name of this inode, once. One
 * that was noted for an open that then failed elsewhere does no harm: the name
 * is asked for at another open of the same file, and if it is not its own any
 * more, the second attempt finds no note.
 */
static bool take_skip(struct fuse_conn *fc, struct inode *inode)
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
 * The inode may not be the name's any more, and what it forbids not the last
 * word. ETXTBSY is what the VFS says next of a program that runs.
 */
int tuned_permission(tuned_idmap *idmap, struct inode *inode, int mask)
{
	int err = fuse_permission(idmap, inode, mask);

	if (!(mask & MAY_OPEN))
		return err;
	if (!err && !(mask & MAY_WRITE && atomic_read(&inode->i_writecount) < 0))
		return 0;
	return take_skip(get_fuse_conn(inode), inode) ? -EOPENSTALE : err;
}

/* As the VFS did with what was known of the inode, now that more is. */
static int check_again(struct inode *inode, struct file *file)
{
	int mask = ACC_MODE(file->f_flags);

	if (file->f_flags & __FMODE_EXEC) {
		if (!(inode->i_mode & 0111))
			return -EACCES;
		mask = MAY_EXEC;
	}
	if (file->f_flags & O_TRUNC)
		mask |= MAY_WRITE;
	if (!get_fuse_conn(inode)->default_permissions)
		return 0;
	return generic_permission(file_idmap(file), inode, mask);
}

/* What was opened, if it is this inode. Returns 0, or an error, with all given back. */
static int accept(struct inode *inode, struct file *file, struct lookup *lookup)
{
	struct fuse_inode *fi = get_fuse_inode(inode);
	struct fuse_conn *fc = get_fuse_conn(inode);
	struct fuse_entry_out *entry = &lookup->entry;
	int err = -EOPENSTALE;

	if (is_nonsense(lookup, 0)) {
		kfree(lookup->forget);
		fuse_file_free(lookup->ff);
		return -EIO;
	}
	if (entry->nodeid != get_node_id(inode)) {
		put_file(lookup, NULL, file->f_flags);
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
	put_file(lookup, fi, file->f_flags);
	return err;
}

static int open_by_name(struct fuse_mount *fm, struct inode *inode, struct file *file)
{
	const unsigned int settled = O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC;
	const struct tuned_open_in in = {
		.flags = tuned_sent_flags(fm->fc, file->f_flags & ~settled),
	};
	struct dentry *parent, *entry = file->f_path.dentry;
	struct name_snapshot name;
	struct lookup lookup;
	int err;

	/* Truncated is only what permissions were checked of: a lookup comes first. */
	if (file->f_flags & O_TRUNC && fm->fc->atomic_o_trunc)
		return -EOPENSTALE;
	if (d_inode(entry) != inode || d_unlinked(entry))
		return -EOPENSTALE;
	take_dentry_name_snapshot(&name, entry);
	parent = dget_parent(entry);
	err = send_open(fm, get_node_id(d_inode(parent)), &name.name, &in, &lookup);
	dput(parent);
	release_dentry_name_snapshot(&name);
	if (err == -ENOENT || err == -ENOSYS)
		return -EOPENSTALE;
	return err ?: accept(inode, file, &lookup);
}

int tuned_do_open(struct fuse_mount *fm, struct inode *inode, struct file *file, bool isdir)
{
	if (!isdir && take_skip(fm->fc, inode))
		return open_by_name(fm, inode, file);
	return fuse_do_open(fm, get_node_id(inode), file, isdir);
}
