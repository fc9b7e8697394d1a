// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Simulate a disk or a network: a fixed number of requests is served at a time, each
 * for a fixed time, and then their data passes a link with a fixed rate.
 */
#include "mirrorfs.h"

#include <errno.h>
#include <semaphore.h>
#include <time.h>

/* How often a sleeping thread checks whether the server is stopping. */
#define STOP_POLL_NS (100 * 1000 * 1000ULL)

/*
 * A transfer that starts late because its thread was woken late may catch up by this
 * much. Without that, a stream of small requests would not reach the rate.
 */
#define LINK_CREDIT_NS (2 * 1000 * 1000ULL)

struct waiter {
	struct waiter *next;
	uint64_t arrival;
	uint64_t start;
	sem_t ready;
};

static struct {
	pthread_mutex_t lock;
	uint64_t served;
	uint64_t in_service;
	uint64_t most_in_service;
	uint64_t waiting;
	uint64_t most_waiting;
	struct waiter *first;
	struct waiter **last;
} queue = { .lock = PTHREAD_MUTEX_INITIALIZER, .last = &queue.first };

static struct {
	pthread_mutex_t lock;
	uint64_t bandwidth;
	uint64_t free_at;
} transfer_link = { .lock = PTHREAD_MUTEX_INITIALIZER };

static atomic_bool stopping;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void sleep_until(uint64_t deadline)
{
	uint64_t now = now_ns();

	while (now < deadline && !atomic_load_explicit(&stopping, memory_order_relaxed)) {
		uint64_t wake = deadline - now > STOP_POLL_NS ? now + STOP_POLL_NS : deadline;
		struct timespec ts = {
			.tv_sec = (time_t)(wake / NSEC_PER_SEC),
			.tv_nsec = (long)(wake % NSEC_PER_SEC),
		};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		now = now_ns();
	}
}

static void enter_service(void)
{
	queue.in_service++;
	if (queue.in_service > queue.most_in_service)
		queue.most_in_service = queue.in_service;
}

/* Returns the time at which this request's service began. */
static uint64_t slot_take(void)
{
	struct waiter self = { .arrival = now_ns() };

	pthread_mutex_lock(&queue.lock);
	if (!queue.served || queue.in_service < queue.served) {
		enter_service();
		pthread_mutex_unlock(&queue.lock);
		return self.arrival;
	}
	sem_init(&self.ready, 0, 0);
	*queue.last = &self;
	queue.last = &self.next;
	queue.waiting++;
	if (queue.waiting > queue.most_waiting)
		queue.most_waiting = queue.waiting;
	pthread_mutex_unlock(&queue.lock);

	while (sem_wait(&self.ready) == -1 && errno == EINTR)
		;
	/* The thread that posted uses self until it drops the lock. */
	pthread_mutex_lock(&queue.lock);
	pthread_mutex_unlock(&queue.lock);
	sem_destroy(&self.ready);
	return self.start;
}

/*
 * Passes the slot to the first request in the queue. Its service begins when this
 * one was due to end, not when this thread ran. Otherwise scheduling delays would
 * add up, and N slots of 2 ms would serve fewer than N requests in 2 ms.
 */
static void slot_pass_on(uint64_t ended)
{
	struct waiter *next;

	pthread_mutex_lock(&queue.lock);
	next = queue.first;
	if (!next) {
		queue.in_service--;
		pthread_mutex_unlock(&queue.lock);
		return;
	}
	queue.first = next->next;
	if (!queue.first)
		queue.last = &queue.first;
	queue.waiting--;
	next->start = next->arrival > ended ? next->arrival : ended;
	sem_post(&next->ready);
	pthread_mutex_unlock(&queue.lock);
}

void throttle_init(uint64_t served, uint64_t bandwidth)
{
	queue.served = served;
	transfer_link.bandwidth = bandwidth;
	transfer_link.free_at = now_ns();
}

void throttle_serve(uint64_t delay_ns)
{
	uint64_t deadline;

	if (!delay_ns)
		return;
	deadline = slot_take() + delay_ns;
	sleep_until(deadline);
	slot_pass_on(deadline);
}

void throttle_transfer(uint64_t bytes)
{
	uint64_t now, until;

	if (!transfer_link.bandwidth || !bytes)
		return;
	now = now_ns();
	pthread_mutex_lock(&transfer_link.lock);
	if (transfer_link.free_at + LINK_CREDIT_NS < now)
		transfer_link.free_at = now - LINK_CREDIT_NS;
	transfer_link.free_at += bytes * NSEC_PER_SEC / transfer_link.bandwidth;
	until = transfer_link.free_at;
	pthread_mutex_unlock(&transfer_link.lock);
	sleep_until(until);
}

void throttle_stop(void)
{
	atomic_store(&stopping, true);
}

void throttle_state(struct throttle_state *state)
{
	pthread_mutex_lock(&queue.lock);
	state->most_in_service = queue.most_in_service;
	state->most_waiting = queue.most_waiting;
	pthread_mutex_unlock(&queue.lock);
}

void throttle_reset(void)
{
	pthread_mutex_lock(&queue.lock);
	queue.most_in_service = queue.in_service;
	queue.most_waiting = queue.waiting;
	pthread_mutex_unlock(&queue.lock);
}
