// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Test a connection's statistics (statistics.c). They show what was counted on any processor. If
 * allocations fail, less is counted, but count and histogram still agree.
 */
#include "statistics.c"

#define PROCESSORS 4
#define REQUESTS 100000

bool (*failing)(void);
u64 now_ns;
unsigned int processor, nr_cpu_ids = PROCESSORS;

static struct fuse_conn conn;
static struct fuse_mount mount = { &conn };
static struct sum expected[OTHER + 1];

static bool one_in_three(void)
{
	return !draw(3);
}

/* The bucket is found by doubling its upper bound, in microseconds. */
static unsigned int bucket_of(u64 time)
{
	unsigned int bucket = 0;

	for (u64 bound = 1000; time >= bound && bucket < BUCKETS - 1; bound *= 2)
		bucket++;
	return bucket;
}

static u32 some_opcode(void)
{
	const u32 odd[] = { 0, 63, 64, 65, 66, 4096, TUNED_HELLO, TUNED_OPEN, TUNED_OPEN + 1, UINT32_MAX };

	return draw(3) ? draw(60) : odd[draw(ARRAY_SIZE(odd))];
}

static unsigned int expected_slot(u32 opcode)
{
	if (opcode == TUNED_HELLO)
		return 64;
	if (opcode == TUNED_OPEN)
		return 65;
	return opcode < 64 ? opcode : 66;
}

static void end_request(void)
{
	struct fuse_req req = {
		.in.h = { .len = sizeof(req.in.h) + draw(9000), .opcode = some_opcode(), .unique = draw(20) },
		.out.h = { .len = sizeof(req.out.h) + draw(9000), .error = draw(4) ? 0 : -EIO },
		.fm = &mount,
	};
	struct sum *to = expected + expected_slot(req.in.h.opcode);
	u64 time = draw(3) ? draw(1ULL << draw(40)) : 1000ULL << draw(30);

	processor = draw(PROCESSORS);
	tuned_request_begin(&req);
	time -= draw(2);
	now_ns += time;
	tuned_request_end(&req);
	if (!req.in.h.unique)
		return;
	to->count++;
	to->latency[bucket_of(time)]++;
	to->sent += req.in.h.len - sizeof(req.in.h);
	to->errors += !!req.out.h.error;
	to->received += req.out.h.error ? 0 : req.out.h.len - sizeof(req.out.h);
	to->time += time;
}

static void one_way(void)
{
	const struct fuse_in_header header = { .len = sizeof(header) + draw(100), .opcode = some_opcode() };
	struct sum *to = expected + expected_slot(header.opcode);

	processor = draw(PROCESSORS);
	tuned_one_way(&conn.iq, &header);
	to->count++;
	to->sent += header.len - sizeof(header);
}

static int count_some(void)
{
	int one_ways = 0;

	for (int i = 0; i < REQUESTS; i++) {
		if (draw(10)) {
			end_request();
		} else {
			one_way();
			one_ways++;
		}
	}
	return one_ways;
}

/* There is a line for each slot with requests, in order, and its numbers agree. */
static u64 read_all(bool exact, u64 *buckets_in_all)
{
	static struct seq_file file;
	u64 in_all = 0;
	char *line;

	file.length = 0;
	assert(!tuned_show_statistics(&file, &conn));
	for (line = strtok(file.text, "\n"); file.length && line; line = strtok(NULL, "\n")) {
		unsigned long long number[5];
		u64 buckets = 0;
		int at;

		assert(sscanf(line, "%*s count %llu errors %llu sent_bytes %llu received_bytes %llu "
			      "time_ns %llu latency_us%n", number, number + 1, number + 2, number + 3,
			      number + 4, &at) == 5);
		for (int bucket = 0; bucket < BUCKETS; bucket++) {
			char *end;

			buckets += strtoull(line + at, &end, 10);
			assert(end > line + at);
			at = end - line;
		}
		assert(!line[at] && number[0] >= buckets);
		in_all += number[0];
		*buckets_in_all += buckets;
	}
	for (unsigned int slot = 0; exact && slot <= OTHER; slot++) {
		const struct sum got = sum(conn.tuned.statistics, slot);

		assert(!memcmp(&got, expected + slot, sizeof(got)));
	}
	return in_all;
}

int main(void)
{
	u64 buckets = 0, in_all;
	int one_ways;

	/* Nothing is counted before the first read. */
	count_some();
	memset(expected, 0, sizeof(expected));
	assert(!read_all(true, &buckets) && !buckets);
	one_ways = count_some();
	in_all = read_all(true, &buckets);
	assert(in_all == buckets + one_ways && buckets > REQUESTS / 2);
	printf("%llu requests\n", (unsigned long long)in_all);
	tuned_statistics_free(&conn);

	conn.tuned.statistics = NULL;
	failing = one_in_three;
	while (!conn.tuned.statistics) {
		struct seq_file file = { .length = 0 };
		int err = tuned_show_statistics(&file, &conn);

		assert(!file.length && err == (conn.tuned.statistics ? 0 : -ENOMEM));
	}
	one_ways = count_some();
	buckets = 0;
	in_all = read_all(false, &buckets);
	assert(in_all <= buckets + one_ways && in_all > REQUESTS / 2);
	tuned_statistics_free(&conn);
	return 0;
}
