/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shared by the files that parse and check the command line.
 */
#ifndef MIRRORFS_OPTIONS_H
#define MIRRORFS_OPTIONS_H

#include "mirrorfs.h"

#define KIB 1024ULL
#define MIB (KIB * KIB)

/* values.c */
int parse_number(const char *text, uint64_t *value);
int parse_size(const char *text, uint64_t *value);
/* Both in nanoseconds. A duration needs a unit. */
int parse_duration(const char *text, uint64_t *value);
int parse_seconds(const char *text, uint64_t *value);
int parse_splice(const char *text, unsigned int *splice);
int parse_atomic_open(const char *text, enum atomic_open *value);

/* check.c */

/* Prints one line on stderr and returns EXIT_USAGE. */
int usage_error(const char *what, const char *why, const char *remedy);
/* Resolves the paths. Returns 0, or the exit status after one line on stderr. */
int options_check(struct options *opts);

#endif
