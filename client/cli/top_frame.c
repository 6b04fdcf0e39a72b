/* top_frame: draws a frame, see top_frame.h. Lines are cut at the screen's edges; a style is
 * taken back at the end of what it colours, so a cut never leaves one on. */
#include "client/cli/top_frame.h"

#include "client/base/printable.h"

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
    printable_mask(text); /* names, and what a daemon says, may be anybody's */
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
    if (now->store_bytes > 0 || now->stored_tokens > 0)
        put(f, PLAIN, "; %s from the store, which has %s", count(now->stored_tokens).text,
            bytes_of(now->store_bytes).text);
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

struct column {
    const char *name; /* NULL: after the last one */
    uint32_t width;   /* with the blank after it */
    int right;
};

static const struct column of_slot[] = {{"USER", 12, 0},  {"PID", 8, 1},      {"NAME", 17, 0},
                                        {"SLOT", 5, 1},   {"STATE", 9, 0},    {"CLASS", 12, 0},
                                        {"PROMPT", 8, 1}, {"BROKE", 8, 1},    {"OUTPUT", 8, 1},
                                        {"TOK/S", 9, 1},  {"COMMAND", 16, 0}, {0}};

/* A value for each column. `state` is the style of the column of that name. */
static void cells(struct frame *f, const struct column *columns, const char *const *values,
                  enum style all, enum style state)
{
    uint32_t at = 0;
    for (; columns->name; columns++, values++) {
        int width = (int)columns->width - 1, is_last = !columns[1].name;
        enum style style = state != PLAIN && strcmp(columns->name, "STATE") == 0 ? state : all;
        put(f, style, columns->right ? "%*.*s" : "%-*.*s", is_last && !columns->right ? 0 : width,
            width, *values);
        at += columns->width;
        if (!is_last) {
            put(f, all, " ");
            blanks(f, at);
        }
    }
    end_line(f);
}

static void names(struct frame *f, const struct column *columns)
{
    enum { MOST = 16 };
    const char *values[MOST];
    for (int i = 0; i < MOST && columns[i].name; i++)
        values[i] = columns[i].name;
    cells(f, columns, values, REVERSE, PLAIN);
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

static int is_idle(const struct top_slot *slot)
{
    return !strcmp(slot->state, "idle");
}

/* The prompt's tokens, or how much of it was read. */
static struct small prompt_of(const struct top_slot *slot)
{
    struct small s = count(slot->prompt);
    uint64_t kv = slot->kv < slot->prompt ? slot->kv : slot->prompt;
    if (!strcmp(slot->state, "prefill") && slot->prompt)
        snprintf(s.text, sizeof(s.text), "%.0f%%", 100 * (double)kv / (double)slot->prompt);
    return s;
}

static void slot_line(struct frame *f, const struct top_slot *slot)
{
    static const struct small none = {"-"};
    char pid[24] = "-", number[24];
    if (slot->pid)
        snprintf(pid, sizeof(pid), "%llu", (unsigned long long)slot->pid);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)slot->slot);
    struct small prompt = prompt_of(slot), output = count(slot->output),
                 speed_text = rate(slot->rate);
    struct small broke = slot->prefix_lost > NOT_BROKEN ? count(slot->prefix_break) : none;
    const char *const values[] = {slot->user,      pid,          slot->name[0] ? slot->name : "-",
                                  number,          slot->state,  slot->priority,
                                  prompt.text,     broke.text,   output.text,
                                  speed_text.text, slot->command};
    cells(f, of_slot, values, is_idle(slot) ? DIM : PLAIN, style_of(slot->state));
}

static void table(struct frame *f, const struct top_sample *now)
{
    names(f, of_slot);
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

/* ---- several daemons -------------------------------------------------------------------------- */

static const struct column of_daemon[] = {{"MODEL", 25, 0},
                                          {"MEMORY", 10, 1},
                                          {"KV USED", 8, 1},
                                          {"ACTIVE", 7, 1},
                                          {"TOK/S", 8, 1},
                                          {"WARM", 8, 1},
                                          {"DRAFTS", 8, 1},
                                          {"UP", 7, 1},
                                          {"DEVICE", 8, 1},
                                          {"PID", 8, 1},
                                          {"TYPE", 8, 1},
                                          {"CONTEXT", 8, 1},
                                          {0}};

static const struct column of_any_slot[] = {{"MODEL", 20, 0},   {"USER", 11, 0},  {"STATE", 9, 0},
                                            {"PROMPT", 8, 1},   {"OUTPUT", 8, 1}, {"TOK/S", 9, 1},
                                            {"COMMAND", 16, 0}, {"NAME", 65, 0},  {0}};

static struct small hours(uint64_t s)
{
    struct small text;
    snprintf(text.text, sizeof(text.text), "%llu:%02u", (unsigned long long)s / 3600,
             (unsigned)(s / 60 % 60));
    return text;
}

static double speed_of(const struct top_sample *now, const struct top_sample *before)
{
    if (!before || now->at_ns <= before->at_ns || now->output_tokens < before->output_tokens)
        return -1;
    return (double)(now->output_tokens - before->output_tokens) * 1e9 /
           (double)(now->at_ns - before->at_ns);
}

static void daemon_line(struct frame *f, const struct top_row *row)
{
    const struct top_sample *now = row->now;
    char active[48], pid[24];
    if (row->trouble) {
        put(f, PLAIN, "%-24.24s ", row->name);
        put(f, RED, "%s", row->trouble);
        end_line(f);
        return;
    }
    snprintf(active, sizeof(active), "%llu/%llu", (unsigned long long)now->slots_active,
             (unsigned long long)now->slots_used);
    snprintf(pid, sizeof(pid), "%llu", (unsigned long long)now->pid);
    const uint64_t held =
        now->pages_free < now->pages_total ? now->pages_total - now->pages_free : 0;
    struct small memory = bytes_of(now->rss_bytes), used = share(held, now->pages_total),
                 speed_text = rate(speed_of(now, row->before)), up = hours(now->uptime_s),
                 warm = share(now->cached_tokens, now->prompt_tokens),
                 drafts = share(now->accepted_drafts, now->drafted), context = count(now->context);
    const char *const values[] = {row->name,       memory.text, used.text,   active,
                                  speed_text.text, warm.text,   drafts.text, up.text,
                                  now->device,     pid,         now->type,   context.text};
    cells(f, of_daemon, values, now->slots_active ? BOLD : PLAIN, PLAIN);
}

static void any_slot_line(struct frame *f, const struct top_row *row, const struct top_slot *slot)
{
    struct small prompt = prompt_of(slot), output = count(slot->output),
                 speed_text = rate(slot->rate);
    const char *const values[] = {
        row->name,   slot->user,      slot->state,   prompt.text,
        output.text, speed_text.text, slot->command, slot->name[0] ? slot->name : "-"};
    cells(f, of_any_slot, values, is_idle(slot) ? DIM : PLAIN, style_of(slot->state));
}

/* The slots that are idle, or those that are not; at least one line is left for what does not fit.
 * Returns how many did not fit. */
static uint64_t slots_of(struct frame *f, const struct top_row *rows, size_t n, int idle)
{
    uint64_t more = 0;
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; !rows[i].trouble && k < rows[i].now->n_slots; k++) {
            const struct top_slot *slot = &rows[i].now->slots[k];
            if (is_idle(slot) != idle)
                continue;
            if (rows_left(f) > 1)
                any_slot_line(f, &rows[i], slot);
            else
                more++;
        }
    return more;
}

static void overview_head(struct frame *f, const struct top_row *rows, size_t n)
{
    uint64_t memory = 0, active = 0;
    double tokens = -1;
    for (size_t i = 0; i < n; i++) {
        double more = rows[i].trouble ? -1 : speed_of(rows[i].now, rows[i].before);
        memory += rows[i].trouble ? 0 : rows[i].now->rss_bytes;
        active += rows[i].trouble ? 0 : rows[i].now->slots_active;
        tokens = more < 0 ? tokens : tokens < 0 ? more : tokens + more;
    }
    put(f, BOLD, "%zu models", n);
    put(f, PLAIN, "  %s resident, ", bytes_of(memory).text);
    put(f, BOLD, "%s tokens/s", rate(tokens).text);
    put(f, PLAIN, ", %llu slot%s active", (unsigned long long)active, active == 1 ? "" : "s");
    end_line(f);
}

void top_overview(const struct top_row *rows, size_t n, const struct top_screen *screen,
                  struct buffer *out)
{
    struct frame f = {.screen = screen, .out = out};
    uint64_t more = 0;
    if (screen->live)
        buffer_text(out, "\033[H");
    overview_head(&f, rows, n);
    if (rows_left(&f) > 1)
        names(&f, of_daemon);
    for (size_t i = 0; i < n && rows_left(&f) > 1; i++)
        daemon_line(&f, &rows[i]);
    if (rows_left(&f) > 3) {
        end_line(&f);
        names(&f, of_any_slot);
        more = slots_of(&f, rows, n, 0);
        more += slots_of(&f, rows, n, 1);
    }
    for (size_t i = 0; i < n; i++)
        more += rows[i].trouble ? 0 : rows[i].now->slots_left_out;
    if (more && rows_left(&f)) {
        put(&f, DIM, "and %llu more", (unsigned long long)more);
        end_line(&f);
    }
    if (screen->live)
        buffer_text(out, "\033[J");
}
