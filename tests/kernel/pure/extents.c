// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Test positions of parallel writes (extend.c). Writers begin and end in any order. Each append is
 * placed after i_size and after all writes in flight, and no two appends overlap.
 */
#include "extend.c"

#define WRITERS 16
#define STEPS 200000
#define LIMIT (1LL << 40)

/* Bytes from `begin` to `end`, in flight or not. */
struct writer {
	struct tuned_write write;
	struct kiocb iocb;
	bool busy, append;
	loff_t begin, end;
};

static struct fuse_conn conn = { .tuned.options.parallel_extend = true };
static struct fuse_inode fi = { .inode.fc = &conn };
static struct file file = { &fi.inode };
static struct writer writers[WRITERS];
static u64 truncated, appends, overlapping, refused;

/* As in the VFS: an append goes to the end of the file, and too large a file is refused. */
ssize_t generic_write_checks(struct kiocb *iocb, struct iov_iter *from)
{
	if (iocb->ki_flags & IOCB_APPEND)
		iocb->ki_pos = fi.inode.i_size;
	if (iocb->ki_pos >= LIMIT)
		return -EFBIG;
	return from->count;
}

static void on_truncate(struct file *of)
{
	assert(of == &file && fi.inode.locked);
	truncated++;
}

static loff_t expected_end(void)
{
	loff_t end = fi.inode.i_size;

	for (int i = 0; i < WRITERS; i++)
		if (writers[i].busy)
			end = max(end, writers[i].end);
	return end;
}

static void begin(struct writer *writer)
{
	struct iov_iter from = { draw(20) ? draw(1 << 20) : 0 };
	loff_t end = expected_end();
	ssize_t res;

	writer->append = draw(2);
	writer->iocb = (struct kiocb) {
		.ki_filp = &file,
		.ki_pos = draw(50) ? (loff_t)draw(1 << 24) : LIMIT + (loff_t)draw(5),
		.ki_flags = writer->append ? IOCB_APPEND : 0,
	};
	res = tuned_write_begin(&writer->write, &writer->iocb, &from);
	assert(!fi.lock.held);
	assert(!!(writer->iocb.ki_flags & IOCB_APPEND) == writer->append);
	if (res <= 0) {
		assert(!writer->write.inode && (res == -EFBIG || !from.count));
		refused += res < 0;
		tuned_write_end(&writer->write);
		return;
	}
	assert(res == (ssize_t)from.count);
	writer->begin = writer->iocb.ki_pos;
	writer->end = writer->begin + res;
	writer->busy = true;
	if (!writer->append)
		return;
	appends++;
	assert(writer->begin == end);
	for (int i = 0; i < WRITERS; i++) {
		if (writers[i].busy && writers + i != writer) {
			assert(writers[i].end <= writer->begin);
			overlapping++;
		}
	}
}

/* A failed write may have to truncate the server's file, but only when no other is in flight. */
static void end(struct writer *writer)
{
	bool failed = !draw(4);
	u64 before = truncated;

	if (failed) {
		tuned_truncate(&writer->iocb, on_truncate);
		assert(truncated == before && writer->write.truncate == on_truncate);
	} else {
		fi.inode.i_size = max(fi.inode.i_size, writer->end);
	}
	tuned_write_end(&writer->write);
	tuned_write_finish(&writer->write);
	assert(truncated == before + failed && !fi.inode.locked && !fi.lock.held);
	writer->busy = false;
}

/* Two writes in flight have the same iocb address: the truncation is for the later one. */
static void one_address_twice(void)
{
	struct kiocb iocb = { .ki_filp = &file };
	struct tuned_write first, second;
	struct iov_iter from = { 100 };

	assert(tuned_write_begin(&first, &iocb, &from) == 100);
	assert(tuned_write_begin(&second, &iocb, &from) == 100);
	tuned_truncate(&iocb, on_truncate);
	assert(second.truncate && !first.truncate);
	tuned_write_end(&second);
	tuned_write_end(&first);
}

static bool writes_back;

bool tuned_writes_back(const struct fuse_conn *fc)
{
	assert(fc == &conn);
	return writes_back;
}

/* These may sleep. */
bool tuned_removes_privs(const struct file *file)
{
	return false;
}

int tuned_past_cache_begin(struct kiocb *iocb)
{
	assert(iocb->ki_filp == &file && !fi.lock.held);
	return 0;
}

void tuned_past_cache_end(struct file *ended)
{
	assert(ended == &file && !fi.lock.held);
}

int main(void)
{
	tuned_init_inode(&fi.tuned);
	for (int step = 0; step < STEPS; step++) {
		struct writer *writer = writers + draw(WRITERS);

		(writer->busy ? end : begin)(writer);
		if (!draw(1000) && fi.inode.i_size > LIMIT / 2)
			fi.inode.i_size = 0;
	}
	for (int i = 0; i < WRITERS; i++)
		if (writers[i].busy)
			end(writers + i);
	assert(fi.tuned.writes.next == &fi.tuned.writes);
	one_address_twice();
	assert(tuned_sent_flags(&conn, O_APPEND | O_RDWR) == O_RDWR);
	conn.tuned.options.parallel_extend = false;
	assert(tuned_sent_flags(&conn, O_APPEND | O_RDWR) == (O_APPEND | O_RDWR));
	writes_back = true;
	assert(tuned_sent_flags(&conn, O_APPEND | O_RDWR) == O_RDWR);
	assert(appends > STEPS / 8 && overlapping > STEPS && truncated && refused);
	printf("%llu appends\n", (unsigned long long)appends);
	return 0;
}
