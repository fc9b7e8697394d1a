// SPDX-License-Identifier: GPL-2.0-only
// The current limit decides when a request is full. Each of these functions either reads it once
// and allocates for it, or fills an array that was allocated for the negotiated maximum.
@ full @
identifier f = {fuse_readahead, fuse_direct_io, fuse_writepage_need_send, fuse_folios_need_send};
symbol fc;
@@
f(...)
{
<+...
- fc->max_pages
+ tuned_max_pages(fc)
...+>
}

@@
expression pos, len;
symbol fc;
@@
fuse_wr_pages(pos, len,
- fc->max_pages
+ tuned_max_pages(fc)
 )

// The limit may have dropped below the pages that the request already has.
@ depends on full @
expression n;
symbol fc;
@@
- n == tuned_max_pages(fc)
+ n >= tuned_max_pages(fc)
