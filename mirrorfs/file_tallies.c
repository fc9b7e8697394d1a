// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tallies of the writes to each file: lists by path, and the list of the
 * files that the kernel has forgotten.
 */
#include "counters.h"

#include <stdlib.h>
#include <string.h>

/* Keep the tallies of so many forgotten files; only count the others. */
#define RETIRED_MAX 65536

/* This lock nests inside the inode table's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file_tallies retired;
static uint64_t left_out;

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(((const struct file_tally *)a)->path,
		      ((const struct file_tally *)b)->path);
}

void file_tallies_merge(struct file_tallies *list)
{
	size_t i, kept = 0;

	if (!list->used)
		return;
	qsort(list->files, list->used, sizeof(*list->files), compare_paths);
	for (i = 1; i < list->used; i++) {
		struct file_tally *from = &list->files[i];
		struct file_tally *to = &list->files[kept];

		if (strcmp(from->path, to->path) != 0) {
			list->files[++kept] = *from;
			continue;
		}
		to->count += from->count;
		to->bytes += from->bytes;
		to->largest = max_u64(to->largest, from->largest);
		to->most_in_flight = max_u64(to->most_in_flight, from->most_in_flight);
		free(from->path);
	}
	list->used = kept + 1;
}

static int add(struct file_tallies *list, struct file_tally record)
{
	if (list->used == list->room) {
		size_t room = list->room ? list->room * 2 : 64;
		struct file_tally *files = reallocarray(list->files, room, sizeof(*files));

		if (!files)
			return -1;
		list->files = files;
		list->room = room;
	}
	record.path = strdup(record.path);
	if (!record.path)
		return -1;
	list->files[list->used++] = record;
	return 0;
}

void file_tallies_clear(struct file_tallies *list)
{
	size_t i;

	for (i = 0; i < list->used; i++)
		free(list->files[i].path);
	free(list->files);
	*list = (struct file_tallies) { 0 };
}

int file_tallies_add(struct file_tallies *list, const char *path, struct tally *tally)
{
	return add(list, (struct file_tally) {
		.path = (char *)path,
		.count = counter_get(&tally->count),
		.bytes = counter_get(&tally->bytes),
		.largest = counter_get(&tally->largest),
		.most_in_flight = counter_get(&tally->most_in_flight),
	});
}

void retired_add(const char *path, struct tally *tally)
{
	pthread_mutex_lock(&lock);
	if (retired.used == RETIRED_MAX)
		file_tallies_merge(&retired);
	if (retired.used == RETIRED_MAX || file_tallies_add(&retired, path, tally) != 0)
		left_out++;
	pthread_mutex_unlock(&lock);
}

uint64_t retired_copy(struct file_tallies *list)
{
	uint64_t lost;
	size_t i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < retired.used; i++)
		add(list, retired.files[i]);
	lost = left_out;
	pthread_mutex_unlock(&lock);
	return lost;
}

void retired_clear(void)
{
	pthread_mutex_lock(&lock);
	file_tallies_clear(&retired);
	left_out = 0;
	pthread_mutex_unlock(&lock);
}
