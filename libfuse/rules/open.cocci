// SPDX-License-Identifier: LGPL-2.1-or-later
// Serves TUNED_HELLO and TUNED_OPEN, and intercepts the server's replies to the operations that
// TUNED_OPEN is turned into.
@@
symbol in, se, req, inarg, fuse_ll_ops, do_lookup, do_open, do_create;
expression E;
@@
- in->opcode >= E || !fuse_ll_ops[in->opcode].func
+ !tuned_takes(se, in->opcode) && (in->opcode >= E || !fuse_ll_ops[in->opcode].func)

@@
@@
- fuse_ll_ops[in->opcode].func(req, in->nodeid, inarg);
+ if (tuned_takes(se, in->opcode))
+	tuned_serve(req, in, do_lookup, do_open, do_create);
+ else
+	fuse_ll_ops[in->opcode].func(req, in->nodeid, inarg);

@@
symbol res, iov, count;
expression E;
@@
+ if (req->opening)
+	return tuned_replied(req, E, iov, count);
res = fuse_send_reply_iov_nofree(req, E, iov, count);
