// SPDX-License-Identifier: GPL-2.0-only
/*
 * A connection's limits and options, from its mount to the reply to INIT.
 *
 * Stock: INIT negotiates fuse_conn.max_pages, which is both the number of pages
 * allocated for a request and the number at which a request is full.
 *
 * Here: a request is full at tuned_conn.max_pages, which is at most
 * fuse_conn.max_pages and may be changed on a live mount (control.c).
 *
 * Why it is safe: fuse_conn.max_pages never changes after INIT. Code that
 * allocates pages for a request uses it, or reads tuned_max_pages() once, for both
 * the allocation and the limit. Code that decides whether a request is full
 * compares with ">=", because the limit may have dropped below the pages that the
 * request already has. So no array is overrun, whenever the limit changes.
 * rules.toml lists these places.
 */
#include "fuse_i.h"

void tuned_fill_super(struct fuse_conn *fc, const struct tuned_options *options)
{
	unsigned int pages = options->max_pages ?: tuned_default_pages();

	fc->tuned.options = *options;
	if (options->atomic_open)
		tuned_notes_alloc(fc);
	if (pages)
		fc->max_pages_limit = pages;
}

void tuned_negotiated(struct fuse_mount *fm)
{
	struct fuse_conn *fc = fm->fc;

	/* fs/fuse applies the limit only if the server replies with FUSE_MAX_PAGES. */
	fc->max_pages = min(fc->max_pages, fc->max_pages_limit);
	WRITE_ONCE(fc->tuned.max_pages, fc->max_pages);
	tuned_force_limits(fm);
	tuned_negotiate_open(fc);
	/* Pairs with negotiated_conn(): a reader of the flag sees all of the above. */
	smp_store_release(&fc->tuned.negotiated, true);
}
