// SPDX-License-Identifier: GPL-2.0-only
// What decides that a request is full looks at the limit in force. Each of these functions looks
// once and makes room for as much, or fills what was made for the most there may be.
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

// The limit may have fallen below what is there already.
@ depends on full @
expression n;
symbol fc;
@@
- n == tuned_max_pages(fc)
+ n >= tuned_max_pages(fc)
