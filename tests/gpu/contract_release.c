/* The pass contract on the CUDA backend, memory that is committed as pages and states are used and given back when they are
 * released: no bit of other ones changes, and on the simulator every byte is counted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "tests/gpu/contract.h"

/* A page of a layer is 128 KiB. */
enum { TEXT = 90, HALF = 64, LAYER_PAGE = 128 << 10, MOST_PAGES = 3 };

static struct tiny_model shape_of_pages(uint32_t window)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    shape.arch = window > 0 ? "gemma3" : "llama";
    shape.window = window;
    shape.n_head = shape.n_head_kv = 4;
    shape.head_dim = 256;
    shape.n_layer = 2;
    return shape;
}

/* Memory of the device that is free. */
static size_t free_bytes(void)
{
    struct device device;
    char err[256];
    return device_choose(DEVICE_CUDA, &device, err, sizeof(err)) == 0 ? device.free_bytes : 0;
}

/* Of an instance whose memory is counted: free bytes before its first pass, and bytes of a granule. */
struct account {
    size_t before, granule;
};

/* A GPU's free memory is shared with the tests beside this one. */
static bool has_taken(const struct account *a, size_t granules)
{
    return !simulated() || a->before - free_bytes() == granules * a->granule;
}

/* On the simulator four pages of a layer for each layer of a class are a granule; a GPU's is 2 MiB. */
static void set_granule(size_t bytes)
{
    char text[24];
    snprintf(text, sizeof(text), "%zu", bytes);
    setenv("HEARTH_CUDASIM_GRANULE", text, 1);
}

/* Positions [from, to) of the subject's text in one pass; whether the logits are the CPU's. */
static int compute_sequence(const struct subject *s, struct backend *b,
                            const struct pass_sequence *sequence, uint32_t from, uint32_t to,
                            bool *ret_same)
{
    const size_t n_vocab = s->model->n_vocab, n = (to - from) * n_vocab;
    struct row rows[TEXT] = {0};
    struct row_result results[TEXT] = {0};
    float *got = subject_floats(s, TEXT);
    const struct pass pass = {PASS_CANONICAL, to - from, rows, sequence, results, 1};
    for (uint32_t i = 0; i < pass.n_rows; i++) {
        rows[i] =
            (struct row){.position = from + i, .token = s->tokens[from + i], .wants = ROW_LOGITS};
        results[i].logits = got + i * n_vocab;
    }
    int rc = s->device.start(b, &pass);
    rc = rc ? rc : s->device.finish(b);
    *ret_same = subject_differs(s->logits + from * n_vocab, got, n) == n;
    free(got);
    return rc;
}

/* The same in these pages of both classes. */
static int compute(const struct subject *s, struct backend *b, const uint32_t *pages, uint32_t from,
                   uint32_t to, bool *ret_same)
{
    const struct pass_sequence sequence = {.pages = pages, .window_pages = pages};
    return compute_sequence(s, b, &sequence, from, to, ret_same);
}

static void release_all(const struct subject *s, struct backend *b, const uint32_t *pages,
                        bool windows)
{
    for (uint32_t i = 0; i < MOST_PAGES; i++) {
        s->device.release_page(b, PAGES_FULL, pages[i]);
        if (windows)
            s->device.release_page(b, PAGES_WINDOW, pages[i]);
    }
}

static struct backend *open_pages(const struct subject *s, bool windows)
{
    const struct backend_limits limits = {.rows = TEXT,
                                          .samples = TEXT,
                                          .pages = SUBJECT_PAGES,
                                          .window_pages = windows ? SUBJECT_PAGES : 0,
                                          .context = s->model->n_context,
                                          .threads = 2};
    struct backend *b = NULL;
    char err[256] = "";
    if (s->device.open(s->model, &limits, &b, err, sizeof(err)) != 0)
        printf("%s\n", err);
    return b;
}

/* Two texts share a granule; four pages of a class are one. The first one's pages are released, and taken again. With windows
 * one of the two layers has pages of its own. */
static void check_released(bool windows)
{
    const uint32_t classes = windows ? 2 : 1;
    static const uint32_t first[] = {0, 1, 2}, second[] = {3, 5, 20}, again[] = {9, 1, 10};
    const struct tiny_model shape = shape_of_pages(windows ? 40 : 0);
    struct subject s;
    bool same[4] = {0}, counted[6] = {0};
    set_granule(4 * 2 * LAYER_PAGE / classes);
    subject_init(&s, &shape, TEXT);
    struct backend *b = open_pages(&s, windows);
    struct backend_info info;
    EXPECT(b != NULL, "no instance");
    s.device.describe(b, &info);
    const struct account account = {free_bytes(), 4 * info.page_bytes};
    int rc = compute(&s, b, first, 0, TEXT, &same[0]);
    counted[0] = has_taken(&account, classes);
    rc = rc ? rc : compute(&s, b, second, 0, HALF, &same[1]);
    counted[1] = has_taken(&account, 2 * classes);
    release_all(&s, b, first, windows);
    counted[2] = has_taken(&account, 2 * classes); /* page 3 is there */
    rc = rc ? rc : compute(&s, b, second, HALF, TEXT, &same[2]);
    counted[3] = has_taken(&account, 3 * classes);
    rc = rc ? rc : compute(&s, b, again, 0, TEXT, &same[3]);
    counted[4] = has_taken(&account, 4 * classes);
    release_all(&s, b, second, windows);
    release_all(&s, b, again, windows);
    release_all(&s, b, again, windows); /* nothing more */
    counted[5] = has_taken(&account, 0);
    s.device.close(b);
    subject_fini(&s);
    unsetenv("HEARTH_CUDASIM_GRANULE");
    EXPECT(info.page_bytes == 2 * LAYER_PAGE / classes, "pages of %zu bytes", info.page_bytes);
    EXPECT(rc == 0, "a pass failed: %d", rc);
    for (uint32_t i = 0; i < 4; i++)
        EXPECT(same[i], "text %u has other logits", i);
    for (uint32_t i = 0; i < 6; i++)
        EXPECT(counted[i], "step %u: other memory is taken", i);
}

void released_pages_are_given_back(void)
{
    check_released(false);
    check_released(true);
}

/* The device has no virtual memory: all pages stay, and a line says so. */
void pages_stay_where_memory_cannot_be_given_back(void)
{
    static const uint32_t pages[] = {0, 1, 2};
    const struct tiny_model shape = shape_of_pages(0);
    struct subject s;
    struct backend_info info;
    bool same[2] = {0};
    if (!may_fail())
        return;
    setenv("HEARTH_CUDASIM_GRANULE", "0", 1);
    subject_init(&s, &shape, TEXT);
    struct backend *b = open_pages(&s, false);
    unsetenv("HEARTH_CUDASIM_GRANULE");
    EXPECT(b != NULL, "no instance");
    s.device.describe(b, &info);
    const bool said = info.note && strstr(info.note, "keep all of kv-bytes");
    const size_t before = free_bytes();
    int rc = compute(&s, b, pages, 0, TEXT, &same[0]);
    release_all(&s, b, pages, false);
    const size_t after = free_bytes();
    rc = rc ? rc : compute(&s, b, pages, 0, TEXT, &same[1]);
    s.device.close(b);
    subject_fini(&s);
    EXPECT(rc == 0 && same[0] && same[1], "other logits (%d)", rc);
    EXPECT(said, "no line says that nothing is given back");
    EXPECT(before == after, "%zu bytes were free, now %zu", before, after);
}

/* Others took the device's memory meanwhile: the pass that needs a new page fails with a line, and none before it. */
void a_page_without_memory_breaks_its_instance(void)
{
    static const uint32_t pages[] = {0, 20, 30};
    const struct tiny_model shape = shape_of_pages(0);
    struct subject s;
    bool same[3];
    if (!may_fail())
        return;
    subject_init(&s, &shape, TEXT);
    struct backend *b = open_pages(&s, false);
    EXPECT(b != NULL, "no instance");
    int rc = compute(&s, b, pages, 0, 30, &same[0]);
    setenv("HEARTH_CUDASIM_FAIL", "malloc@0=2", 1);
    rc = rc ? rc : compute(&s, b, pages, 30, 32, &same[1]);
    const int failed = compute(&s, b, pages, 32, TEXT, &same[2]);
    unsetenv("HEARTH_CUDASIM_FAIL");
    const bool said = strstr(s.device.error(b), "lower kv-bytes") != NULL;
    const int broken = compute(&s, b, pages, 32, TEXT, &same[2]);
    s.device.release_page(b, PAGES_FULL, 0);
    s.device.close(b);
    subject_fini(&s);
    EXPECT(rc == 0 && same[0] && same[1], "a pass in a page that is there: %d", rc);
    EXPECT(failed == -EIO && said && broken == -EIO, "no memory: %d, then %d", failed, broken);
}

/* The same by a state that comes to hold all of it. */
static int compute_state(const struct subject *s, struct backend *b, struct pass_state state,
                         uint32_t from, uint32_t to, bool *ret_same)
{
    const uint32_t pages[] = {0, 1, 2};
    state.commit = to - from;
    const struct pass_sequence sequence = {.pages = pages, .state = state};
    return compute_sequence(s, b, &sequence, from, to, ret_same);
}

/* A text's state is kept and released; the text goes on from the kept one in the memory that was released. */
void released_states_are_given_back(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    bool same[3] = {0};
    shape.arch = "qwen35";
    shape.seed = 71;
    subject_init(&s, &shape, TEXT);
    struct backend *b = subject_open(&s, &s.device, TEXT, SUBJECT_PAGES);
    const size_t before = free_bytes();
    const struct pass_state begin = {
        .from = BACKEND_STATE_ZERO, .own = 2, .n_keep = 1, .keep = {{.position = HALF, .id = 5}}};
    int rc = compute_state(&s, b, begin, 0, TEXT, &same[0]);
    const size_t both = before - free_bytes();
    s.device.release_state(b, 2);
    const size_t kept = before - free_bytes();
    rc = rc ? rc
            : compute_state(&s, b, (struct pass_state){.from = 5, .own = 2}, HALF, TEXT, &same[1]);
    s.device.release_state(b, 5);
    rc = rc ? rc
            : compute_state(&s, b, (struct pass_state){.from = BACKEND_STATE_ZERO, .own = 5}, 0,
                            TEXT, &same[2]);
    s.device.release_state(b, 2);
    s.device.release_state(b, 5);
    for (uint32_t i = 0; i < SUBJECT_PAGES; i++)
        s.device.release_page(b, PAGES_FULL, i);
    const size_t left = before - free_bytes();
    s.device.close(b);
    subject_fini(&s);
    EXPECT(rc == 0 && same[0] && same[1] && same[2], "other logits (%d)", rc);
    EXPECT(!simulated() || (kept > 0 && kept < both && left == 0),
           "taken: %zu bytes by two states, %zu by one, %zu by none", both, kept, left);
}
