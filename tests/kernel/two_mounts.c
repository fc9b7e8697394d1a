// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two mounts, served by one thread. The file in each says which mount it is in. The reply to the
 * first lookup in the second mount is sent while the next one in the first mount is served.
 */
#define FUSE_USE_VERSION 314

#include <errno.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>

#define FILE_NODE 2

static fuse_req_t held;

static struct stat attributes(fuse_ino_t node)
{
	struct stat stat = { .st_ino = node, .st_mode = S_IFDIR | 0755, .st_nlink = 2 };

	if (node == FILE_NODE)
		stat.st_mode = S_IFREG | 0644;
	return stat;
}

static void give(fuse_req_t req)
{
	struct fuse_entry_param entry = { .ino = FILE_NODE, .attr = attributes(FILE_NODE) };

	fuse_reply_entry(req, &entry);
}

static void look_up(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const char *which = fuse_req_userdata(req);

	(void)parent;
	(void)name;
	if (*which == '2' && !held) {
		held = req;
		return;
	}
	if (held)
		give(held);
	give(req);
}

static void get_attributes(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *file)
{
	struct stat stat = attributes(node);

	(void)file;
	fuse_reply_attr(req, &stat, 0);
}

static void open_file(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *file)
{
	(void)node;
	file->direct_io = 1;
	fuse_reply_open(req, file);
}

static void read_file(fuse_req_t req, fuse_ino_t node, size_t size, off_t at,
		      struct fuse_file_info *file)
{
	(void)node;
	(void)size;
	(void)file;
	fuse_reply_buf(req, fuse_req_userdata(req), at ? 0 : 1);
}

static const struct fuse_lowlevel_ops operations = {
	.lookup = look_up,
	.getattr = get_attributes,
	.open = open_file,
	.read = read_file,
};

int main(int argc, char **argv)
{
	static char which[2] = "12";
	struct fuse_session *sessions[2];
	struct fuse_buf buffers[2] = { 0 };
	struct pollfd devices[2];
	int i, size;

	if (argc != 3)
		return 2;
	for (i = 0; i < 2; i++) {
		char *words[] = { argv[0], "-d", NULL };
		struct fuse_args args = FUSE_ARGS_INIT(2, words);

		sessions[i] = fuse_session_new(&args, &operations, sizeof(operations), &which[i]);
		if (!sessions[i] || fuse_session_mount(sessions[i], argv[i + 1]))
			return 1;
		devices[i] = (struct pollfd){ fuse_session_fd(sessions[i]), POLLIN, 0 };
	}
	while (poll(devices, 2, -1) > 0) {
		for (i = 0; i < 2; i++) {
			if (!devices[i].revents)
				continue;
			size = fuse_session_receive_buf(sessions[i], &buffers[i]);
			if (size == -EINTR || size == -EAGAIN)
				continue;
			if (size <= 0)
				return 0;
			fuse_session_process_buf(sessions[i], &buffers[i]);
		}
	}
	return 1;
}
