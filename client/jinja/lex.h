/* lex: a template's text as tokens, with whitespace control applied as for a chat template: the
 * newline after a tag goes (trim_blocks), blanks before a tag that begins its line go
 * (lstrip_blocks), one newline at the end of the text goes. Called by the parser. */
#ifndef HEARTH_CLIENT_JINJA_LEX_H
#define HEARTH_CLIENT_JINJA_LEX_H

#include "client/jinja/value.h"

enum token_kind {
    TOKEN_END = 0,
    TOKEN_DATA, /* text between tags */
    TOKEN_OUTPUT_BEGIN,
    TOKEN_OUTPUT_END,
    TOKEN_TAG_BEGIN,
    TOKEN_TAG_END,
    TOKEN_NAME,
    TOKEN_STRING, /* text is its value */
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_SIGN /* `sign` is it: '+', or OP2('=', '=') */
};

#define OP2(a, b) ((unsigned)(a) | (unsigned)(b) << 8)

struct token {
    uint8_t kind; /* enum token_kind */
    uint16_t sign;
    uint32_t line;
    const char *text; /* [bytes] */
    size_t bytes;
};

/* All tokens of source[0, bytes), TOKEN_END last; they point into the source or the heap. */
struct token *lex(struct heap *h, const char *source, size_t bytes);

#endif
