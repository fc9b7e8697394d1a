// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The inodes that the kernel knows. Each holds an O_PATH descriptor. So a file
 * exists and its inode number is not reused as long as the kernel remembers it, and
 * (dev, ino) identifies it whatever its names are.
 */
#include "mirrorfs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_BUCKETS 1024

_Static_assert(sizeof(fuse_ino_t) >= sizeof(uintptr_t), "a nodeid must hold a pointer");

static struct inode root;
static char *root_path;

static struct {
	pthread_mutex_t lock;
	struct inode **buckets;
	size_t size;	/* power of two */
	size_t used;
	uint64_t generation;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static size_t bucket_of(dev_t dev, ino_t ino, size_t size)
{
	uint64_t key = (uint64_t)ino ^ ((uint64_t)dev << 32) ^ ((uint64_t)dev >> 32);

	return (key * 0x9e3779b97f4a7c15ULL >> 32) & (size - 1);
}

static void table_grow(void)
{
	size_t size = table.size * 2, i;
	struct inode **buckets = calloc(size, sizeof(struct inode *));

	/* Without memory the hash chains grow longer; nothing else changes. */
	if (!buckets)
		return;
	for (i = 0; i < table.size; i++) {
		while (table.buckets[i]) {
			struct inode *inode = table.buckets[i];
			size_t to = bucket_of(inode->dev, inode->ino, size);

			table.buckets[i] = inode->next;
			inode->next = buckets[to];
			buckets[to] = inode;
		}
	}
	free(table.buckets);
	table.buckets = buckets;
	table.size = size;
}

int inode_table_init(const char *source)
{
	struct stat st;

	root.fd = open(source, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root.fd == -1)
		return -1;
	if (fstat(root.fd, &st) == -1)
		goto out_close;
	root.dev = st.st_dev;
	root.ino = st.st_ino;
	root.nlookup = 1;
	table.buckets = calloc(FIRST_BUCKETS, sizeof(struct inode *));
	root_path = strdup(source);
	if (!table.buckets || !root_path)
		goto out_free;
	table.size = FIRST_BUCKETS;
	/* The root can also be looked up, through a bind mount below it. */
	table.buckets[bucket_of(root.dev, root.ino, table.size)] = &root;
	table.used = 1;
	return 0;

out_free:
	free(table.buckets);
	free(root_path);
	table.buckets = NULL;
	root_path = NULL;
out_close:
	close(root.fd);
	return -1;
}

void inode_table_free(void)
{
	size_t i;

	for (i = 0; i < table.size; i++) {
		while (table.buckets[i]) {
			struct inode *inode = table.buckets[i];

			table.buckets[i] = inode->next;
			close(inode->fd);
			if (inode != &root)
				free(inode);
		}
	}
	free(table.buckets);
	free(root_path);
}

struct inode *inode_get(fuse_ino_t nodeid)
{
	return nodeid == FUSE_ROOT_ID ? &root : (struct inode *)(uintptr_t)nodeid;
}

fuse_ino_t inode_nodeid(const struct inode *inode)
{
	return inode == &root ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)inode;
}

struct inode *inode_lookup(int fd, const struct stat *st)
{
	struct inode *inode;
	size_t bucket;

	pthread_mutex_lock(&table.lock);
	bucket = bucket_of(st->st_dev, st->st_ino, table.size);
	for (inode = table.buckets[bucket]; inode; inode = inode->next) {
		if (inode->ino != st->st_ino || inode->dev != st->st_dev)
			continue;
		inode->nlookup++;
		pthread_mutex_unlock(&table.lock);
		close(fd);
		return inode;
	}
	inode = calloc(1, sizeof(*inode));
	if (!inode) {
		pthread_mutex_unlock(&table.lock);
		close(fd);
		return NULL;
	}
	inode->nlookup = 1;
	inode->dev = st->st_dev;
	inode->ino = st->st_ino;
	inode->fd = fd;
	inode->generation = ++table.generation;
	inode->next = table.buckets[bucket];
	table.buckets[bucket] = inode;
	if (++table.used > table.size)
		table_grow();
	pthread_mutex_unlock(&table.lock);
	return inode;
}

void inode_ref(struct inode *inode)
{
	pthread_mutex_lock(&table.lock);
	inode->nlookup++;
	pthread_mutex_unlock(&table.lock);
}

static void table_remove(struct inode *inode)
{
	struct inode **at = &table.buckets[bucket_of(inode->dev, inode->ino, table.size)];

	while (*at != inode)
		at = &(*at)->next;
	*at = inode->next;
	table.used--;
}

void inode_forget(struct inode *inode, uint64_t nlookup)
{
	bool gone;

	pthread_mutex_lock(&table.lock);
	/* The root is never forgotten, however often it was looked up. */
	if (inode == &root) {
		pthread_mutex_unlock(&table.lock);
		return;
	}
	inode->nlookup -= nlookup;
	gone = !inode->nlookup;
	if (gone) {
		table_remove(inode);
		/* Under the lock, so that a document has the file in only one of the two lists. */
		if (atomic_load_explicit(&inode->writes.count, memory_order_relaxed)) {
			char path[PATH_MAX];

			inode_path(inode, path, sizeof(path));
			retired_add(path, &inode->writes);
		}
	}
	pthread_mutex_unlock(&table.lock);
	if (!gone)
		return;
	close(inode->fd);
	free(inode);
}

void inode_path(const struct inode *inode, char *buf, size_t size)
{
	static const char deleted[] = " (deleted)";
	size_t prefix = strlen(root_path);
	char link[64];
	struct stat st;
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", inode->fd);
	length = readlink(link, buf, size - 1);
	if (length < 0)
		length = 0;
	buf[length] = '\0';
	if (fstat(inode->fd, &st) == 0 && !st.st_nlink &&
	    (size_t)length > strlen(deleted) &&
	    strcmp(buf + length - strlen(deleted), deleted) == 0)
		buf[length - (ssize_t)strlen(deleted)] = '\0';
	if (strcmp(root_path, "/") == 0)
		prefix = 0;
	if (strncmp(buf, root_path, prefix) == 0 && buf[prefix] == '/')
		memmove(buf, buf + prefix + 1, strlen(buf + prefix + 1) + 1);
}

void inode_table_lock(void)
{
	pthread_mutex_lock(&table.lock);
}

void inode_table_unlock(void)
{
	pthread_mutex_unlock(&table.lock);
}

void inode_for_each(void (*fn)(struct inode *inode, void *arg), void *arg)
{
	struct inode *inode;
	size_t i;

	for (i = 0; i < table.size; i++)
		for (inode = table.buckets[i]; inode; inode = inode->next)
			fn(inode, arg);
}
