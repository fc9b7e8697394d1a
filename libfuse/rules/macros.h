/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Coccinelle cannot parse these, and would silently skip the whole function. */
#define alignas(x)
