// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Counts of the kernel's requests, and what INIT negotiated. Counters are relaxed
 * atomics, with a cache line for each kind of request.
 */
#include "counters.h"

/* OP_ALL has all requests together. */
static struct op_counter counters[OP_ALL + 1];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct negotiated negotiated;

static void raise_to(_Atomic uint64_t *most, uint64_t value)
{
	uint64_t seen = atomic_load_explicit(most, memory_order_relaxed);

	while (value > seen &&
	       !atomic_compare_exchange_weak_explicit(most, &seen, value, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

uint64_t counter_get(_Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void set(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, value, memory_order_relaxed);
}

void tally_begin(struct tally *tally, uint64_t bytes)
{
	uint64_t in_flight;

	atomic_fetch_add_explicit(&tally->count, 1, memory_order_relaxed);
	in_flight = atomic_fetch_add_explicit(&tally->in_flight, 1, memory_order_relaxed) + 1;
	raise_to(&tally->most_in_flight, in_flight);
	if (!bytes)
		return;
	atomic_fetch_add_explicit(&tally->bytes, bytes, memory_order_relaxed);
	raise_to(&tally->largest, bytes);
}

void tally_end(struct tally *tally)
{
	atomic_fetch_sub_explicit(&tally->in_flight, 1, memory_order_relaxed);
}

void tally_reset(struct tally *tally)
{
	set(&tally->count, 0);
	set(&tally->bytes, 0);
	set(&tally->largest, 0);
	set(&tally->most_in_flight, counter_get(&tally->in_flight));
}

void counters_begin(enum opcode op, uint64_t bytes)
{
	tally_begin(&counters[op].tally, bytes);
	tally_begin(&counters[OP_ALL].tally, bytes);
}

/*
 * Called before the reply is sent. A client may send its next request as soon as
 * it has the reply, and a single client must show as one request in flight.
 */
void counters_end(enum opcode op, bool failed)
{
	if (failed) {
		atomic_fetch_add_explicit(&counters[op].errors, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&counters[OP_ALL].errors, 1, memory_order_relaxed);
	}
	tally_end(&counters[op].tally);
	tally_end(&counters[OP_ALL].tally);
}

void counters_negotiated(const struct fuse_conn_info *conn)
{
	pthread_mutex_lock(&lock);
	negotiated = (struct negotiated) {
		.known = true,
		.proto_major = conn->proto_major,
		.proto_minor = conn->proto_minor,
		.max_write = conn->max_write,
		.max_readahead = conn->max_readahead,
		.max_background = conn->max_background,
		.congestion_threshold = conn->congestion_threshold,
#ifdef HAVE_FEATURE_FLAGS
		.capable = conn->capable_ext,
		.want = conn->want_ext,
#else
		.capable = conn->capable,
		.want = conn->want,
#endif
	};
	/* libfuse fills this in later, in its reply. */
	if (!negotiated.congestion_threshold)
		negotiated.congestion_threshold = negotiated.max_background * 3 / 4;
	pthread_mutex_unlock(&lock);
}

struct negotiated counters_init_reply(void)
{
	struct negotiated copy;

	pthread_mutex_lock(&lock);
	copy = negotiated;
	pthread_mutex_unlock(&lock);
	return copy;
}

struct op_counter *counters_of(enum opcode op)
{
	return &counters[op];
}

void counters_reset(void)
{
	int op;

	for (op = 0; op <= OP_ALL; op++) {
		tally_reset(&counters[op].tally);
		set(&counters[op].errors, 0);
	}
}
