// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the module says of itself.
 */
#include <linux/module.h>

MODULE_VERSION(F2FS_TUNED_VERSION);
