// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module's version and the source that it was made from.
 */
#include <linux/module.h>

MODULE_VERSION(F2FS_TUNED_VERSION);

/* The kernel source that the imported part was made from; import_kernel.py recorded it. */
static char source[] = TUNED_SOURCE;
module_param_string(source, source, sizeof(source), 0444);
MODULE_PARM_DESC(source, "Linux version and package that the code was taken from");
MODULE_INFO(tuned_source, TUNED_SOURCE);
