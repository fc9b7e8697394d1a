/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counters as document.c reads them. The rest of the server uses mirrorfs.h.
 */
#ifndef MIRRORFS_COUNTERS_H
#define MIRRORFS_COUNTERS_H

#include "mirrorfs.h"

/* counters.c */

struct op_counter {
	_Alignas(64) struct tally tally;
	_Atomic uint64_t errors;
};

/* What INIT negotiated. */
struct negotiated {
	bool known;
	unsigned int proto_major, proto_minor;
	unsigned int max_write, max_readahead;
	unsigned int max_background, congestion_threshold;
	uint64_t capable, want;
};

uint64_t counter_get(_Atomic uint64_t *counter);
struct op_counter *counters_of(enum opcode op);
struct negotiated counters_init_reply(void);
void counters_reset(void);

/* file_tallies.c */

/* A tally of writes, copied at one moment. */
struct file_tally {
	char *path;
	uint64_t count;
	uint64_t bytes;
	uint64_t largest;
	uint64_t most_in_flight;
};

struct file_tallies {
	struct file_tally *files;
	size_t used;
	size_t room;
};

/* Returns 0, or -1 when there is no memory. */
int file_tallies_add(struct file_tallies *list, const char *path, struct tally *tally);
/* Sorts by path and merges tallies of one path: a file may come and go many times. */
void file_tallies_merge(struct file_tallies *list);
void file_tallies_clear(struct file_tallies *list);
/* Copies the tallies of forgotten files; returns how many files are missing there. */
uint64_t retired_copy(struct file_tallies *list);

#endif
