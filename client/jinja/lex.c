/* lex: see lex.h. */
#include "client/jinja/lex.h"

#include "client/base/utf8.h"

#include <errno.h>
#include <string.h>

struct lexer {
    struct heap *heap;
    const char *s; /* [n], every newline is one \n */
    size_t n, at;
    uint32_t line;
    bool begins_line; /* the tag before ended with a newline, or there is none */
    struct token *tokens;
    size_t n_tokens, room;
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static char look(const struct lexer *x, size_t ahead)
{
    return x->at + ahead < x->n ? x->s[x->at + ahead] : 0;
}

static struct token *push(struct lexer *x, enum token_kind kind, const char *text, size_t bytes)
{
    if (x->n_tokens == x->room) {
        size_t room = x->room ? 2 * x->room : 256, item = sizeof(*x->tokens);
        x->tokens = heap_grow(x->heap, x->tokens, x->n_tokens * item, x->room * item, room * item);
        x->room = room;
    }
    heap_charge(x->heap, 1);
    struct token *t = &x->tokens[x->n_tokens++];
    *t = (struct token){.kind = (uint8_t)kind, .line = x->line, .text = text, .bytes = bytes};
    return t;
}

/* Moves to `to`, counting lines. */
static void move(struct lexer *x, size_t to)
{
    for (; x->at < to; x->at++)
        x->line += x->s[x->at] == '\n';
    x->heap->line = x->line;
}

static void skip_spaces(struct lexer *x)
{
    size_t to = x->at;
    while (to < x->n && is_space(x->s[to]))
        to++;
    move(x, to);
}

/* After a tag or a comment, before whose end `sign` stands. */
static void end_tag(struct lexer *x, char sign)
{
    if (sign == '-')
        skip_spaces(x);
    else if (sign != '+' && look(x, 0) == '\n')
        move(x, x->at + 1);
    x->begins_line = x->s[x->at - 1] == '\n';
}

/* Adds the text before a tag of kind `mark`, without the blanks that its sign removes. */
static void push_data(struct lexer *x, size_t from, size_t to, char mark, char sign)
{
    if (sign == '-') {
        while (to > from && is_space(x->s[to - 1]))
            to--;
    } else if (sign != '+' && mark != '{') {
        size_t begin = to;
        while (begin > from && x->s[begin - 1] != '\n')
            begin--;
        bool blank = begin > from || x->begins_line;
        for (size_t i = begin; blank && i < to; i++)
            blank = is_space(x->s[i]);
        if (blank)
            to = begin;
    }
    if (to > from)
        push(x, TOKEN_DATA, x->s + from, to - from);
}

static void skip_comment(struct lexer *x)
{
    const char *end = memmem(x->s + x->at, x->n - x->at, "#}", 2);
    if (!end)
        heap_fault(x->heap, -EINVAL, "a comment {# is not closed");
    size_t to = (size_t)(end - x->s);
    char sign = to > x->at ? end[-1] : 0;
    move(x, to + 2);
    end_tag(x, sign);
}

/* Is WORD alone in the tag, `{% WORD %}`, whose inside begins at p? Then *ret_end is the end of the
 * tag, and *ret_sign the sign before it. */
static bool is_tag(const struct lexer *x, size_t p, const char *word, size_t *ret_end,
                   char *ret_sign)
{
    size_t n = strlen(word);
    while (p < x->n && is_space(x->s[p]))
        p++;
    if (x->n - p < n || memcmp(x->s + p, word, n) != 0)
        return false;
    p += n;
    while (p < x->n && is_space(x->s[p]))
        p++;
    *ret_sign = p < x->n && (x->s[p] == '-' || x->s[p] == '+') ? x->s[p++] : 0;
    if (x->n - p < 2 || x->s[p] != '%' || x->s[p + 1] != '}')
        return false;
    *ret_end = p + 2;
    return true;
}

/* After {% raw %}: everything up to {% endraw %} is text. */
static void lex_raw(struct lexer *x)
{
    for (size_t p = x->at; x->n - p >= 2; p++) {
        const char *mark = memmem(x->s + p, x->n - p, "{%", 2);
        if (!mark)
            break;
        p = (size_t)(mark - x->s);
        char sign = p + 2 < x->n ? x->s[p + 2] : 0, end_sign;
        size_t end;
        if (!is_tag(x, p + 2 + (sign == '-' || sign == '+'), "endraw", &end, &end_sign))
            continue;
        x->begins_line = false;
        push_data(x, x->at, p, '%', sign);
        move(x, end);
        end_tag(x, end_sign);
        return;
    }
    heap_fault(x->heap, -EINVAL, "{%% raw %%} has no {%% endraw %%}");
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The escape at s[0, n) after its backslash: writes what it means to out, at most 4 bytes. Returns
 * how much of s it took, 0 for none. */
static size_t unescape(const char *s, size_t n, char *out, size_t *ret_bytes)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *simple = n ? memchr(from, s[0], sizeof(from) - 1) : NULL;
    size_t digits = !n ? 0 : s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0, i = 1;
    uint32_t code = 0;
    *ret_bytes = 0;
    if (simple) {
        out[(*ret_bytes)++] = to[simple - from];
        return 1;
    }
    if (n && s[0] == '\n')
        return 1;
    if (n && s[0] >= '0' && s[0] <= '7') {
        for (i = 0; i < 3 && i < n && s[i] >= '0' && s[i] <= '7'; i++)
            code = code * 8 + (uint32_t)(s[i] - '0');
    } else {
        if (!digits)
            return 0;
        for (; i <= digits; i++) {
            if (i >= n || hex_value(s[i]) < 0)
                return 0;
            code = code << 4 | (uint32_t)hex_value(s[i]);
        }
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        code = 0xfffd;
    *ret_bytes = utf8_put(code, out);
    return i;
}

static void lex_string(struct lexer *x)
{
    char quote = look(x, 0);
    size_t from = x->at + 1, to = from, n = 0;
    bool plain = true;
    for (; to < x->n && x->s[to] != quote; to++)
        if (x->s[to] == '\\') {
            plain = false;
            to++;
        }
    if (to >= x->n)
        heap_fault(x->heap, -EINVAL, "a string is not closed");
    struct token *t = push(x, TOKEN_STRING, x->s + from, to - from);
    if (!plain) {
        char *text = heap_take(x->heap, 2 * (to - from)); /* \NN octal may become two bytes */
        for (size_t i = from; i < to; i++) {
            size_t bytes = 0, used = 0;
            if (x->s[i] == '\\')
                used = unescape(x->s + i + 1, to - i - 1, text + n, &bytes);
            if (used)
                n += bytes;
            else
                text[n++] = x->s[i];
            i += used;
        }
        t->text = text;
        t->bytes = n;
    }
    move(x, to + 1);
}

static void lex_number(struct lexer *x)
{
    size_t to = x->at;
    enum token_kind kind = TOKEN_INTEGER;
    while (to < x->n && (is_digit(x->s[to]) || x->s[to] == '_'))
        to++;
    if (to + 1 < x->n && x->s[to] == '.' && is_digit(x->s[to + 1])) {
        kind = TOKEN_FLOAT;
        for (to++; to < x->n && (is_digit(x->s[to]) || x->s[to] == '_');)
            to++;
    }
    if (to < x->n && (x->s[to] == 'e' || x->s[to] == 'E')) {
        size_t e = to + 1;
        e += e < x->n && (x->s[e] == '+' || x->s[e] == '-');
        if (e < x->n && is_digit(x->s[e])) {
            kind = TOKEN_FLOAT;
            for (to = e; to < x->n && is_digit(x->s[to]);)
                to++;
        }
    }
    push(x, kind, x->s + x->at, to - x->at);
    x->at = to;
}

static void lex_sign(struct lexer *x, unsigned *depth)
{
    static const char *const twos[] = {"==", "!=", "<=", ">=", "//", "**"};
    char c = look(x, 0);
    for (size_t i = 0; i < sizeof(twos) / sizeof(twos[0]); i++)
        if (c == twos[i][0] && look(x, 1) == twos[i][1]) {
            push(x, TOKEN_SIGN, x->s + x->at, 2)->sign = (uint16_t)OP2(twos[i][0], twos[i][1]);
            x->at += 2;
            return;
        }
    if (!c || !strchr("+-*/%~()[]{},.:|=<>;", c))
        heap_fault(x->heap, -EINVAL, "unexpected character '%c'", c >= 0x20 && c < 0x7f ? c : '?');
    *depth += c == '(' || c == '[' || c == '{';
    if ((c == ')' || c == ']' || c == '}') && (*depth)-- == 0)
        heap_fault(x->heap, -EINVAL, "unexpected '%c'", c);
    push(x, TOKEN_SIGN, x->s + x->at, 1)->sign = (uint16_t)(unsigned char)c;
    x->at++;
}

/* The inside of {{ }} or {% %}, to its end. */
static void lex_code(struct lexer *x, char mark)
{
    char close = mark == '{' ? '}' : '%';
    unsigned depth = 0;
    for (;;) {
        skip_spaces(x);
        char c = look(x, 0);
        size_t sign = c == '-' || (c == '+' && mark == '%');
        if (x->at >= x->n)
            heap_fault(x->heap, -EINVAL, "a tag {%c is not closed", mark);
        if (!depth && look(x, sign) == close && look(x, sign + 1) == '}') {
            push(x, mark == '{' ? TOKEN_OUTPUT_END : TOKEN_TAG_END, x->s + x->at, 2);
            move(x, x->at + sign + 2);
            /* A newline after an output stays. */
            end_tag(x, sign ? c : mark == '{' ? '+' : 0);
            return;
        }
        if (c == '\'' || c == '"') {
            lex_string(x);
        } else if (is_digit(c)) {
            lex_number(x);
        } else if (is_name(c)) {
            size_t from = x->at;
            while (x->at < x->n && is_name(x->s[x->at]))
                x->at++;
            push(x, TOKEN_NAME, x->s + from, x->at - from);
        } else {
            lex_sign(x, &depth);
        }
    }
}

/* Where the next tag begins, or n. */
static size_t find_mark(const struct lexer *x)
{
    for (size_t p = x->at; p + 1 < x->n; p++) {
        const char *brace = memchr(x->s + p, '{', x->n - 1 - p);
        if (!brace)
            break;
        p = (size_t)(brace - x->s);
        if (brace[1] == '{' || brace[1] == '%' || brace[1] == '#')
            return p;
    }
    return x->n;
}

static void lex_all(struct lexer *x)
{
    while (x->at < x->n) {
        size_t p = find_mark(x), end;
        if (p == x->n) {
            push(x, TOKEN_DATA, x->s + x->at, p - x->at);
            return;
        }
        char mark = x->s[p + 1], sign = p + 2 < x->n ? x->s[p + 2] : 0, raw_sign;
        if (sign != '-' && sign != '+')
            sign = 0;
        push_data(x, x->at, p, mark, sign);
        move(x, p + 2 + (sign != 0));
        if (mark == '#') {
            skip_comment(x);
        } else if (mark == '%' && is_tag(x, x->at, "raw", &end, &raw_sign)) {
            move(x, end);
            if (raw_sign == '-')
                skip_spaces(x);
            lex_raw(x);
        } else {
            push(x, mark == '{' ? TOKEN_OUTPUT_BEGIN : TOKEN_TAG_BEGIN, x->s + p, 2);
            lex_code(x, mark);
        }
    }
}

/* A copy in which \r\n and \r are \n, where there is any; without a newline at the end. */
static void take_source(struct lexer *x, const char *source, size_t bytes)
{
    x->s = source;
    x->n = bytes;
    if (bytes && memchr(source, '\r', bytes)) {
        char *copy = heap_take(x->heap, bytes);
        x->n = 0;
        for (size_t i = 0; i < bytes; i++) {
            copy[x->n++] = source[i] == '\r' ? '\n' : source[i];
            i += source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n';
        }
        x->s = copy;
    }
    x->n -= x->n && x->s[x->n - 1] == '\n';
}

struct token *lex(struct heap *h, const char *source, size_t bytes)
{
    struct lexer x = {.heap = h, .line = 1, .begins_line = true};
    take_source(&x, source, bytes);
    lex_all(&x);
    push(&x, TOKEN_END, "", 0);
    return x.tokens;
}
