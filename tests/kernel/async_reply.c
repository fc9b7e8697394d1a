// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded into a low-level server, it has other threads answer: errors, entries, opens and
 * creations, those whose letters the environment's ASYNC_REPLY has. The server is told of success before.
 * With "n", a file's entry is answered while the next one is, by the same thread.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 317

#include <dlfcn.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct answer {
	char kind;
	fuse_req_t req;
	int error;
	struct fuse_entry_param entry;
	struct fuse_file_info file;
};

static int give(const struct answer *answer)
{
	int (*error)(fuse_req_t, int);
	int (*entry)(fuse_req_t, const struct fuse_entry_param *);
	int (*open)(fuse_req_t, const struct fuse_file_info *);
	int (*create)(fuse_req_t, const struct fuse_entry_param *, const struct fuse_file_info *);

	switch (answer->kind) {
	case 'x':
		*(void **)&error = dlsym(RTLD_NEXT, "fuse_reply_err");
		return error(answer->req, answer->error);
	case 'e':
		*(void **)&entry = dlsym(RTLD_NEXT, "fuse_reply_entry");
		return entry(answer->req, &answer->entry);
	case 'o':
		*(void **)&open = dlsym(RTLD_NEXT, "fuse_reply_open");
		return open(answer->req, &answer->file);
	default:
		*(void **)&create = dlsym(RTLD_NEXT, "fuse_reply_create");
		return create(answer->req, &answer->entry, &answer->file);
	}
}

static void *give_later(void *arg)
{
	struct answer *answer = arg;

	usleep(2000);
	give(answer);
	free(answer);
	return NULL;
}

static struct answer *copy_of(const struct answer *answer)
{
	struct answer *copy = malloc(sizeof(*copy));

	if (!copy)
		abort();
	*copy = *answer;
	return copy;
}

static int give_with_next(const struct answer *answer)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct answer *held;
	struct answer *before;

	pthread_mutex_lock(&lock);
	before = held;
	held = before ? NULL : copy_of(answer);
	pthread_mutex_unlock(&lock);
	if (!before)
		return 0;
	give(before);
	free(before);
	return give(answer);
}

static int reply(struct answer answer)
{
	const char *later = getenv("ASYNC_REPLY");
	struct answer *copy;
	pthread_t thread;

	if (later && strchr(later, 'n') && answer.kind == 'e' && S_ISREG(answer.entry.attr.st_mode))
		return give_with_next(&answer);
	if (!later || !strchr(later, answer.kind))
		return give(&answer);
	copy = copy_of(&answer);
	if (pthread_create(&thread, NULL, give_later, copy) || pthread_detach(thread))
		abort();
	return 0;
}

int fuse_reply_err(fuse_req_t req, int error)
{
	return reply((struct answer){ .kind = 'x', .req = req, .error = error });
}

int fuse_reply_entry(fuse_req_t req, const struct fuse_entry_param *entry)
{
	return reply((struct answer){ .kind = 'e', .req = req, .entry = *entry });
}

int fuse_reply_open(fuse_req_t req, const struct fuse_file_info *file)
{
	return reply((struct answer){ .kind = 'o', .req = req, .file = *file });
}

int fuse_reply_create(fuse_req_t req, const struct fuse_entry_param *entry,
		      const struct fuse_file_info *file)
{
	return reply((struct answer){ .kind = 'c', .req = req, .entry = *entry, .file = *file });
}
