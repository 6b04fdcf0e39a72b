/* The pass contract on the CUDA backend: samples. A pass samples what sample_token samples from the
 * CPU's logits, bit for bit and error for error: every parameter, alone and combined, over logits
 * of all shapes. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/num.h"
#include "tests/gpu/contract.h"
#include "tests/gpu/request.h"

/* ---- a few ----------------------------------------------------------------------------------- */

/* Parameters of many kinds; the device must sample what sample_token samples from the CPU's
 * logits. */
static struct sampler_params some_params(uint32_t i)
{
    struct sampler_params p;
    sampler_params_init(&p);
    p.seed = 77 + i;
    p.temperature = i % 4 == 0 ? 0.0f : 0.7f;
    p.top_k = i % 3 == 1 ? 40 : 0;
    p.top_p = i % 4 == 2 ? 0.9f : 1.0f;
    p.min_p = i % 4 == 3 ? 0.05f : 0.0f;
    p.repeat_penalty = i % 5 == 4 ? 1.3f : 1.0f;
    p.logprobs = i % 2 == 1;
    p.n_top = i % 2 == 1 ? 3 : 0;
    return p;
}

static bool same_sample(const struct sample *a, const struct sample *b)
{
    if (a->token != b->token || num_bits(a->logprob) != num_bits(b->logprob) ||
        a->n_top != b->n_top)
        return false;
    for (uint32_t i = 0; i < a->n_top; i++) {
        if (a->top[i].id != b->top[i].id ||
            num_bits(a->top[i].logprob) != num_bits(b->top[i].logprob))
            return false;
    }
    return true;
}

/* Rows of a model whose logits are capped, or not, one a pass. */
static void check_samples(const char *arch)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q8_0);
    struct subject s;
    struct sampler_scratch *scratch;
    struct sample samples[24];
    uint32_t pages[SUBJECT_PAGES], wrong = 0;
    shape.arch = arch;
    shape.n_vocab = 9001; /* three parts on the device */
    subject_init(&s, &shape, 24);
    subject_pages(1, pages);
    if (sampler_scratch_open(s.model->n_vocab, &scratch))
        abort();
    struct backend *b = subject_open(&s, &s.device, 24, SUBJECT_PAGES);
    for (uint32_t i = 0; i < 24; i++) {
        struct sampler_params params = some_params(i);
        struct pass_sequence sequence = {
            .pages = pages, .tokens = s.tokens, .prompt_length = 2, .sampler = &params};
        struct row row = {0, i, s.tokens[i], ROW_SAMPLE, NULL};
        struct row_result result = {0};
        struct pass pass = {PASS_CANONICAL, 1, &row, &sequence, &result, 1};
        int rc = s.device.start(b, &pass);
        rc = rc ? rc : s.device.finish(b);
        sample_token(&params, s.logits + (size_t)i * s.model->n_vocab, s.model->n_vocab, s.tokens,
                     i + 1, 2, scratch, &samples[i]);
        wrong += rc || result.status || !same_sample(&samples[i], &result.sample);
    }
    sampler_scratch_close(scratch);
    s.device.close(b);
    subject_fini(&s);
    EXPECT(wrong == 0, "%s: %u of 24 samples are wrong", arch, wrong);
}

void a_row_samples_from_its_own_logits(void)
{
    check_samples("llama");
    check_samples("gemma4");
}

enum { SAMPLE_ROWS = 24, SAMPLES = 10, SAMPLE_SEQUENCES = 3 };

/* Rows of three sequences in one pass. Some ask for a sample with log-probabilities and
 * alternatives, for logits, or for both. */
static uint32_t wants_of(uint32_t r)
{
    static const uint32_t wants[] = {ROW_SAMPLE, 0, ROW_SAMPLE | ROW_LOGITS, 0, ROW_LOGITS, 0};
    return r < 2 * SAMPLES ? wants[r % 6] : 0;
}

/* Counts the results that differ from sample_token's on the CPU's logits of the same row. */
static uint32_t wrong_results(const struct subject *s, const struct mixed *x,
                              const struct sampler_params *params, struct sampler_scratch *scratch)
{
    const size_t n = s->model->n_vocab;
    float *logits = subject_floats(s, 1); /* sample_token changes them */
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < x->n; r++) {
        const uint32_t position = x->rows[r].position, wants = x->rows[r].wants;
        struct sample want;
        memcpy(logits, s->logits + position * n, n * sizeof(*logits));
        wrong += x->results[r].status != 0;
        if (wants & ROW_LOGITS)
            wrong += subject_differs(logits, x->results[r].logits, n) != n;
        if (!(wants & ROW_SAMPLE))
            continue;
        sample_token(&params[x->rows[r].sequence], logits, (uint32_t)n, s->tokens, position + 1, 2,
                     scratch, &want);
        wrong += !same_sample(&want, &x->results[r].sample);
    }
    free(logits);
    return wrong;
}

void a_pass_may_sample_some_of_its_rows(void)
{
    struct tiny_model shape = tiny_model_default(QUANT_Q4_0);
    struct subject s;
    struct backend *b = NULL;
    struct sampler_scratch *scratch;
    struct sampler_params params[4 * SAMPLE_SEQUENCES];
    uint32_t pages[SUBJECT_PAGES], wrong = 0;
    char err[256] = "";
    shape.n_vocab = 5003;
    subject_init(&s, &shape, SAMPLE_ROWS);
    subject_pages(7, pages);
    if (sampler_scratch_open(s.model->n_vocab, &scratch))
        abort();
    const struct backend_limits limits = {.rows = SAMPLE_ROWS,
                                          .samples = SAMPLES,
                                          .pages = SUBJECT_PAGES,
                                          .context = s.model->n_context,
                                          .threads = 2};
    int rc = s.device.open(s.model, &limits, &b, err, sizeof(err));
    float *got = subject_floats(&s, SAMPLE_ROWS);
    for (uint32_t i = 0; i < 4 * SAMPLE_SEQUENCES; i++) {
        params[i] = some_params(i);
        params[i].n_top = i % 3 == 0 ? 0 : 5;
        params[i].logprobs = i % 3 != 0;
    }
    for (uint32_t turn = 0; turn < 4 && rc == 0; turn++) { /* other parameters in each */
        const struct sampler_params *mine = params + turn * SAMPLE_SEQUENCES;
        struct mixed x = {.n = 0};
        for (uint32_t i = 0; i <= OTHERS; i++)
            x.sequences[i] = (struct pass_sequence){.pages = pages + 8 * i,
                                                    .tokens = s.tokens,
                                                    .prompt_length = 2,
                                                    .sampler = &mine[i % SAMPLE_SEQUENCES]};
        for (uint32_t r = 0; r < SAMPLE_ROWS; r++) {
            x.results[r].logits = got + (size_t)r * s.model->n_vocab;
            add_rows(&x, r % SAMPLE_SEQUENCES, s.tokens, r / SAMPLE_SEQUENCES, 1, wants_of(r));
        }
        rc = run_mixed(&s, b, &x, PASS_CANONICAL);
        wrong += rc ? 0 : wrong_results(&s, &x, mine, scratch);
    }
    sampler_scratch_close(scratch);
    s.device.close(b);
    free(got);
    subject_fini(&s);
    EXPECT(rc == 0, "a pass failed: %d %s", rc, err);
    EXPECT(wrong == 0, "%u results are wrong", wrong);
}

/* ---- all kinds ------------------------------------------------------------------------------- */

enum { REQUEST_ROWS = 12, REQUEST_SEQUENCES = 3 };

/* Passes of rows that ask for samples of any kind, some for logits as well. */
struct sample_requests {
    struct subject s;
    struct backend *b;
    struct sampler_scratch *scratch;
    float *got;
    uint64_t seed;
    uint32_t pages[SUBJECT_PAGES], sampled, refused;
    uint64_t masks[REQUEST_ROWS][REQUEST_MASK];
    struct sample_request request[REQUEST_SEQUENCES];
    struct mixed x;
};

static struct sample_requests *requests_open(uint32_t n_vocab, enum head head)
{
    struct sample_requests *w = calloc(1, sizeof(*w));
    struct tiny_model shape = tiny_model_default(QUANT_F32);
    shape.n_layer = 1;
    shape.n_embd = shape.n_ff = 32;
    shape.n_vocab = n_vocab;
    shape.untied = true;
    shape.scale = 4;
    shape.seed = 50 + head;
    if (!w || sampler_scratch_open(n_vocab, &w->scratch))
        abort();
    subject_init(&w->s, &shape, REQUEST_ROWS);
    for (uint32_t i = 0; i < REQUEST_ROWS; i++) /* few distinct: penalties apply */
        w->s.tokens[i] %= 4;
    request_shape_head(&w->s, head);
    subject_pages(head, w->pages);
    w->b = subject_open(&w->s, &w->s.device, REQUEST_ROWS, SUBJECT_PAGES);
    w->got = subject_floats(&w->s, REQUEST_ROWS);
    w->seed = 1000 + head;
    return w;
}

static void requests_close(struct sample_requests *w)
{
    sampler_scratch_close(w->scratch);
    w->s.device.close(w->b);
    free(w->got);
    subject_fini(&w->s);
    free(w);
}

/* Rows 0, 1, ... of each sequence in turn. */
static void plan_requests(struct sample_requests *w, uint32_t rows)
{
    struct mixed *x = &w->x;
    x->n = 0;
    for (uint32_t i = 0; i < REQUEST_SEQUENCES; i++)
        x->sequences[i] = (struct pass_sequence){.pages = w->pages + 8 * i,
                                                 .tokens = w->s.tokens,
                                                 .prompt_length = w->request[i].prompt_length,
                                                 .sampler = &w->request[i].params};
    for (uint32_t r = 0; r < rows; r++) {
        const bool logits = request_one_in(&w->seed, 6);
        x->results[r] = (struct row_result){.logits = w->got + (size_t)r * w->s.model->n_vocab};
        add_rows(x, r % REQUEST_SEQUENCES, w->s.tokens, r / REQUEST_SEQUENCES, 1,
                 request_one_in(&w->seed, 8) ? 0
                 : logits                    ? ROW_SAMPLE | ROW_LOGITS
                                             : ROW_SAMPLE);
        x->rows[r].allowed = request_mask(&w->seed, w->s.model->n_vocab, w->masks[r]);
    }
}

/* True when row r's result is what sample_token returns for the CPU's logits. */
static bool as_requested(struct sample_requests *w, uint32_t r)
{
    const struct row *row = &w->x.rows[r];
    const struct row_result *result = &w->x.results[r];
    const struct pass_sequence *s = &w->x.sequences[row->sequence];
    const uint32_t n = w->s.model->n_vocab;
    float *logits = w->s.logits + (size_t)row->position * n;
    struct sampler_params p = *s->sampler;
    struct sample want;
    if (!(row->wants & ROW_SAMPLE))
        return result->status == 0;
    p.allowed = row->allowed;
    const int rc = sample_token(&p, logits, n, s->tokens, row->position + 1, s->prompt_length,
                                w->scratch, &want);
    w->sampled += rc == 0;
    w->refused += rc != 0;
    if ((row->wants & ROW_LOGITS) && subject_differs(logits, result->logits, n) != n)
        return false;
    return result->status == rc && (rc != 0 || same_sample(&want, &result->sample));
}

/* Row r's parameters and result, for a message. */
static const char *request_text(const struct sample_requests *w, uint32_t r)
{
    static char text[400];
    const struct sampler_params *p = w->x.sequences[w->x.rows[r].sequence].sampler;
    snprintf(text, sizeof(text),
             "row %u, temperature %g, top-k %u, typical-p %g, top-p %g, min-p %g, penalties %g %g "
             "%g of %d, order %u: %u %u %u %u %u %u, %u biases, %s, logprobs %d of %u: status %d, "
             "token %u",
             r, (double)p->temperature, p->top_k, (double)p->typical_p, (double)p->top_p,
             (double)p->min_p, (double)p->repeat_penalty, (double)p->frequency_penalty,
             (double)p->presence_penalty, p->penalty_last_n, p->n_order, p->order[0], p->order[1],
             p->order[2], p->order[3], p->order[4], p->order[5], p->n_bias,
             w->x.rows[r].allowed ? "masked" : "no mask", p->logprobs, p->n_top,
             w->x.results[r].status, w->x.results[r].sample.token);
    return text;
}

static void run_requests(struct sample_requests *w, const char *what)
{
    const int rc = run_mixed(&w->s, w->b, &w->x, PASS_CANONICAL);
    EXPECT(rc == 0, "%s: a pass failed: %d", what, rc);
    for (uint32_t r = 0; r < w->x.n; r++)
        EXPECT(as_requested(w, r), "%s: %s", what, request_text(w, r));
}

static void check_requests(struct sample_requests *w, uint32_t rows, const char *what)
{
    plan_requests(w, rows);
    run_requests(w, what);
}

typedef void request_function(uint64_t *seed, uint32_t n_vocab, struct sample_request *w);

static void check_head(enum head head, uint32_t n_vocab, uint32_t passes, uint32_t rows,
                       request_function *make)
{
    struct sample_requests *w = requests_open(n_vocab, head);
    const uint32_t before = failures;
    char what[64];
    for (uint32_t i = 0; i < passes && failures == before; i++) {
        snprintf(what, sizeof(what), "head %u, %u tokens, pass %u", head, n_vocab, i);
        for (uint32_t k = 0; k < REQUEST_SEQUENCES; k++)
            make(&w->seed, n_vocab, &w->request[k]);
        check_requests(w, rows, what);
    }
    const uint32_t sampled = w->sampled, refused = w->refused;
    requests_close(w);
    EXPECT(failures != before || sampled > refused, "only %u of %u sampled", sampled,
           sampled + refused);
}

void samples_of_every_kind_equal_the_cpus(void)
{
    static const uint32_t vocabularies[] = {1031, 4097,
                                            9001}; /* one, two and three parts on the device */
    for (uint32_t head = 0; head < HEADS; head++)
        check_head((enum head)head, vocabularies[head % 3], simulated() ? 4 : 10, REQUEST_ROWS,
                   request_random);
}

/* Large enough that the kernel first searches among the most likely tokens. */
void samples_of_a_large_vocabulary_equal_the_cpus(void)
{
    static const enum head heads[] = {HEAD_STEEP, HEAD_PLAIN, HEAD_TIES, HEAD_FLAT};
    for (uint32_t i = 0; i < 4; i++)
        check_head(heads[i], REQUEST_VOCAB, simulated() ? 2 : 5, 4, request_random);
}

/* The cut comes first: each block publishes its histogram over all tokens, and few tokens become
 * candidates. Flat logits fill some bins, those of a steep head all of them and the overflow. */
void samples_cut_first_by_a_share_equal_the_cpus(void)
{
    for (uint32_t head = 0; head < HEADS; head++)
        check_head((enum head)head, 9001, head == HEAD_PLAIN && !simulated() ? 20 : 4, 4,
                   request_random_all_tokens);
}

/* Two tokens of logits 0 and b with total weight S, and a p such that p S exceeds the first one's
 * weight by less than one unit: top-p has to keep both. Returns p, 0 for none. */
static float share_of_one_and_a_bit(float b)
{
    const uint64_t one = UINT64_C(1) << 40, sum = one + (uint64_t)(num_exp(b) * 0x1p40f);
    for (uint32_t near = 0; near < 3; near++) {
        const float p = num_float(num_bits((float)one / (float)sum) - 1 + near);
        const unsigned __int128 product = (unsigned __int128)sum * (uint64_t)(p * 0x1p40f);
        if ((uint64_t)(product >> 40) == one && (product & (one - 1)) != 0)
            return p;
    }
    return 0.0f;
}

void top_p_rounds_its_share_up(void)
{
    struct sample_requests *w = requests_open(1031, HEAD_ZEROS);
    const uint32_t before = failures;
    float b = -0.5f, p = 0.0f;
    for (uint32_t i = 0; i < 1 << 22 && p == 0.0f; i++) {
        b = num_float(num_bits(b) + 1);
        p = share_of_one_and_a_bit(b);
    }
    for (uint32_t k = 0; k < REQUEST_SEQUENCES; k++) {
        request_random(&w->seed, w->s.model->n_vocab, &w->request[k]);
        sampler_params_init(&w->request[k].params);
        w->request[k].params.seed = k;
        w->request[k].params.temperature = 1.0f;
        w->request[k].params.top_p = p;
        w->request[k].params.bias = w->request[k].bias;
        w->request[k].params.n_bias = 1;
        w->request[k].bias[0] = (struct sample_bias){2, b};
    }
    plan_requests(w, REQUEST_ROWS);
    memset(w->masks, 0, sizeof(w->masks));
    for (uint32_t r = 0; r < REQUEST_ROWS; r++) { /* tokens 1 and 2 */
        w->masks[r][0] = 6;
        w->x.rows[r].allowed = w->masks[r];
    }
    run_requests(w, "a share of one and a bit");
    uint32_t second = 0;
    for (uint32_t r = 0; r < REQUEST_ROWS; r++)
        second += w->x.results[r].sample.token == 2;
    requests_close(w);
    EXPECT(p > 0.0f && (failures != before || second > 0), "p %g: the second is never drawn",
           (double)p);
}

/* ---- sampled by the host, or refused
 * ---------------------------------------------------------- */

/* Infinite rewards for repeated tokens, which may also be masked. */
static void penalize_before_top_k(struct sampler_params *p)
{
    static const uint8_t order[] = {SAMPLE_TEMPERATURE, SAMPLE_PENALTIES, SAMPLE_TOP_K};
    memcpy(p->order, order, sizeof(order));
    p->n_order = sizeof(order);
    p->temperature = 0.9f;
    p->frequency_penalty = -FLT_MAX;
    p->penalty_last_n = -1;
    p->top_k = 5;
}

/* A penalty after a cut turns a logit infinite that it should lower: no sample. */
static void overflow_after_top_k(struct sample_request *w)
{
    static const uint8_t order[] = {SAMPLE_TOP_K, SAMPLE_PENALTIES};
    struct sampler_params *p = &w->params;
    memcpy(p->order, order, sizeof(order));
    p->n_order = sizeof(order);
    p->temperature = 1.0f;
    p->repeat_penalty = 1e-37f;
    p->frequency_penalty = p->presence_penalty = 0.0f;
    p->penalty_last_n = -1;
    p->top_k = 40;
    for (uint32_t i = 0; i < 3; i++) /* the sequences have four tokens */
        w->bias[i] = (struct sample_bias){i, 1e6f};
}

/* Invalid parameters, and more biases than fit on the device: the same errors and samples as the
 * CPU's. */
void invalid_parameters_are_answered_as_by_the_cpu(void)
{
    struct sample_requests *w = requests_open(9001, HEAD_STEEP);
    const uint32_t n = w->s.model->n_vocab, before = failures;
    uint32_t tokens[REQUEST_ROWS];
    char what[32];
    memcpy(tokens, w->s.tokens, sizeof(tokens));
    for (uint32_t i = 0; i < 10; i++) {
        snprintf(what, sizeof(what), "strange %u", i);
        for (uint32_t k = 0; k < REQUEST_SEQUENCES; k++) {
            request_random(&w->seed, n, &w->request[k]);
            request_biases(&w->seed, n, i == 8 ? MOST_BIASES - 1000 * k : 3, &w->request[k]);
            w->request[k].params.penalty_answer_only = false;
        }
        struct sampler_params *p = &w->request[1].params;
        p->repeat_penalty = i == 0 ? NAN : i == 1 ? 0.0f : i == 7 ? 1.5f : p->repeat_penalty;
        p->temperature = i == 3 ? INFINITY : i == 4 ? NAN : p->temperature;
        p->n_order = i == 5 ? 7 : SAMPLE_STAGES;
        if (i == 2) /* before a cut: a NaN whose sign depends on the processor */
            penalize_before_top_k(p);
        if (i == 9)
            overflow_after_top_k(&w->request[1]);
        p->penalty_last_n = i == 7 ? -1 : p->penalty_last_n;
        w->request[1].bias[2].id = i == 6 ? n : w->request[1].bias[2].id;
        if (i == 7) /* only sequence 1 has penalties */
            for (uint32_t k = 0; k < REQUEST_SEQUENCES; k++)
                w->request[k].params.repeat_penalty = k == 1 ? 1.5f : 1.0f;
        check_requests(w, REQUEST_ROWS, what);
    }
    const bool tried = w->refused > 0;
    requests_close(w);
    EXPECT(failures != before || tried, "nothing was refused");
}

/* With one logit that is not finite, a row that asks for anything is poisoned in the head. */
void a_nonfinite_logit_poisons_its_row(void)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    for (uint32_t v = 0; v < 3; v++) {
        struct sample_requests *w = requests_open(9001, HEAD_PLAIN);
        const uint32_t n_vocab = w->s.model->n_vocab;
        uint32_t wrong = 0;
        subject_head(&w->s)[(size_t)(n_vocab - 1) * w->s.model->n_embd] = values[v];
        w->s.device.close(w->b);
        w->b = subject_open(&w->s, &w->s.device, REQUEST_ROWS, SUBJECT_PAGES);
        for (uint32_t k = 0; k < REQUEST_SEQUENCES; k++)
            request_random(&w->seed, n_vocab, &w->request[k]);
        plan_requests(w, REQUEST_ROWS);
        const int rc = run_mixed(&w->s, w->b, &w->x, PASS_CANONICAL);
        for (uint32_t r = 0; r < w->x.n; r++) {
            const struct row_result *result = &w->x.results[r];
            const bool bad = w->x.rows[r].wants != 0;
            wrong += result->status != (bad ? -EDOM : 0);
            wrong += bad && result->layer != w->s.model->n_layer;
        }
        requests_close(w);
        EXPECT(rc == 0 && wrong == 0, "value %u: %u rows are wrong (%d)", v, wrong, rc);
    }
}
