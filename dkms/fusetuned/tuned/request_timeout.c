// SPDX-License-Identifier: GPL-2.0-only
/*
 * Abort a connection whose server leaves a request without a reply.
 *
 * Stock: from 6.15 on a server may set a timeout at INIT, and sysctls may. Before
 * that, a program waits for as long as the server hangs, and cannot be killed once
 * the server has read its request.
 *
 * Here: with request_timeout the connection is aborted, as by its file "abort",
 * when a request has waited for that long. Linux 7.2 and later do so by themselves
 * when tuned_force() sets their timeout. Earlier series use this file.
 *
 * Why it is safe: each list of requests is read under its lock, and none of these
 * locks is held when the connection is aborted. Each list is ordered by age, except
 * for a few requests that moved between lists. So checking its head suffices; the
 * others become the head in turn. The work holds no reference: it is cancelled
 * before the connection is freed. That may sleep, as stock's release of DAX does.
 */
#include "fuse_i.h"

#ifndef FUSE_REQUEST_TIMEOUT

#include <linux/ktime.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

/* Seconds between checks; as in Linux 7.2. */
#define PERIOD 15u

struct tuned_timeout {
	struct delayed_work work;
	struct fuse_conn *fc;
	unsigned int seconds;
};

static bool is_late(struct list_head *list, u64 limit)
{
	const struct fuse_req *req = list_first_entry_or_null(list, struct fuse_req, list);

	return req && req->tuned_begin < limit;
}

static bool has_late(struct fuse_pqueue *queue, u64 limit)
{
	unsigned int i;
	bool late;

	spin_lock(&queue->lock);
	late = is_late(&queue->io, limit);
	for (i = 0; !late && i < FUSE_PQ_HASH_SIZE; i++)
		late = is_late(&queue->processing[i], limit);
	spin_unlock(&queue->lock);
	return late;
}

static bool any_late(struct fuse_conn *fc, u64 limit)
{
	struct fuse_dev *fud;
	bool late;

	spin_lock(&fc->iq.lock);
	late = is_late(&fc->iq.pending, limit);
	spin_unlock(&fc->iq.lock);

	spin_lock(&fc->bg_lock);
	late |= is_late(&fc->bg_queue, limit);
	spin_unlock(&fc->bg_lock);

	spin_lock(&fc->lock);
	list_for_each_entry(fud, &fc->devices, entry)
		late |= has_late(&fud->pq, limit);
	spin_unlock(&fc->lock);
	return late;
}

static void again(struct tuned_timeout *timeout)
{
	schedule_delayed_work(&timeout->work, min(timeout->seconds, PERIOD) * HZ);
}

static void look(struct work_struct *work)
{
	struct tuned_timeout *timeout = container_of(to_delayed_work(work), struct tuned_timeout,
						     work);
	struct fuse_conn *fc = timeout->fc;
	u64 age = (u64)timeout->seconds * NSEC_PER_SEC, now = ktime_get_ns();

	if (!READ_ONCE(fc->connected))
		return;
	if (now < age || !any_late(fc, now - age)) {
		again(timeout);
		return;
	}
	pr_warn("connection %u: no reply within %u s, aborted\n", fc->dev, timeout->seconds);
	fuse_abort_conn(fc);
}

int tuned_timeout_start(struct fuse_conn *fc, unsigned int seconds)
{
	struct tuned_timeout *timeout = kzalloc(sizeof(*timeout), GFP_KERNEL);

	if (!timeout)
		return -ENOMEM;
	timeout->fc = fc;
	timeout->seconds = seconds;
	INIT_DELAYED_WORK(&timeout->work, look);
	fc->tuned.timeout = timeout;
	again(timeout);
	return 0;
}

void tuned_timeout_stop(struct fuse_conn *fc)
{
	if (fc->tuned.timeout)
		cancel_delayed_work_sync(&fc->tuned.timeout->work);
	kfree(fc->tuned.timeout);
}

#endif
