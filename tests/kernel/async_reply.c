// SPDX-License-Identifier: GPL-2.0-or-later
/*
* Preloaded into a low-level server, sends replies later and from other threads. The environment
 * variable ASYNC_REPLY has a letter for each kind of reply: x error, e entry, o open, c create. The
 * server's own call returns success before that. With "n", the entry of a file is held back and
 * sent by the thread that replies with the next one.
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

struct reply {
	char kind;
	fuse_req_t req;
	int error;
	struct fuse_entry_param entry;
	struct fuse_file_info file;
};

static int send_now(const struct reply *reply)
{
	int (*error)(fuse_req_t, int);
	int (*entry)(fuse_req_t, const struct fuse_entry_param *);
	int (*open)(fuse_req_t, const struct fuse_file_info *);
	int (*create)(fuse_req_t, const struct fuse_entry_param *, const struct fuse_file_info *);

	switch (reply->kind) {
	case 'x':
		*(void **)&error = dlsym(RTLD_NEXT, "fuse_reply_err");
		return error(reply->req, reply->error);
	case 'e':
		*(void **)&entry = dlsym(RTLD_NEXT, "fuse_reply_entry");
		return entry(reply->req, &reply->entry);
	case 'o':
		*(void **)&open = dlsym(RTLD_NEXT, "fuse_reply_open");
		return open(reply->req, &reply->file);
	default:
		*(void **)&create = dlsym(RTLD_NEXT, "fuse_reply_create");
		return create(reply->req, &reply->entry, &reply->file);
	}
}

static void *send_later(void *arg)
{
	struct reply *reply = arg;

	usleep(2000);
	send_now(reply);
	free(reply);
	return NULL;
}

static struct reply *copy_of(const struct reply *reply)
{
	struct reply *copy = malloc(sizeof(*copy));

	if (!copy)
		abort();
	*copy = *reply;
	return copy;
}

static int send_with_next(const struct reply *reply)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct reply *held;
	struct reply *before;

	pthread_mutex_lock(&lock);
	before = held;
	held = before ? NULL : copy_of(reply);
	pthread_mutex_unlock(&lock);
	if (!before)
		return 0;
	send_now(before);
	free(before);
	return send_now(reply);
}

static int send_or_delay(struct reply reply)
{
	const char *later = getenv("ASYNC_REPLY");
	struct reply *copy;
	pthread_t thread;

	if (later && strchr(later, 'n') && reply.kind == 'e' && S_ISREG(reply.entry.attr.st_mode))
		return send_with_next(&reply);
	if (!later || !strchr(later, reply.kind))
		return send_now(&reply);
	copy = copy_of(&reply);
	if (pthread_create(&thread, NULL, send_later, copy) || pthread_detach(thread))
		abort();
	return 0;
}

int fuse_reply_err(fuse_req_t req, int error)
{
	return send_or_delay((struct reply){ .kind = 'x', .req = req, .error = error });
}

int fuse_reply_entry(fuse_req_t req, const struct fuse_entry_param *entry)
{
	return send_or_delay((struct reply){ .kind = 'e', .req = req, .entry = *entry });
}

int fuse_reply_open(fuse_req_t req, const struct fuse_file_info *file)
{
	return send_or_delay((struct reply){ .kind = 'o', .req = req, .file = *file });
}

int fuse_reply_create(fuse_req_t req, const struct fuse_entry_param *entry,
		      const struct fuse_file_info *file)
{
	return send_or_delay((struct reply){ .kind = 'c', .req = req, .entry = *entry, .file = *file });
}
