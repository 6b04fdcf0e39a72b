/* page: see page.h. */
#include "client/http/page.h"

#include <string.h>

const char page_policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; "
                           "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                           "frame-ancestors 'none'";

/* page_NAME, page_NAME_end: the bytes of a file of page/. */
#define FILE_BYTES(name, file)                                                                     \
    __asm__(".section .rodata\npage_" #name ":\n.incbin \"client/http/page/" file                  \
            "\"\npage_" #name "_end:\n.byte 0\n.previous\n");                                      \
    extern const char page_##name[], page_##name##_end[]

FILE_BYTES(html, "index.html");
FILE_BYTES(css, "page.css");
FILE_BYTES(js, "page.js");

static void answer(struct exchange *x, const char *bytes, const char *end, const char *type)
{
    buffer_add(&x->out, bytes, (size_t)(end - bytes));
    exchange_answer_whole(x);
    if (x->status != 200) /* memory ran out */
        return;
    x->content_type = type;
    x->is_page = true;
}

bool page_is_wanted(const struct exchange *x)
{
    const char *accept = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, "Accept");
    return accept && strstr(accept, "text/html");
}

void page_index(struct exchange *x)
{
    answer(x, page_html, page_html_end, "text/html; charset=utf-8");
}

void page_style(struct exchange *x)
{
    answer(x, page_css, page_css_end, "text/css; charset=utf-8");
}

void page_script(struct exchange *x)
{
    answer(x, page_js, page_js_end, "text/javascript; charset=utf-8");
}
