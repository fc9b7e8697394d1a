/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Coccinelle cannot parse these, and would leave out the whole function without a word. */
#define alignas(x)
