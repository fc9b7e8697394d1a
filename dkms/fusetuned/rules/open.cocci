// SPDX-License-Identifier: GPL-2.0-only
// Where a server's answer to OPEN and CREATE is taken.
@@
expression ff, answer;
@@
(
ff->open_flags = answer->open_flags;
+ tuned_open_flags(ff);
|
ff->open_flags = answer.open_flags;
+ tuned_open_flags(ff);
)
