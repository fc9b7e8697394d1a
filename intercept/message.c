// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Messages for the user. The listener keeps none of the server's descriptors,
 * because whoever reads the server's output to its end would also wait for the
 * listener. Instead, a message goes to the standard error of the process that it is
 * about. pidfd_getfd(2) duplicates that open file and opens nothing, so a caller
 * cannot make us write to a file that it may not write itself.
 */
#include "intercept.h"

#include <ctype.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <unistd.h>

#define NAME "fusetune-intercept: "
#define LONGEST 1024

/* Replaces control characters, which options and kernel messages may contain. */
static int line(char *text, const char *format, va_list arguments)
{
	int length = snprintf(text, LONGEST - 1, NAME);

	length += vsnprintf(text + length, LONGEST - 1 - length, format, arguments);
	if (length > LONGEST - 2)
		length = LONGEST - 2;
	for (int i = 0; i < length; i++)
		if (iscntrl((unsigned char)text[i]))
			text[i] = '?';
	text[length++] = '\n';
	text[length] = 0;
	return length;
}

void complain(const char *format, ...)
{
	char text[LONGEST];
	va_list arguments;

	va_start(arguments, format);
	line(text, format, arguments);
	va_end(arguments);
	fputs(text, stderr);
}

/* Not if it is a full pipe, or /dev/null, where nobody would see the line. */
static bool takes_a_line(int fd)
{
	struct pollfd room = { fd, POLLOUT, 0 };
	struct stat st;

	if (fstat(fd, &st) || (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
		return false;
	return poll(&room, 1, 0) == 1 && (room.revents & POLLOUT);
}

void tell(int errors, const char *format, ...)
{
	char text[LONGEST];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = line(text, format, arguments);
	va_end(arguments);
	if (errors == -1 || !takes_a_line(errors) || write(errors, text, length) != length)
		syslog(LOG_ERR, "%s", text + strlen(NAME));
}
