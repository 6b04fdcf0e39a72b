/* top_frame: draws a frame, see top_frame.h. Lines are cut at the screen's edges; a style is
 * taken back at the end of what it colours, so a cut never leaves one on. */
#include "client/cli/top_frame.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum style { PLAIN, BOLD, DIM, GREEN, YELLOW, RED, BLUE, REVERSE };

static const char *const styles[] = {"", "1", "2", "32", "33", "31", "34", "7"};

struct frame {
    const struct top_screen *screen;
    struct buffer *out;
    uint32_t row, column; /* of the next character */
};

/* Characters of UTF-8 text that stand in the columns left; *ret_bytes: their bytes. */
static uint32_t fitting(const struct frame *f, const char *text, size_t *ret_bytes)
{
    uint32_t n = 0;
    size_t i = 0;
    for (; text[i]; n++) {
        if (f->screen->columns && f->column + n >= f->screen->columns)
            break;
        i++;
        while (((unsigned char)text[i] & 0xc0) == 0x80)
            i++;
    }
    *ret_bytes = i;
    return n;
}

__attribute__((format(printf, 3, 4))) static void put(struct frame *f, enum style style,
                                                      const char *format, ...)
{
    char text[512];
    size_t bytes;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    uint32_t n = fitting(f, text, &bytes);
    int styled = f->screen->colours && style != PLAIN && n;
    if (styled)
        buffer_format(f->out, "\033[%sm", styles[style]);
    buffer_add(f->out, text, bytes);
    if (styled)
        buffer_text(f->out, "\033[m");
    f->column += n;
}

/* Fills up to that column if the text before it was short: printf's widths count bytes, not
 * characters. */
static void blanks(struct frame *f, uint32_t to_column)
{
    if (f->column < to_column)
        put(f, PLAIN, "%*s", (int)(to_column - f->column), "");
}

static uint32_t rows_left(const struct frame *f)
{
    return f->screen->rows ? f->screen->rows - f->row : UINT32_MAX;
}

/* Ends a line; the screen's last one gets no newline, which would scroll. */
static void end_line(struct frame *f)
{
    if (f->screen->live)
        buffer_text(f->out, "\033[K");
    f->row++;
    f->column = 0;
    if (rows_left(f) > 0)
        buffer_text(f->out, f->screen->live ? "\r\n" : "\n");
}

/* ---- numbers ---------------------------------------------------------------------------------- */

struct small {
    char text[24];
};

/* 5 digits at most: 99999, 123k, 4.5M. */
static struct small count(uint64_t n)
{
    struct small s;
    if (n < 100000)
        snprintf(s.text, sizeof(s.text), "%llu", (unsigned long long)n);
    else if (n < 10000000)
        snprintf(s.text, sizeof(s.text), "%lluk", (unsigned long long)n / 1000);
    else if (n < 10000000000)
        snprintf(s.text, sizeof(s.text), "%lluM", (unsigned long long)n / 1000000);
    else
        snprintf(s.text, sizeof(s.text), "%lluG", (unsigned long long)n / 1000000000);
    return s;
}

static struct small bytes_of(uint64_t n)
{
    struct small s;
    if (n < 1ull << 30)
        snprintf(s.text, sizeof(s.text), "%.1f MiB", (double)n / (1 << 20));
    else
        snprintf(s.text, sizeof(s.text), "%.2f GiB", (double)n / (1 << 30));
    return s;
}

static struct small time_of(uint64_t ns)
{
    struct small s;
    if (!ns)
        snprintf(s.text, sizeof(s.text), "-");
    else if (ns < 10000000)
        snprintf(s.text, sizeof(s.text), "%.0f us", (double)ns * 1e-3);
    else
        snprintf(s.text, sizeof(s.text), "%.1f ms", (double)ns * 1e-6);
    return s;
}

/* A percentage, "-" where the whole is 0. */
static struct small share(uint64_t part, uint64_t whole)
{
    struct small s;
    if (whole)
        snprintf(s.text, sizeof(s.text), "%.1f %%", 100 * (double)part / (double)whole);
    else
        snprintf(s.text, sizeof(s.text), "-");
    return s;
}

static struct small rate(double per_second)
{
    struct small s;
    if (per_second < 0)
        snprintf(s.text, sizeof(s.text), "-");
    else
        snprintf(s.text, sizeof(s.text), per_second < 1000 ? "%.1f" : "%.0f", per_second);
    return s;
}

/* A counter's growth per second since the sample before. */
#define RATE(name)                                                                                 \
    rate(before && now->at_ns > before->at_ns && now->name >= before->name                         \
             ? (double)(now->name - before->name) * 1e9 / (double)(now->at_ns - before->at_ns)     \
             : -1)

/* The share among what was counted since the sample before. */
#define SHARE_NOW(part, whole)                                                                     \
    (before && now->part >= before->part && now->whole > before->whole                             \
         ? share(now->part - before->part, now->whole - before->whole)                             \
         : share(0, 0))

/* ---- lines ----------------------------------------------------------------------------------- */

static void head(struct frame *f, const struct top_sample *now)
{
    uint64_t s = now->uptime_s;
    put(f, BOLD, "%s", now->model);
    put(f, PLAIN, "  %s %s  hearthd %s, pid %llu, up %llu:%02u:%02u", now->arch, now->type,
        now->version, (unsigned long long)now->pid, (unsigned long long)s / 3600,
        (unsigned)(s / 60 % 60), (unsigned)(s % 60));
    end_line(f);
    put(f, DIM, "device   ");
    put(f, PLAIN, "%s (%s), %llu thread%s, %s, ", now->device, now->isa,
        (unsigned long long)now->threads, now->threads == 1 ? "" : "s", now->numerics);
    put(f, PLAIN, "%s resident", bytes_of(now->rss_bytes).text);
    end_line(f);
}

static void speed(struct frame *f, const struct top_sample *now, const struct top_sample *before)
{
    put(f, DIM, "speed    ");
    put(f, BOLD, "%s tokens/s", RATE(output_tokens).text);
    put(f, PLAIN, ", %s rows/s, %s passes/s, a decoding pass takes %s", RATE(rows).text,
        RATE(passes).text, time_of(now->decode_ns).text);
    end_line(f);
    put(f, DIM, "drafts   ");
    put(f, PLAIN, "%s of %s accepted, now %s; %s rollbacks, now %s/s",
        share(now->accepted_drafts, now->drafted).text, count(now->drafted).text,
        SHARE_NOW(accepted_drafts, drafted).text, count(now->rollbacks).text, RATE(rollbacks).text);
    end_line(f);
    put(f, DIM, "prefix   ");
    put(f, PLAIN, "%s of %s prompt tokens were warm, now %s",
        share(now->cached_tokens, now->prompt_tokens).text, count(now->prompt_tokens).text,
        SHARE_NOW(cached_tokens, prompt_tokens).text);
    end_line(f);
}

/* [####++++....]: pages that slots use, that are kept warm, that are free. */
static void bar(struct frame *f, uint64_t used, uint64_t cached, uint64_t total)
{
    enum { WIDTH = 32 };
    char text[3][WIDTH + 1];
    uint64_t ends[3] = {used, used + cached, total}, from = 0;
    static const char marks[] = "#+.";
    for (int i = 0; i < 3; i++) {
        /* Rounded up, so that one page shows. */
        uint64_t to = total ? (ends[i] * WIDTH + total - 1) / total : i == 2 ? WIDTH : 0;
        to = to > WIDTH ? WIDTH : to < from ? from : to;
        memset(text[i], marks[i], to - from);
        text[i][to - from] = 0;
        from = to;
    }
    put(f, PLAIN, "[");
    put(f, GREEN, "%s", text[0]);
    put(f, BLUE, "%s", text[1]);
    put(f, DIM, "%s", text[2]);
    put(f, PLAIN, "]");
}

static void pages(struct frame *f, const struct top_sample *now)
{
    uint64_t total = now->pages_total;
    uint64_t unheld = now->pages_free < total ? now->pages_free : total; /* by a slot */
    uint64_t cached = now->pages_cached < unheld ? now->pages_cached : unheld;
    put(f, DIM, "KV pages ");
    bar(f, total - unheld, cached, total);
    put(f, PLAIN, " %s used, %s cached, %s free", count(total - unheld).text, count(cached).text,
        count(unheld - cached).text);
    put(f, PLAIN, " (%s)",
        bytes_of(total * now->page_bytes + now->window_pages_total * now->window_page_bytes +
                 now->states_total * now->state_bytes)
            .text);
    end_line(f);
}

static void totals(struct frame *f, const struct top_sample *now, const char *trouble)
{
    put(f, DIM, "slots    ");
    put(f, PLAIN, "%llu of %llu held by %llu client%s: %llu active, %llu waiting, %llu paused",
        (unsigned long long)now->slots_used, (unsigned long long)now->slots_total,
        (unsigned long long)now->clients, now->clients == 1 ? "" : "s",
        (unsigned long long)now->slots_active, (unsigned long long)now->slots_waiting,
        (unsigned long long)now->slots_paused);
    end_line(f);
    if (trouble) {
        put(f, RED, "%s", trouble);
    } else {
        put(f, DIM, "requests ");
        put(f, PLAIN, "%s finished, %s superseded, %s cancelled, %s failed",
            count(now->requests_finished).text, count(now->requests_superseded).text,
            count(now->requests_cancelled).text, count(now->requests_errors).text);
    }
    end_line(f);
}

/* ---- the table -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t width; /* with the blank after it */
    int right;
} columns[] = {{"USER", 12, 0},  {"PID", 8, 1},    {"NAME", 17, 0},   {"SLOT", 5, 1},
               {"STATE", 9, 0},  {"CLASS", 12, 0}, {"PROMPT", 8, 1},  {"BROKE", 8, 1},
               {"OUTPUT", 8, 1}, {"TOK/S", 9, 1},  {"COMMAND", 16, 0}};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static void cells(struct frame *f, const char *const values[COLUMNS], enum style all,
                  enum style state)
{
    uint32_t at = 0;
    for (int i = 0; i < COLUMNS; i++) {
        int width = (int)columns[i].width - 1;
        enum style style = i == 4 && state != PLAIN ? state : all;
        put(f, style, columns[i].right ? "%*.*s" : "%-*.*s", i + 1 < COLUMNS ? width : 0, width,
            values[i]);
        at += columns[i].width;
        if (i + 1 < COLUMNS) {
            put(f, all, " ");
            blanks(f, at);
        }
    }
    end_line(f);
}

static enum style style_of(const char *state)
{
    static const struct {
        const char *state;
        enum style style;
    } known[] = {{"decode", GREEN}, {"prefill", YELLOW}, {"queued", YELLOW}, {"paused", RED}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (!strcmp(known[i].state, state))
            return known[i].style;
    return PLAIN;
}

/* A prompt may lose this many tokens of the text before it without a warning: the end of an answer
 * may be tokenized otherwise, or its last page computed again. */
enum { NOT_BROKEN = 32 };

static void slot_line(struct frame *f, const struct top_slot *slot)
{
    static const struct small none = {"-"};
    char pid[24] = "-", number[24], prompt[32];
    int idle = !strcmp(slot->state, "idle");
    if (slot->pid)
        snprintf(pid, sizeof(pid), "%llu", (unsigned long long)slot->pid);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)slot->slot);
    if (!strcmp(slot->state, "prefill") && slot->prompt)
        snprintf(prompt, sizeof(prompt), "%.0f%%",
                 100 * (double)(slot->kv < slot->prompt ? slot->kv : slot->prompt) /
                     (double)slot->prompt);
    else
        snprintf(prompt, sizeof(prompt), "%s", count(slot->prompt).text);
    struct small output = count(slot->output), speed_text = rate(slot->rate);
    struct small broke = slot->prefix_lost > NOT_BROKEN ? count(slot->prefix_break) : none;
    const char *const values[COLUMNS] = {
        slot->user,      pid,          slot->name[0] ? slot->name : "-",
        number,          slot->state,  slot->priority,
        prompt,          broke.text,   output.text,
        speed_text.text, slot->command};
    cells(f, values, idle ? DIM : PLAIN, style_of(slot->state));
}

static void table(struct frame *f, const struct top_sample *now)
{
    const char *names[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        names[i] = columns[i].name;
    cells(f, names, REVERSE, PLAIN);
    uint64_t more = now->slots_left_out;
    uint32_t shown = 0;
    for (; shown < now->n_slots; shown++) {
        /* The last line says how many do not fit. */
        int last = shown + 1 == now->n_slots && !more;
        if (rows_left(f) < 2 && !(last && rows_left(f) == 1))
            break;
        slot_line(f, &now->slots[shown]);
    }
    more += now->n_slots - shown;
    if (more && rows_left(f)) {
        put(f, DIM, "and %llu more", (unsigned long long)more);
        end_line(f);
    }
}

void top_frame(const struct top_sample *now, const struct top_sample *before, const char *trouble,
               const struct top_screen *screen, struct buffer *out)
{
    struct frame f = {.screen = screen, .out = out};
    enum { HEAD_ROWS = 9 }; /* and a line of the table's head */
    if (screen->live)
        buffer_text(out, "\033[H");
    if (screen->rows && screen->rows < HEAD_ROWS + 2) { /* what matters most in so small a place */
        if (trouble)
            put(&f, RED, "%s", trouble);
        else
            put(&f, PLAIN, "%s tokens/s, %llu slots active", RATE(output_tokens).text,
                (unsigned long long)now->slots_active);
        end_line(&f);
    } else {
        head(&f, now);
        speed(&f, now, before);
        pages(&f, now);
        totals(&f, now, trouble);
        end_line(&f);
        table(&f, now);
    }
    if (screen->live)
        buffer_text(out, "\033[J");
}
