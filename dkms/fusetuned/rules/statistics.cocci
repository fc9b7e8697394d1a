// SPDX-License-Identifier: GPL-2.0-only
// The start and the end of requests, and the sending of requests without a reply.
@@
expression req, given;
@@
fuse_args_to_req(...)
{
...
req->args = given;
+ tuned_request_begin(req);
...
}

// From here on the caller may continue. This may run twice for a request; the first time counts.
@@
expression req;
identifier put;
@@
fuse_request_end(...)
{
...
if (test_and_set_bit(FR_FINISHED, &req->flags))
	goto put;
+ tuned_request_end(req);
...
}

@@
idexpression struct fuse_in_header ih;
expression err, cs;
symbol fiq;
@@
+ tuned_one_way(fiq, &ih);
err = fuse_copy_one(cs, &ih, sizeof(ih));

// With io_uring the reply's header does not have the size.
@@
identifier req;
expression err, cs, args, reply;
@@
fuse_uring_copy_from_ring(..., struct fuse_req *req, ...)
{
...
+ tuned_uring_reply(req, reply.payload_sz);
err = fuse_copy_out_args(&cs, args, reply.payload_sz);
...
}

// The counters of the connection.
@@
expression fc;
@@
fuse_free_conn(...)
{
...
+ tuned_statistics_free(fc);
kfree(fc);
}
