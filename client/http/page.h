/* page: the page for browsers, whose files (page/) are part of the program. */
#ifndef HEARTH_CLIENT_HTTP_PAGE_H
#define HEARTH_CLIENT_HTTP_PAGE_H

#include "client/http/exchange.h"

/* Does the request accept HTML? */
bool page_is_wanted(const struct exchange *x);

/* Answers `/` where HTML is accepted, `/page.css` and `/page.js`. */
void page_index(struct exchange *x);
void page_style(struct exchange *x);
void page_script(struct exchange *x);

/* The Content-Security-Policy of these: nothing but the two files and the gateway itself. */
extern const char page_policy[];

#endif
