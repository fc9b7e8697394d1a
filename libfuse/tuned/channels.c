// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Options from the administrator's files and the environment, for servers whose own parser rejects
 * options that it does not know.
 *
 * Each option is taken from the first of these that has it: the command line, `options` of the most
 * specific section in mounts.d, FUSETUNE_OPTIONS. Sections give none to a mount that one of them
 * leaves alone. A privileged program (AT_SECURE) reads neither files nor environment, because the
 * user who starts it must not configure it. Files and directories that others than root may change
 * are ignored.
 */
#define _GNU_SOURCE

#include "fuse_config.h"
#include "fuse_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define ADMIN_DIR "/etc/fusetune"
#define MOUNTS_DIR ADMIN_DIR "/mounts.d"
#define SUFFIX ".toml"
#define ENVIRONMENT "FUSETUNE_OPTIONS"

/* Much longer than any file written by hand. */
#define LONGEST 65536

int tuned_take_list(struct tuned_options *options, const char *list, const char *where)
{
	while (*list) {
		size_t length = strcspn(list, ",");
		const char *wrong = length ? tuned_take(options, list, length) : NULL;

		if (wrong) {
			fuse_log(FUSE_LOG_ERR, "fuse: %s: %.*s %s\n", where, (int)length, list,
				 wrong);
			return -1;
		}
		list += length;
		list += *list == ',';
	}
	return 0;
}

/* Whether only root can change this. */
static int is_roots(int fd, const char *path, mode_t type)
{
	struct stat st;

	if (fstat(fd, &st) == -1 || (st.st_mode & S_IFMT) != type)
		return 0;
	if (st.st_uid || (st.st_mode & (S_IWGRP | S_IWOTH))) {
		fuse_log(FUSE_LOG_ERR,
			 "fuse: %s is ignored: it is not root's, or others may write to it\n",
			 path);
		return 0;
	}
	return 1;
}

/* Returns the text of a file, which the caller frees, and sets size; NULL if there is none. */
static char *read_file(int dir, const char *name, const char *path, size_t *size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char *text = NULL;
	ssize_t got = 1;

	*size = 0;
	if (fd == -1)
		return NULL;
	if (is_roots(fd, path, S_IFREG))
		text = malloc(LONGEST + 1);
	while (text && got > 0 && *size <= LONGEST) {
		got = read(fd, text + *size, LONGEST + 1 - *size);
		if (got > 0)
			*size += got;
	}
	close(fd);
	if (text && (got == -1 || *size > LONGEST)) {
		fuse_log(FUSE_LOG_ERR, "fuse: %s is ignored: %s\n", path,
			 got == -1 ? strerror(errno) : "longer than 64 KiB");
		free(text);
		text = NULL;
	}
	return text;
}

static int is_section_file(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return length > strlen(SUFFIX) && entry->d_name[0] != '.' &&
	       !strcmp(entry->d_name + length - strlen(SUFFIX), SUFFIX);
}

static int by_name(const struct dirent **one, const struct dirent **other)
{
	return strcmp((*one)->d_name, (*other)->d_name);
}

/* If one file cannot be parsed, all of them are ignored. */
static void find_section(int dir, const struct tuned_about *about, struct tuned_section *best)
{
	struct dirent **names;
	int wrong = 0, count, i;

	count = scandirat(dir, ".", &names, is_section_file, by_name);
	if (count == -1)
		return;
	for (i = 0; i < count; i++) {
		char path[sizeof(MOUNTS_DIR) + 1 + sizeof(names[i]->d_name)];
		unsigned int line = 0;
		size_t size;
		char *text;

		snprintf(path, sizeof(path), MOUNTS_DIR "/%s", names[i]->d_name);
		text = read_file(dir, names[i]->d_name, path, &size);
		if (text)
			line = tuned_find(text, size, about, best);
		if (line)
			fuse_log(FUSE_LOG_ERR,
				 "fuse: %s:%u is not understood; " MOUNTS_DIR " is ignored\n", path,
				 line);
		wrong |= line;
		free(text);
		free(names[i]);
	}
	free(names);
	if (wrong)
		best->found = 0;
}

static void read_sections(const struct tuned_about *about, struct tuned_section *best)
{
	int admin, dir;

	admin = open(ADMIN_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (admin == -1)
		return;
	dir = openat(admin, "mounts.d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir != -1) {
		if (is_roots(admin, ADMIN_DIR, S_IFDIR) && is_roots(dir, MOUNTS_DIR, S_IFDIR))
			find_section(dir, about, best);
		close(dir);
	}
	close(admin);
}

int tuned_read_channels(struct tuned_options *options, const struct tuned_about *about)
{
	struct tuned_options more = { 0 };
	struct tuned_section best = { 0 };
	const char *list;

	if (getauxval(AT_SECURE))
		return 0;
	read_sections(about, &best);
	if (best.found && !best.left_alone &&
	    tuned_take_list(&more, best.options, MOUNTS_DIR) == -1)
		return -1;
	tuned_add(options, &more);
	list = getenv(ENVIRONMENT);
	memset(&more, 0, sizeof(more));
	if (list && tuned_take_list(&more, list, ENVIRONMENT) == -1)
		return -1;
	tuned_add(options, &more);
	return 0;
}
