/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The request TUNED_OPEN, for atomic_open.c (names that are not cached) and
 * revalidate.c (cached names).
 */
#ifndef TUNED_OPEN_REQUEST_H
#define TUNED_OPEN_REQUEST_H

#include "fuse_i.h"
#include "protocol.h"

/* Differences between the series. */
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

/* Differs within 6.12, so Kbuild probes fuse_i.h. */
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

/* One TUNED_OPEN request and its reply. */
struct tuned_lookup {
	struct fuse_entry_out entry;
	struct fuse_open_out open;
	/*
	 * Allocated before the request is sent: once the server has counted a
	 * lookup and opened a file, giving them back must not fail.
	 */
	struct fuse_forget_link *forget;
	struct fuse_file *ff;
	u64 attr_version;
	u64 evicted;
	int epoch;
	bool created;
	bool opened;
};

/*
 * Whether the server supports TUNED_OPEN. The first caller sends TUNED_HELLO and
 * waits for the reply; meanwhile others get false and send stock requests.
 */
bool tuned_is_agreed(struct fuse_mount *fm);
/*
 * On success the caller owns everything in `lookup`; on error nothing is held.
 * Also returns -ENOENT for a negative entry (node 0), and only then is the entry's
 * timeout set.
 */
int tuned_send_open(struct fuse_mount *fm, u64 parent, const struct qstr *name,
		    const struct tuned_open_in *in, struct tuned_lookup *lookup);
/* Releases what the server opened, or frees the unused file. */
void tuned_put_file(struct tuned_lookup *lookup, struct fuse_inode *fi, unsigned int flags);
/*
 * Whether the reply violates the protocol. Neither RELEASE nor FORGET is sent then,
 * as after CREATE. The VFS does not check the permissions of a file that an open
 * created, so a server must not claim that without O_CREAT.
 */
bool tuned_is_invalid(const struct tuned_lookup *lookup, unsigned int flags);

#endif
