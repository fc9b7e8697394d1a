// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the module says of itself.
 */
#include <linux/module.h>

MODULE_VERSION(F2FS_TUNED_VERSION);

/* Where the kernel's part of it comes from, as import_kernel.py recorded it. */
static char source[] = TUNED_SOURCE;
module_param_string(source, source, sizeof(source), 0444);
MODULE_PARM_DESC(source, "Linux version and package that the code was taken from");
MODULE_INFO(tuned_source, TUNED_SOURCE);
