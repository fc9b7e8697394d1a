// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Write the counters as one JSON document, to a temporary file that is renamed.
 *
 * One thread at a time writes documents and resets counters: the signal thread while
 * it runs, the main thread before and after.
 */
#include "counters.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static const struct options *options;
static uint64_t sequence;
static uint64_t resets;

void document_init(const struct options *opts)
{
	options = opts;
}

static void reset_inode(struct inode *inode, void *arg)
{
	(void)arg;
	tally_reset(&inode->writes);
}

void document_reset(void)
{
	counters_reset();
	throttle_reset();
	inode_table_lock();
	inode_for_each(reset_inode, NULL);
	retired_clear();
	inode_table_unlock();
	resets++;
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
	/* Overlong forms, surrogates, and code points above U+10FFFF. */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	for (i = 1; i < length; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

/*
 * File names are bytes, JSON is UTF-8. A byte that is not part of valid UTF-8
 * becomes a lone surrogate U+DC80..U+DCFF, which Python's os.fsencode() reverses.
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
		(unsigned long long)counter_get(&tally->count), (unsigned long long)counter_get(&tally->bytes),
		(unsigned long long)counter_get(&tally->largest),
		(unsigned long long)counter_get(&tally->in_flight),
		(unsigned long long)counter_get(&tally->most_in_flight),
		(unsigned long long)counter_get(&counter->errors));
}

static void write_files(FILE *out, const struct file_tallies *list)
{
	size_t i;

	fputs("  \"write_files\": {", out);
	for (i = 0; i < list->used; i++) {
		const struct file_tally *file = &list->files[i];

		fputs(i ? ",\n    " : "\n    ", out);
		write_string(out, file->path);
		fprintf(out, ": {\"count\": %llu, \"bytes\": %llu, \"largest_bytes\": %llu, "
			"\"most_in_flight\": %llu}",
			(unsigned long long)file->count, (unsigned long long)file->bytes,
			(unsigned long long)file->largest,
			(unsigned long long)file->most_in_flight);
	}
	fputs(list->used ? "\n  },\n" : "},\n", out);
}

static void collect_inode(struct inode *inode, void *arg)
{
	struct file_tallies *list = arg;
	char path[PATH_MAX];

	if (!counter_get(&inode->writes.count))
		return;
	inode_path(inode, path, sizeof(path));
	file_tallies_add(list, path, &inode->writes);
}

/* Collects the tallies of all files. Returns how many forgotten files are missing. */
static uint64_t collect_files(struct file_tallies *files)
{
	uint64_t left_out;

	/* Under the lock no file can move from the table to the forgotten ones. */
	inode_table_lock();
	inode_for_each(collect_inode, files);
	left_out = retired_copy(files);
	inode_table_unlock();
	file_tallies_merge(files);
	return left_out;
}

static void write_head(FILE *out, bool final)
{
	fprintf(out, "{\n  \"schema\": \"mirrorfs.counters/1\",\n"
		"  \"sequence\": %llu,\n  \"resets\": %llu,\n  \"final\": %s,\n  \"pid\": %d,\n",
		(unsigned long long)++sequence, (unsigned long long)resets,
		final ? "true" : "false", (int)getpid());
	fputs("  \"libfuse\": ", out);
	write_string(out, fuse_pkgversion());
	fputs(",\n  \"source\": ", out);
	write_string(out, options->source);
	fputs(",\n  \"mountpoint\": ", out);
	write_string(out, options->mountpoint);
	fputs(",\n", out);
}

static void write_document(FILE *out, bool final)
{
	struct file_tallies files = { 0 };
	unsigned long long left_out = collect_files(&files);
	struct negotiated init = counters_init_reply();
	struct throttle_state throttle;
	int op;

	throttle_state(&throttle);
	write_head(out, final);
	write_negotiated(out, &init);
	fprintf(out, "  \"throttle\": {\"most_in_service\": %llu, \"most_waiting\": %llu},\n",
		(unsigned long long)throttle.most_in_service,
		(unsigned long long)throttle.most_waiting);
	fputs("  \"all\": ", out);
	write_counter(out, counters_of(OP_ALL));
	fputs(",\n  \"ops\": {", out);
	for (op = 0; op < OP_COUNT; op++) {
		fprintf(out, "%s\n    \"%s\": ", op ? "," : "", op_names[op]);
		write_counter(out, counters_of(op));
	}
	fputs("\n  },\n", out);
	write_files(out, &files);
	fprintf(out, "  \"write_files_left_out\": %llu\n}\n", left_out);
	file_tallies_clear(&files);
}

void document_write(bool final)
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
