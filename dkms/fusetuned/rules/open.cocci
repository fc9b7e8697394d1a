// SPDX-License-Identifier: GPL-2.0-only
// A server's reply to OPEN and CREATE.
@@
expression ff, reply;
@@
(
ff->open_flags = reply->open_flags;
+ tuned_open_flags(ff);
|
ff->open_flags = reply.open_flags;
+ tuned_open_flags(ff);
)
