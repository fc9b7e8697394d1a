// SPDX-License-Identifier: GPL-2.0-or-later
/* The command line, and how the server is started. */
#include "intercept.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static const char usage[] =
	"usage: fusetune-intercept [--type TYPE] [--device DEVICE] [--options OPTIONS]\n"
	"                          [--required] [--apart] [--proc FD] [--program FD]\n"
	"                          -- COMMAND...\n"
	"Run a FUSE server with another FUSE device, file system type and mount options.\n"
	"  --type TYPE        the file system type; default fusetuned\n"
	"  --device DEVICE    its device; default /dev/TYPE\n"
	"  --options OPTIONS  more mount options, for every mount\n"
	"  --required         fail if the kernel has no such type; otherwise print a\n"
	"                     line and use the kernel's own FUSE\n"
	"  --apart            listen from a cgroup below the server's; systemd needs\n"
	"                     that to find the main process of Type=forking\n"
	"  --proc FD          a directory to use instead of /proc, if that belongs to\n"
	"                     another PID namespace\n"
	"  --program FD       the program that COMMAND runs, whatever its first word is\n";

static _Noreturn void misused(void)
{
	fputs(usage, stderr);
	exit(EXIT_USAGE);
}

/* Returns a descriptor that the server will not inherit. */
static int private_descriptor(const char *text)
{
	int fd = atoi(text);

	if (fd <= STDERR_FILENO || fcntl(fd, F_SETFD, FD_CLOEXEC))
		misused();
	return fd;
}

static void parse(int count, char **words, struct settings *settings)
{
	static const struct option options[] = {
		{ "type", required_argument, NULL, 't' },
		{ "device", required_argument, NULL, 'd' },
		{ "options", required_argument, NULL, 'o' },
		{ "required", no_argument, NULL, 'r' },
		{ "apart", no_argument, NULL, 'a' },
		{ "proc", required_argument, NULL, 'p' },
		{ "program", required_argument, NULL, 'x' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 }
	};
	int option;

	while ((option = getopt_long(count, words, "+h", options, NULL)) != -1)
		switch (option) {
		case 't':
			settings->type = optarg;
			break;
		case 'd':
			settings->device = optarg;
			break;
		case 'o':
			settings->options = optarg;
			break;
		case 'r':
			settings->required = true;
			break;
		case 'a':
			settings->apart = true;
			break;
		case 'p':
			settings->proc = private_descriptor(optarg);
			break;
		case 'x':
			settings->program = private_descriptor(optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		case 'V':
			puts("fusetune-intercept " VERSION);
			exit(0);
		default:
			misused();
		}
	if (optind >= count)
		misused();
	settings->command = words + optind;
}

/* Returns NULL if the server's mounts will be intercepted, or the reason why not. */
static const char *prepare(const struct settings *settings)
{
	int context = fsopen(settings->type, FSOPEN_CLOEXEC);
	static char why[256];

	if (context == -1 && errno == ENODEV) {
		snprintf(why, sizeof(why), "the kernel has no file system %s", settings->type);
		return why;
	}
	if (context == -1)
		return strerror(errno);
	close(context);
	if (access(settings->device, R_OK | W_OK)) {
		snprintf(why, sizeof(why), "%s: %s", settings->device, strerror(errno));
		return why;
	}
	return listener_start(settings);
}

int main(int count, char **words)
{
	struct settings settings = {
		.type = "fusetuned", .options = "", .proc = -1, .program = -1
	};
	char device[256];
	const char *why;

	parse(count, words, &settings);
	if (!settings.device) {
		snprintf(device, sizeof(device), "/dev/%s", settings.type);
		settings.device = device;
	}
	if (geteuid()) {
		complain("only root may choose a device for a server; run it as root");
		return EXIT_FAILED;
	}
	why = prepare(&settings);
	if (why) {
		complain(settings.required ? "%s; %s is not started, because of tuned_required" :
			 "%s; %s mounts with the kernel's own FUSE", why, settings.command[0]);
		if (settings.required)
			return EXIT_FAILED;
	}
	if (settings.program != -1)
		fexecve(settings.program, settings.command, environ);
	else
		execvp(settings.command[0], settings.command);
	complain("cannot run %s: %s", settings.command[0], strerror(errno));
	return EXIT_FAILED;
}
