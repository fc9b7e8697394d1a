/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the C parser of Coccinelle does not know, and would leave whole functions out for. */
#define alignas(x)
