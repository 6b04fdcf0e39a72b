/* loaded_vocab.c: describes the vocabulary from the file's keys, builds and shares it on a thread
 * of its own, compares two. */
#include "daemon/model/loaded_model_impl.h"

#include "ipc/segment.h"
#include "kernels/base/fail.h"
#include "kernels/gguf/gguf_vocab.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct vocab_string vocab_string_of(const struct gguf_string *from)
{
    return (struct vocab_string){.data = from->data, .bytes = from->bytes};
}

static struct vocab_string *vocab_strings(const struct gguf_string *from, uint32_t n)
{
    struct vocab_string *to = calloc(n ? n : 1, sizeof(*to));
    for (uint32_t i = 0; to && i < n; i++)
        to[i] = vocab_string_of(&from[i]);
    return to;
}

/* Translates the file's vocabulary into a description for ipc/vocab.h, field by field, without the
 * merges: a check needs only their number. */
static int describe_vocab(const struct gguf_vocab *file, struct vocab_desc *desc)
{
    vocab_desc_init(desc);
    desc->model = vocab_string_of(&file->model);
    desc->pre = vocab_string_of(&file->pre);
    desc->n_tokens = file->n_tokens;
    desc->types = file->types;
    desc->scores = file->scores;
    desc->n_merges = file->n_merges;
    desc->texts = vocab_strings(file->tokens, file->n_tokens);
    desc->roles[VOCAB_BOS] = file->ids.bos;
    desc->roles[VOCAB_EOS] = file->ids.eos;
    desc->roles[VOCAB_EOT] = file->ids.eot;
    desc->roles[VOCAB_EOM] = file->ids.eom;
    desc->roles[VOCAB_UNK] = file->ids.unk;
    desc->roles[VOCAB_PAD] = file->ids.pad;
    desc->roles[VOCAB_FIM_PREFIX] = file->ids.fim_pre;
    desc->roles[VOCAB_FIM_SUFFIX] = file->ids.fim_suf;
    desc->roles[VOCAB_FIM_MIDDLE] = file->ids.fim_mid;
    desc->roles[VOCAB_FIM_PAD] = file->ids.fim_pad;
    desc->roles[VOCAB_FIM_REPO] = file->ids.fim_rep;
    desc->roles[VOCAB_FIM_FILE] = file->ids.fim_sep;
    desc->add_bos = file->add_bos;
    desc->add_eos = file->add_eos;
    desc->add_space_prefix = file->add_space_prefix;
    desc->templates[VOCAB_TEMPLATE_CHAT] = vocab_string_of(&file->chat_template);
    desc->templates[VOCAB_TEMPLATE_TOOLS] = vocab_string_of(&file->chat_template_tools);
    return desc->texts ? 0 : -ENOMEM;
}

/* The vocabulary is built on one thread while the weights are loaded; it takes a tenth of the load
 * time. */
struct vocab_job {
    pthread_t thread;
    struct loaded_model *loaded;
    struct gguf_vocab file;
    struct vocab_desc desc; /* of the vocabulary to build */
    char line[512];
    int rc;
};

static void drop_description(struct vocab_job *job)
{
    free((void *)job->desc.texts);
    free((void *)job->desc.merges);
    job->desc.texts = job->desc.merges = NULL;
    gguf_vocab_close(&job->file);
}

static void close_job(struct vocab_job *job)
{
    drop_description(job);
    free(job);
}

/* Refuses what the keys alone rule out, before any weight is read. */
static int open_job(struct vocab_job *job, char *err, size_t err_bytes)
{
    int rc = gguf_vocab_open(job->loaded->gguf, &job->file, err, err_bytes);
    if (rc < 0)
        return rc == -ENOENT ? -ENOTSUP : rc; /* -ENOENT is reserved for missing files */
    rc = describe_vocab(&job->file, &job->desc);
    if (rc < 0)
        snprintf(err, err_bytes, "not enough memory for the vocabulary");
    else
        rc = vocab_check(&job->desc, err, err_bytes);
    return rc == -EINVAL ? -ENOTSUP : rc;
}

/* From now on it is read from the mapping that clients have, so that it is in memory once. */
static int share_vocab(struct loaded_model *loaded, const void *block, size_t bytes, char *err,
                       size_t err_bytes)
{
    int fd = segment_seal("hearth-vocab", block, bytes, err, err_bytes);
    if (fd < 0)
        return fd;
    int rc = segment_map_constant(fd, bytes, &loaded->vocab_shared, err, err_bytes);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    loaded->vocab_fd = fd;
    loaded->vocab_bytes = bytes;
    return vocab_open(loaded->vocab_shared, bytes, &loaded->vocab, err, err_bytes);
}

static int build_vocab(struct vocab_job *job)
{
    void *block = NULL;
    size_t bytes;
    job->desc.merges = vocab_strings(job->file.merges, job->file.n_merges);
    if (!job->desc.merges) {
        snprintf(job->line, sizeof(job->line), "not enough memory for the vocabulary");
        return -ENOMEM;
    }
    int rc = vocab_build(&job->desc, &block, &bytes, job->line, sizeof(job->line));
    if (rc == 0)
        rc = share_vocab(job->loaded, block, bytes, job->line, sizeof(job->line));
    free(block);
    return rc;
}

int loaded_vocab_of_grammars(const struct vocab *vocab, uint32_t n_vocab,
                             struct grammar_vocab **ret)
{
    uint32_t n = vocab->n_tokens < n_vocab ? vocab->n_tokens : n_vocab;
    struct grammar_token *tokens = calloc(n ? n : 1, sizeof(*tokens));
    struct vocab_token token;
    if (!tokens)
        return -ENOMEM;
    for (uint32_t id = 0; id < n; id++) {
        if (!vocab_find_token(vocab, id, &token))
            continue;
        bool is_text = token.type != VOCAB_TYPE_CONTROL && token.type != VOCAB_TYPE_UNKNOWN &&
                       token.type != VOCAB_TYPE_UNUSED;
        tokens[id] = (struct grammar_token){.bytes = token.bytes,
                                            .n_bytes = is_text ? token.n_bytes : 0,
                                            .is_end = token.end,
                                            .is_control = token.type == VOCAB_TYPE_CONTROL};
    }
    int rc = grammar_vocab_open(tokens, n, n_vocab, ret);
    free(tokens);
    return rc;
}

static void *vocab_thread(void *arg)
{
    struct vocab_job *job = arg;
    struct loaded_model *loaded = job->loaded;
    job->rc = build_vocab(job);
    drop_description(job);
    if (job->rc == 0 && !loaded->without_grammars) {
        job->rc = loaded_vocab_of_grammars(&loaded->vocab, loaded->model->n_vocab,
                                           &loaded->grammar_vocab);
        if (job->rc < 0)
            snprintf(job->line, sizeof(job->line), "not enough memory for the vocabulary");
    }
    return NULL;
}

int loaded_model_start_vocab(struct loaded_model *loaded, char *err, size_t err_bytes)
{
    struct vocab_job *job = calloc(1, sizeof(*job));
    if (!job) {
        snprintf(err, err_bytes, "not enough memory for the vocabulary");
        return -ENOMEM;
    }
    job->loaded = loaded;
    int rc = open_job(job, err, err_bytes);
    if (rc == 0) {
        rc = -pthread_create(&job->thread, NULL, vocab_thread, job);
        if (rc < 0)
            snprintf(err, err_bytes, "cannot start a thread for the vocabulary: %s", strerror(-rc));
    }
    if (rc < 0)
        close_job(job);
    else
        loaded->vocab_job = job;
    return rc;
}

int loaded_model_finish_vocab(struct loaded_model *loaded, char *err, size_t err_bytes)
{
    struct vocab_job *job = loaded->vocab_job;
    if (!job)
        return 0;
    pthread_join(job->thread, NULL);
    int rc = job->rc;
    if (rc < 0)
        snprintf(err, err_bytes, "%s: %s", loaded->path, job->line);
    close_job(job);
    loaded->vocab_job = NULL;
    return rc;
}

void loaded_model_close_vocab(struct loaded_model *loaded)
{
    grammar_vocab_close(loaded->grammar_vocab);
    loaded->grammar_vocab = NULL;
    if (!loaded->vocab_shared)
        return;
    munmap((void *)(uintptr_t)loaded->vocab_shared, loaded->vocab_bytes);
    close(loaded->vocab_fd);
    loaded->vocab_shared = NULL;
    memset(&loaded->vocab, 0, sizeof(loaded->vocab));
}

int loaded_model_compare_vocab(const struct vocab *model, const struct vocab *draft, char *err,
                               size_t err_bytes)
{
    struct vocab_token a, b;
    for (uint32_t id = 0; id < model->n_tokens && id < draft->n_tokens; id++) {
        if (!vocab_find_token(model, id, &a) || !vocab_find_token(draft, id, &b))
            break;
        if (a.text_bytes == b.text_bytes && !memcmp(a.text, b.text, a.text_bytes))
            continue;
        return fail(
            err, err_bytes, -ENOTSUP,
            "the draft model's vocabulary differs: its token %u is '%.*s', the model's is '%.*s'",
            id, (int)(b.text_bytes < 64 ? b.text_bytes : 64), b.text,
            (int)(a.text_bytes < 64 ? a.text_bytes : 64), a.text);
    }
    if (model->n_tokens == draft->n_tokens)
        return 0;
    snprintf(err, err_bytes,
             "the draft model's vocabulary differs: it has %u tokens, the model's has %u",
             draft->n_tokens, model->n_tokens);
    return -ENOTSUP;
}
