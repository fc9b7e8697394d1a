// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Test the values of max_pages: as a mount option, as the module's parameter, and after INIT. Texts
 * and numbers are drawn near the limits. The expected results are computed independently here.
 */
#include "fuse_i.h"

/* Functions that, of the pure parts, only options.c and connection.c call. */
#define FUSE_DEFAULT_MAX_PAGES_PER_REQ 32
#define XATTR_NAME_CAPS "security.capability"
#define FOPEN_PARALLEL_DIRECT_WRITES (1 << 6)
#define CAP_SYS_ADMIN 21
#define ENOPARAM 519
#define MODULE_STATE_LIVE 0
#define THIS_MODULE (&module)
#define IS_ERR(at) ((unsigned long)(at) >= -4095UL)
#define PTR_ERR(at) ((long)(at))
#define PTR_ERR_OR_ZERO(at) (IS_ERR(at) ? (int)PTR_ERR(at) : 0)
#define FS_CONTEXT_FOR_MOUNT 0
#define module_param_cb(name, ops, at, mode) static const void *const cb_##name = (ops)
#define module_param(name, type, mode) static bool *const param_##name = &(name)
#define __MODULE_PARM_TYPE(name, type) static_assert(sizeof(type))
#define MODULE_PARM_DESC(name, text) static_assert(sizeof(text))
#define param_get_uint NULL
#define fsparam_flag(word, number) { word, number, false }
#define fsparam_u32(word, number) { word, number, true }
#define invalfc(fsc, ...) ((void)(fsc), snprintf(said, sizeof(said), __VA_ARGS__), -EINVAL)
#define capable(what) is_capable

struct kernel_param {
	int unused;
};

struct kernel_param_ops {
	int (*set)(const char *text, const struct kernel_param *param);
	int (*get)(char *text, const struct kernel_param *param);
};

struct user_namespace {
	int unused;
};

struct fs_context {
	struct user_namespace *user_ns;
	int purpose;
};

struct fs_parameter {
	const char *key, *text;
};

struct fs_parameter_spec {
	const char *word;
	int number;
	bool has_value;
};

struct fs_parse_result {
	unsigned int uint_32;
};

struct module {
	int state;
};

struct file_system_type {
	struct module *owner;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

static struct module module;
static struct user_namespace init_user_ns;
static unsigned int fuse_max_pages_limit = 256;
static char said[256], pipe_text[32];
static bool is_capable;
static int pipe_error;

static int kstrtouint(const char *text, unsigned int base, unsigned int *number)
{
	const char *digits = text + (*text == '+');
	unsigned long long value;
	char *end;

	if (!isdigit((unsigned char)*digits))
		return -EINVAL;
	errno = 0;
	value = strtoull(digits, &end, base);
	if (end == digits || (*end && strcmp(end, "\n")))
		return -EINVAL;
	if (errno || value > UINT_MAX)
		return -ERANGE;
	*number = value;
	return 0;
}

static char *strim(char *text)
{
	text[strcspn(text, "\n")] = 0;
	return text;
}

static ssize_t kernel_read(struct file *file, void *into, size_t size, loff_t *pos)
{
	size_t length = min(strlen(pipe_text), size);

	assert(!*pos && file == NULL);
	if (pipe_error)
		return pipe_error;
	memcpy(into, pipe_text, length);
	return length;
}

static int fs_parse(struct fs_context *fsc, const struct fs_parameter_spec *specs,
		    struct fs_parameter *param, struct fs_parse_result *result)
{
	for (; specs->word; specs++) {
		if (strcmp(specs->word, param->key))
			continue;
		if (specs->has_value != !!param->text)
			return -EINVAL;
		if (param->text && kstrtouint(param->text, 0, &result->uint_32))
			return -EINVAL;
		return specs->number;
	}
	(void)fsc;
	return -ENOPARAM;
}

/* The kernel mounts and opens the file. These are only declared and never called. */
#define ELSEWHERE __attribute__((weak))
ELSEWHERE struct file_system_type *get_fs_type(const char *name);
ELSEWHERE struct vfsmount *kern_mount(struct file_system_type *type);
ELSEWHERE void kern_unmount(struct vfsmount *mount);
ELSEWHERE void module_put(struct module *owner);
ELSEWHERE struct file *file_open_root(const struct path *root, const char *name, int flags,
				      umode_t mode);
ELSEWHERE void fput(struct file *file);
ELSEWHERE void kernel_param_lock(struct module *module);
ELSEWHERE void kernel_param_unlock(struct module *module);
ELSEWHERE int fuse_init_fs_context(struct fs_context *fsc);
ELSEWHERE int fuse_get_tree(struct fs_context *fsc);

#include "options.c"
#include "connection.c"

#define TURNS 200000

static unsigned int pipe_holds(void)
{
	unsigned long long pages = strtoull(pipe_text, NULL, 10) / 4096;

	return min(pages, 65535ULL);
}

static unsigned int near_limits(void)
{
	const unsigned int near[] = {
		0, 1, 31, 32, 33, 255, 256, 257, 65534, 65535, 65536, INT_MAX, UINT_MAX,
		pipe_holds(), pipe_holds() + 1,
	};

	return draw(4) ? near[draw(ARRAY_SIZE(near))] : draw(70000);
}

/* Changes fs.pipe-max-size, or makes reading it fail. */
static void change_pipe(void)
{
	snprintf(pipe_text, sizeof(pipe_text), "%llu\n", 4096ULL << draw(20));
	pipe_error = draw(20) ? 0 : -EIO;
}

static void set_parameter(void)
{
	unsigned int wanted = near_limits(), before = max_pages_per_req;
	bool live = draw(4), right;
	char text[32];
	int err;

	snprintf(text, sizeof(text), draw(2) ? "%u\n" : "0x%x", wanted);
	module.state = live ? MODULE_STATE_LIVE : MODULE_STATE_LIVE + 1;
	err = set_max_pages_per_req(text, NULL);
	right = !wanted || (wanted >= 32 && wanted <= (live ? pipe_holds() : 65535));
	if (live && pipe_error && wanted)
		assert(err == pipe_error);
	else
		assert(err == (right ? 0 : -EINVAL));
	assert(max_pages_per_req == (err ? before : wanted));
}

static void parse_option(void)
{
	unsigned int wanted = near_limits();
	unsigned int most = max_pages_per_req ?: fuse_max_pages_limit;
	char text[32];
	struct fs_parameter param = { "max_pages", text };
	struct tuned_options options = {};
	int err;

	is_capable = draw(2);
	snprintf(text, sizeof(text), "%u", wanted);
	if (is_capable)
		most = pipe_holds();
	else
		most = min(most, pipe_error ? fuse_max_pages_limit : pipe_holds());
	err = tuned_parse_param(NULL, &param, &options);
	if (is_capable && pipe_error)
		assert(err == pipe_error);
	else
		assert(err == (wanted && wanted <= most ? 0 : -EINVAL));
	assert(options.max_pages == (err ? 0 : wanted));
	if (!err)
		assert(tuned_parse_param(NULL, &param, &options) == -EINVAL);
}

/* The pages of a mount: from the option, the parameter or stock, in this order. */
static void negotiate(void)
{
	struct fuse_conn conn = { .max_pages_limit = fuse_max_pages_limit, .max_pages = near_limits() };
	struct fuse_mount mount = { &conn };
	struct tuned_options options = { .max_pages = draw(2) ? 0 : 1 + draw(65535) };
	unsigned int limit = options.max_pages, asked = conn.max_pages;

	if (!limit && max_pages_per_req)
		limit = min(max_pages_per_req, pipe_error ? fuse_max_pages_limit : pipe_holds());
	if (!limit)
		limit = fuse_max_pages_limit;
	tuned_fill_super(&conn, &options);
	assert(conn.max_pages_limit == limit);
	tuned_negotiated(&mount);
	assert(conn.max_pages == min(asked, limit) && conn.tuned.max_pages == conn.max_pages);
	assert(conn.tuned.negotiated);
}

static void shown_as_given(void)
{
	const char *const words[] = {
		"atomic_open", "no_file_caps", "parallel_direct_writes", "parallel_extend",
	};

	for (unsigned int given = 0; given < 16; given++) {
		static struct seq_file file;
		struct fuse_conn conn = {};

		for (int i = 0; i < 4; i++) {
			struct fs_parameter param = { words[i], NULL };

			if (given & 1 << i)
				assert(!tuned_parse_param(NULL, &param, &conn.tuned.options));
		}
		file.length = 0;
		tuned_show_options(&file, &conn);
		for (int i = 0; i < 4; i++)
			assert(!!strstr(file.text, words[i]) ==
			       !!(given & 1 << i || (i == 2 && given & 1 << 3)) || !file.length);
		assert(!!file.length == !!given);
	}
}

void tuned_negotiate_open(struct fuse_conn *fc)
{
	assert(!fc->tuned.negotiated);
}

void tuned_notes_alloc(struct fuse_conn *fc)
{
	(void)fc;
}

void tuned_force_limits(struct fuse_mount *fm)
{
	assert(!fm->fc->tuned.negotiated);
}

int tuned_parse_forced(struct fs_context *fsc, struct fs_parameter *param,
		       struct tuned_options *options)
{
	(void)fsc, (void)param, (void)options;
	return -ENOPARAM;
}

const char *tuned_forced_text(enum tuned_forced option, unsigned int value,
			      char text[TUNED_FORCED_TEXT])
{
	(void)option, (void)value, (void)text;
	abort();
}

int main(void)
{
	struct fs_parameter unknown = { "rootmode", "40000" };
	struct tuned_options options = {};

	for (int turn = 0; turn < TURNS; turn++) {
		change_pipe();
		set_parameter();
		parse_option();
		negotiate();
	}
	shown_as_given();
	assert(tuned_parse_param(NULL, &unknown, &options) == -ENOPARAM);
	printf("%d turns\n", TURNS);
	return 0;
}
