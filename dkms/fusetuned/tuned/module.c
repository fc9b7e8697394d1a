// SPDX-License-Identifier: GPL-2.0-only
/*
 * Module init and exit, and the module's description.
 *
 * fs/fuse's own init and exit functions do the work; ours wrap them, because the
 * file that options.c reads the pipe limit from must be open before the first
 * mount and stay open until the last one is gone.
 */
#include "fuse_i.h"

#include <linux/module.h>

static int __init tuned_init(void)
{
	int err;

	err = tuned_open_pipe_limit();
	if (err)
		return err;
	err = fuse_init();
	if (err)
		tuned_close_pipe_limit();
	return err;
}

static void __exit tuned_exit(void)
{
	fuse_exit();
	tuned_close_pipe_limit();
}

module_init(tuned_init);
module_exit(tuned_exit);

MODULE_VERSION(FUSETUNED_VERSION);

/* The kernel source that the imported part was made from; import_kernel.py recorded it. */
static char source[] = TUNED_SOURCE;
module_param_string(source, source, sizeof(source), 0444);
MODULE_PARM_DESC(source, "Linux version and package that the code was taken from");
MODULE_INFO(tuned_source, TUNED_SOURCE);
