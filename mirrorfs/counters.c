// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the kernel asked for: counted with relaxed atomics on a cache line per
 * kind of request, written as one JSON document by temporary file and rename.
 */
#include "mirrorfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Forgotten files whose tally is kept; past it only the number left out. */
#define RETIRED_MAX 65536

static const char *const op_names[OP_COUNT] = {
	[OP_LOOKUP] = "LOOKUP", [OP_FORGET] = "FORGET", [OP_GETATTR] = "GETATTR",
	[OP_SETATTR] = "SETATTR", [OP_READLINK] = "READLINK", [OP_SYMLINK] = "SYMLINK",
	[OP_MKNOD] = "MKNOD", [OP_MKDIR] = "MKDIR", [OP_UNLINK] = "UNLINK",
	[OP_RMDIR] = "RMDIR", [OP_RENAME] = "RENAME", [OP_LINK] = "LINK",
	[OP_OPEN] = "OPEN", [OP_READ] = "READ", [OP_WRITE] = "WRITE",
	[OP_STATFS] = "STATFS", [OP_RELEASE] = "RELEASE", [OP_FSYNC] = "FSYNC",
	[OP_SETXATTR] = "SETXATTR", [OP_GETXATTR] = "GETXATTR",
	[OP_LISTXATTR] = "LISTXATTR", [OP_REMOVEXATTR] = "REMOVEXATTR",
	[OP_FLUSH] = "FLUSH", [OP_OPENDIR] = "OPENDIR", [OP_READDIR] = "READDIR",
	[OP_READDIRPLUS] = "READDIRPLUS", [OP_RELEASEDIR] = "RELEASEDIR",
	[OP_FSYNCDIR] = "FSYNCDIR", [OP_CREATE] = "CREATE",
	[OP_FALLOCATE] = "FALLOCATE", [OP_LSEEK] = "LSEEK",
	[OP_COPY_FILE_RANGE] = "COPY_FILE_RANGE",
	[OP_TUNED_HELLO] = "TUNED_HELLO", [OP_TUNED_OPEN] = "TUNED_OPEN",
};

static const struct {
	uint64_t bit;
	const char *name;
} capabilities[] = {
	{ FUSE_CAP_ASYNC_READ, "async_read" },
	{ FUSE_CAP_POSIX_LOCKS, "posix_locks" },
	{ FUSE_CAP_ATOMIC_O_TRUNC, "atomic_o_trunc" },
	{ FUSE_CAP_EXPORT_SUPPORT, "export_support" },
	{ FUSE_CAP_DONT_MASK, "dont_mask" },
	{ FUSE_CAP_SPLICE_WRITE, "splice_write" },
	{ FUSE_CAP_SPLICE_MOVE, "splice_move" },
	{ FUSE_CAP_SPLICE_READ, "splice_read" },
	{ FUSE_CAP_FLOCK_LOCKS, "flock_locks" },
	{ FUSE_CAP_IOCTL_DIR, "ioctl_dir" },
	{ FUSE_CAP_AUTO_INVAL_DATA, "auto_inval_data" },
	{ FUSE_CAP_READDIRPLUS, "readdirplus" },
	{ FUSE_CAP_READDIRPLUS_AUTO, "readdirplus_auto" },
	{ FUSE_CAP_ASYNC_DIO, "async_dio" },
	{ FUSE_CAP_WRITEBACK_CACHE, "writeback_cache" },
	{ FUSE_CAP_NO_OPEN_SUPPORT, "no_open_support" },
	{ FUSE_CAP_PARALLEL_DIROPS, "parallel_dirops" },
	{ FUSE_CAP_POSIX_ACL, "posix_acl" },
	{ FUSE_CAP_HANDLE_KILLPRIV, "handle_killpriv" },
	{ FUSE_CAP_CACHE_SYMLINKS, "cache_symlinks" },
	{ FUSE_CAP_NO_OPENDIR_SUPPORT, "no_opendir_support" },
	{ FUSE_CAP_EXPLICIT_INVAL_DATA, "explicit_inval_data" },
	{ FUSE_CAP_EXPIRE_ONLY, "expire_only" },
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
	{ FUSE_CAP_HANDLE_KILLPRIV_V2, "handle_killpriv_v2" },
#endif
#ifdef FUSE_CAP_SETXATTR_EXT
	{ FUSE_CAP_SETXATTR_EXT, "setxattr_ext" },
#endif
#ifdef FUSE_CAP_DIRECT_IO_ALLOW_MMAP
	{ FUSE_CAP_DIRECT_IO_ALLOW_MMAP, "direct_io_allow_mmap" },
#endif
#ifdef FUSE_CAP_PASSTHROUGH
	{ FUSE_CAP_PASSTHROUGH, "passthrough" },
#endif
#ifdef FUSE_CAP_NO_EXPORT_SUPPORT
	{ FUSE_CAP_NO_EXPORT_SUPPORT, "no_export_support" },
#endif
#ifdef FUSE_CAP_OVER_IO_URING
	{ FUSE_CAP_OVER_IO_URING, "over_io_uring" },
#endif
};

struct op_counter {
	_Alignas(64) struct tally tally;
	_Atomic uint64_t errors;
};

/* A tally at rest. */
struct file_record {
	char *path;
	uint64_t count;
	uint64_t bytes;
	uint64_t largest;
	uint64_t most_in_flight;
};

struct file_list {
	struct file_record *records;
	size_t used;
	size_t room;
};

struct negotiated {
	bool known;
	unsigned int proto_major, proto_minor;
	unsigned int max_write, max_readahead;
	unsigned int max_background, congestion_threshold;
	uint64_t capable, want;
};

static struct op_counter counters[OP_COUNT];
static struct op_counter all_requests;

/* Everything below is under this lock. It nests inside the inode table's. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file_list retired;
static uint64_t left_out;
static struct negotiated negotiated;
static uint64_t resets;

/* Documents are written by one thread at a time: the signals' while it runs. */
static const struct options *options;
static uint64_t sequence;

static void raise_to(_Atomic uint64_t *most, uint64_t value)
{
	uint64_t seen = atomic_load_explicit(most, memory_order_relaxed);

	while (value > seen &&
	       !atomic_compare_exchange_weak_explicit(most, &seen, value, memory_order_relaxed,
						      memory_order_relaxed))
		;
}

static uint64_t get(_Atomic uint64_t *counter)
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
	set(&tally->most_in_flight, get(&tally->in_flight));
}

void counters_begin(enum opcode op, uint64_t bytes)
{
	tally_begin(&counters[op].tally, bytes);
	tally_begin(&all_requests.tally, bytes);
}

/*
 * Called before the answer leaves: a client that has its answer may send the
 * next request at once, and one client at a time must show as one in flight.
 */
void counters_end(enum opcode op, bool failed)
{
	if (failed) {
		atomic_fetch_add_explicit(&counters[op].errors, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&all_requests.errors, 1, memory_order_relaxed);
	}
	tally_end(&counters[op].tally);
	tally_end(&all_requests.tally);
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
	/* As libfuse does after this in its answer. */
	if (!negotiated.congestion_threshold)
		negotiated.congestion_threshold = negotiated.max_background * 3 / 4;
	pthread_mutex_unlock(&lock);
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(((const struct file_record *)a)->path,
		      ((const struct file_record *)b)->path);
}

/* One record a path: a file may come and go many times, or be made anew. */
static void file_list_merge(struct file_list *list)
{
	size_t i, kept = 0;

	if (!list->used)
		return;
	qsort(list->records, list->used, sizeof(*list->records), compare_paths);
	for (i = 1; i < list->used; i++) {
		struct file_record *from = &list->records[i];
		struct file_record *to = &list->records[kept];

		if (strcmp(from->path, to->path) != 0) {
			list->records[++kept] = *from;
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

static int file_list_add(struct file_list *list, struct file_record record)
{
	if (list->used == list->room) {
		size_t room = list->room ? list->room * 2 : 64;
		struct file_record *records = reallocarray(list->records, room, sizeof(*records));

		if (!records)
			return -1;
		list->records = records;
		list->room = room;
	}
	record.path = strdup(record.path);
	if (!record.path)
		return -1;
	list->records[list->used++] = record;
	return 0;
}

static void file_list_clear(struct file_list *list)
{
	size_t i;

	for (i = 0; i < list->used; i++)
		free(list->records[i].path);
	free(list->records);
	*list = (struct file_list) { 0 };
}

static struct file_record record_of(char *path, struct tally *tally)
{
	return (struct file_record) {
		.path = path,
		.count = get(&tally->count),
		.bytes = get(&tally->bytes),
		.largest = get(&tally->largest),
		.most_in_flight = get(&tally->most_in_flight),
	};
}

void counters_retire(const char *path, struct tally *tally)
{
	pthread_mutex_lock(&lock);
	if (retired.used == RETIRED_MAX)
		file_list_merge(&retired);
	if (retired.used == RETIRED_MAX ||
	    file_list_add(&retired, record_of((char *)path, tally)) != 0)
		left_out++;
	pthread_mutex_unlock(&lock);
}

static void reset_inode(struct inode *inode, void *arg)
{
	(void)arg;
	tally_reset(&inode->writes);
}

void counters_reset(void)
{
	int op;

	for (op = 0; op < OP_COUNT; op++) {
		tally_reset(&counters[op].tally);
		set(&counters[op].errors, 0);
	}
	tally_reset(&all_requests.tally);
	set(&all_requests.errors, 0);
	throttle_reset();
	inode_table_lock();
	inode_for_each(reset_inode, NULL);
	pthread_mutex_lock(&lock);
	file_list_clear(&retired);
	left_out = 0;
	resets++;
	pthread_mutex_unlock(&lock);
	inode_table_unlock();
}

static size_t utf8_length(const unsigned char *s)
{
	size_t i, length;

	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		length = 2;
	else if (s[0] >= 0xe0 && s[0] <= 0xef)
		length = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		length = 4;
	else
		return 0;
	/* Overlong forms, surrogates and what lies past U+10FFFF. */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	for (i = 1; i < length; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

/*
 * A file name is bytes, JSON is UTF-8: a byte that fits nowhere becomes a lone
 * surrogate U+DC80..U+DCFF, which Python's os.fsencode() turns back.
 */
static void write_string(FILE *out, const char *string)
{
	const unsigned char *s = (const unsigned char *)string;

	fputc('"', out);
	while (*s) {
		size_t length;

		if (*s == '"' || *s == '\\') {
			fprintf(out, "\\%c", *s++);
		} else if (*s < 0x20) {
			fprintf(out, "\\u%04x", *s++);
		} else if (*s < 0x80) {
			fputc(*s++, out);
		} else if ((length = utf8_length(s)) > 0) {
			fwrite(s, 1, length, out);
			s += length;
		} else {
			fprintf(out, "\\udc%02x", *s++);
		}
	}
	fputc('"', out);
}

static void write_capabilities(FILE *out, const char *name, uint64_t flags)
{
	const char *separator = "";
	size_t i;

	fprintf(out, "    \"%s_value\": %llu,\n    \"%s\": [", name,
		(unsigned long long)flags, name);
	for (i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++) {
		if (!(flags & capabilities[i].bit))
			continue;
		fprintf(out, "%s\"%s\"", separator, capabilities[i].name);
		separator = ", ";
	}
	fputc(']', out);
}

static void write_negotiated(FILE *out, const struct negotiated *init)
{
	if (!init->known) {
		fputs("  \"init\": null,\n", out);
		return;
	}
	fprintf(out, "  \"init\": {\n"
		"    \"proto_major\": %u,\n    \"proto_minor\": %u,\n"
		"    \"max_write\": %u,\n    \"max_readahead\": %u,\n"
		"    \"max_background\": %u,\n    \"congestion_threshold\": %u,\n",
		init->proto_major, init->proto_minor, init->max_write, init->max_readahead,
		init->max_background, init->congestion_threshold);
	write_capabilities(out, "capable", init->capable);
	fputs(",\n", out);
	write_capabilities(out, "want", init->want);
	fputs("\n  },\n", out);
}

static void write_counter(FILE *out, struct op_counter *counter)
{
	struct tally *tally = &counter->tally;

	fprintf(out, "{\"count\": %llu, \"bytes\": %llu, \"largest_bytes\": %llu, "
		"\"in_flight\": %llu, \"most_in_flight\": %llu, \"errors\": %llu}",
		(unsigned long long)get(&tally->count), (unsigned long long)get(&tally->bytes),
		(unsigned long long)get(&tally->largest),
		(unsigned long long)get(&tally->in_flight),
		(unsigned long long)get(&tally->most_in_flight),
		(unsigned long long)get(&counter->errors));
}

static void write_files(FILE *out, const struct file_list *list)
{
	size_t i;

	fputs("  \"write_files\": {", out);
	for (i = 0; i < list->used; i++) {
		const struct file_record *record = &list->records[i];

		fputs(i ? ",\n    " : "\n    ", out);
		write_string(out, record->path);
		fprintf(out, ": {\"count\": %llu, \"bytes\": %llu, \"largest_bytes\": %llu, "
			"\"most_in_flight\": %llu}",
			(unsigned long long)record->count, (unsigned long long)record->bytes,
			(unsigned long long)record->largest,
			(unsigned long long)record->most_in_flight);
	}
	fputs(list->used ? "\n  },\n" : "},\n", out);
}

static void collect_inode(struct inode *inode, void *arg)
{
	struct file_list *list = arg;
	char path[PATH_MAX];

	if (!get(&inode->writes.count))
		return;
	inode_path(inode, path, sizeof(path));
	file_list_add(list, record_of(path, &inode->writes));
}

static void collect_retired(struct file_list *list)
{
	size_t i;

	for (i = 0; i < retired.used; i++)
		file_list_add(list, retired.records[i]);
}

static void write_document(FILE *out, bool final)
{
	struct file_list files = { 0 };
	struct throttle_state throttle;
	struct negotiated init;
	unsigned long long lost, zeroed;
	int op;

	/* No file may move from the table to the retired ones in between. */
	inode_table_lock();
	inode_for_each(collect_inode, &files);
	pthread_mutex_lock(&lock);
	collect_retired(&files);
	lost = left_out;
	zeroed = resets;
	init = negotiated;
	pthread_mutex_unlock(&lock);
	inode_table_unlock();
	file_list_merge(&files);
	throttle_state(&throttle);

	fprintf(out, "{\n  \"schema\": \"mirrorfs.counters/1\",\n"
		"  \"sequence\": %llu,\n  \"resets\": %llu,\n  \"final\": %s,\n  \"pid\": %d,\n",
		(unsigned long long)++sequence, zeroed, final ? "true" : "false", (int)getpid());
	fputs("  \"libfuse\": ", out);
	write_string(out, fuse_pkgversion());
	fputs(",\n  \"source\": ", out);
	write_string(out, options->source);
	fputs(",\n  \"mountpoint\": ", out);
	write_string(out, options->mountpoint);
	fputs(",\n", out);
	write_negotiated(out, &init);
	fprintf(out, "  \"throttle\": {\"most_in_service\": %llu, \"most_waiting\": %llu},\n",
		(unsigned long long)throttle.most_in_service,
		(unsigned long long)throttle.most_waiting);
	fputs("  \"all\": ", out);
	write_counter(out, &all_requests);
	fputs(",\n  \"ops\": {", out);
	for (op = 0; op < OP_COUNT; op++) {
		fprintf(out, "%s\n    \"%s\": ", op ? "," : "", op_names[op]);
		write_counter(out, &counters[op]);
	}
	fputs("\n  },\n", out);
	write_files(out, &files);
	fprintf(out, "  \"write_files_left_out\": %llu\n}\n", lost);
	file_list_clear(&files);
}

void counters_write(bool final)
{
	char *temporary = NULL;
	FILE *out = NULL;
	int fd = -1, failed;

	if (!options->counters)
		return;
	if (asprintf(&temporary, "%s.XXXXXX", options->counters) == -1) {
		temporary = NULL;
		goto out_error;
	}
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd == -1)
		goto out_error;
	out = fdopen(fd, "w");
	if (!out)
		goto out_unlink;
	fd = -1;
	write_document(out, final);
	fchmod(fileno(out), 0644);
	failed = ferror(out);
	if (fclose(out) != 0 || failed)
		goto out_unlink;
	if (rename(temporary, options->counters) == -1)
		goto out_unlink;
	free(temporary);
	return;

out_unlink:
	if (fd != -1)
		close(fd);
	unlink(temporary);
out_error:
	fprintf(stderr, "mirrorfs: %s: cannot write the counters: %s\n", options->counters,
		strerror(errno));
	free(temporary);
}

void counters_init(const struct options *opts)
{
	options = opts;
}

void counters_free(void)
{
	file_list_clear(&retired);
}
