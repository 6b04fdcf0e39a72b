/* fake_daemon.c - see fake_daemon.h. */
#include "tests/rig/fake_daemon.h"

#include "ipc/vocab.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int fake_without_template;
const char *fake_tools_template;

/* A small SPM vocabulary with all byte tokens. */
static void make_vocab(struct fake_daemon *f)
{
    static char bytes[256][8];
    static struct vocab_string texts[FAKE_VOCAB];
    static const char *const words[] = {"\xe2\x96\x81Once",
                                        "\xe2\x96\x81upon",
                                        "\xe2\x96\x81"
                                        "a",
                                        "\xe2\x96\x81"
                                        "b",
                                        "<|return|>",
                                        "<|call|>",
                                        "<|channel|>"};
    static const char *const specials[] = {"<unk>", "<s>", "</s>"};
    static int32_t types[FAKE_VOCAB];
    static float scores[FAKE_VOCAB];
    for (unsigned i = 0; i < FAKE_VOCAB; i++) {
        const char *text = i < FAKE_BYTE   ? specials[i]
                           : i < FAKE_ONCE ? bytes[i - FAKE_BYTE]
                                           : words[i - FAKE_ONCE];
        if (i >= FAKE_BYTE && i < FAKE_ONCE)
            snprintf(bytes[i - FAKE_BYTE], sizeof(bytes[0]), "<0x%02X>", i - FAKE_BYTE);
        texts[i] = (struct vocab_string){.data = text, .bytes = (uint32_t)strlen(text)};
        types[i] = i == 0                        ? VOCAB_TYPE_UNKNOWN
                   : i < FAKE_BYTE || i > FAKE_B ? VOCAB_TYPE_CONTROL
                   : i < FAKE_ONCE               ? VOCAB_TYPE_BYTE
                                                 : VOCAB_TYPE_NORMAL;
        scores[i] = -(float)i;
    }
    struct vocab_desc d;
    vocab_desc_init(&d);
    d.model = (struct vocab_string){.data = "llama", .bytes = 5};
    d.n_tokens = FAKE_VOCAB;
    d.texts = texts;
    d.types = types;
    d.scores = scores;
    d.roles[VOCAB_UNK] = 0;
    d.roles[VOCAB_BOS] = FAKE_BOS;
    d.roles[VOCAB_EOS] = FAKE_EOS;
    if (!fake_without_template)
        d.templates[VOCAB_TEMPLATE_CHAT] =
            (struct vocab_string){.data = FAKE_TEMPLATE, .bytes = strlen(FAKE_TEMPLATE)};
    if (fake_tools_template)
        d.templates[VOCAB_TEMPLATE_TOOLS] = (struct vocab_string){
            .data = fake_tools_template, .bytes = (uint32_t)strlen(fake_tools_template)};
    void *block;
    size_t size;
    char err[256];
    ck_assert_msg(vocab_build(&d, &block, &size, err, sizeof(err)) == 0, "%s", err);
    f->vocab_bytes = size;
    f->vocab_fd = segment_seal("vocab", block, size, err, sizeof(err));
    ck_assert_msg(f->vocab_fd >= 0, "%s", err);
    free(block);
}

void fake_open(struct fake_daemon *f)
{
    char err[256];
    memset(f, 0, sizeof(*f));
    f->socket_fd = f->notify_fd = f->bell_fd = -1;
    f->fingerprint = 0xab;
    f->numerics = "portable-1";
    f->limits = (struct ipc_limits){.slots = FAKE_SLOTS,
                                    .context = FAKE_CONTEXT,
                                    .submit_cells = 8,
                                    .event_cells = 64,
                                    .params_bytes = 4096};
    strcpy(f->directory, "/tmp/hearth-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(f->directory));
    snprintf(f->path, sizeof(f->path), "%s/s", f->directory);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, f->path, strlen(f->path));
    f->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(f->listen_fd, 0);
    ck_assert_int_eq(bind(f->listen_fd, (struct sockaddr *)&a, sizeof(a)), 0);
    ck_assert_int_eq(listen(f->listen_fd, 4), 0);
    f->ctl_fd = segment_ctl_open(&f->ctl, err, sizeof(err));
    ck_assert_msg(f->ctl_fd >= 0, "%s", err);
    make_vocab(f);
}

void fake_hang_up(struct fake_daemon *f)
{
    if (f->socket_fd >= 0)
        close(f->socket_fd);
    if (f->notify_fd >= 0)
        close(f->notify_fd);
    f->socket_fd = f->notify_fd = -1;
}

void fake_die(struct fake_daemon *f)
{
    fake_hang_up(f);
    if (f->segment.down)
        segment_close(&f->segment);
    memset(&f->segment, 0, sizeof(f->segment));
    if (f->bell_fd >= 0)
        close(f->bell_fd);
    f->bell_fd = -1;
}

void fake_close(struct fake_daemon *f)
{
    fake_die(f);
    segment_ctl_close(f->ctl, f->ctl_fd);
    close(f->vocab_fd);
    close(f->listen_fd);
    unlink(f->path);
    rmdir(f->directory);
}

/* ---- handshake ------------------------------------------------------------------------------- */

/* To a client without slots: the vocabulary and ctl, no segment. */
static void welcome_without_slots(struct fake_daemon *f)
{
    int fds[HELLO_FDS_SHARED] = {[HELLO_FD_CTL] = f->ctl_fd, [HELLO_FD_VOCAB] = f->vocab_fd};
    struct hello_welcome w = {.limits = f->limits,
                              .n_fds = HELLO_FDS_SHARED,
                              .n_vocab = FAKE_VOCAB,
                              .daemon_pid = (uint32_t)f->pid,
                              .vocab_bytes = f->vocab_bytes,
                              .numerics = "portable-1",
                              .model = "fake"};
    w.limits.slots = 0;
    hello_prep_welcome(&w);
    ck_assert_int_eq(hello_send(f->socket_fd, &w, sizeof(w), fds, w.n_fds), 0);
}

static void welcome(struct fake_daemon *f)
{
    char err[256];
    int fds[HELLO_FDS], notify[2] = {-1, -1};
    f->limits.slots = f->hello.slots < f->limits.slots ? f->hello.slots : f->limits.slots;
    ck_assert_msg(segment_open(&f->segment, &f->limits, err, sizeof(err)) == 0, "%s", err);
    f->bell_fd = bell_open();
    ck_assert_int_ge(f->bell_fd, 0);
    if (f->hello.flags & HELLO_NOTIFY)
        ck_assert_int_eq(bell_notify_open(notify), 0);
    struct hello_welcome w = {.limits = f->limits,
                              .n_fds = f->hello.flags & HELLO_NOTIFY ? HELLO_FDS : HELLO_FDS - 1,
                              .n_vocab = FAKE_VOCAB,
                              .daemon_pid = 4242,
                              .vocab_bytes = f->vocab_bytes,
                              .fingerprint = {f->fingerprint, 0xcd},
                              .model = "fake",
                              .daemon = "hearthd 9.9.9"};
    snprintf(w.numerics, sizeof(w.numerics), "%s", f->numerics);
    hello_prep_welcome(&w);
    fds[HELLO_FD_UP] = f->segment.up_fd;
    fds[HELLO_FD_DOWN] = f->segment.down_fd;
    fds[HELLO_FD_CTL] = f->ctl_fd;
    fds[HELLO_FD_BELL] = f->bell_fd;
    fds[HELLO_FD_VOCAB] = f->vocab_fd;
    fds[HELLO_FD_NOTIFY] = notify[1];
    ck_assert_int_eq(hello_send(f->socket_fd, &w, sizeof(w), fds, w.n_fds), 0);
    if (notify[1] >= 0)
        close(notify[1]);
    f->notify_fd = notify[0];
    segment_submit_reader(&f->segment, &f->submit);
    for (uint32_t i = 0; i < f->limits.slots; i++)
        segment_event_writer(&f->segment, i, &f->events[i]);
    bell_waker_init(&f->waker, &segment_up_head(&f->segment)->waiting,
                    &segment_down_head(&f->segment)->wake, f->notify_fd);
}

/* A client that the daemon before accepted, and refuses. */
static void refuse_one(struct fake_daemon *f)
{
    char buffer[512];
    int fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_gt(hello_recv(fd, buffer, sizeof(buffer), NULL, 0, NULL, 0), 0);
    ck_assert_int_eq(hello_send_refuse(fd, -ESHUTDOWN, "the daemon is stopping"), 0);
    close(fd);
}

static void *serve(void *arg)
{
    struct fake_daemon *f = arg;
    char buffer[512], err[256];
    while (f->n_stopping-- > 0)
        refuse_one(f);
    f->socket_fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(f->socket_fd, 0);
    if (f->garbage) {
        ck_assert_int_eq(hello_send(f->socket_fd, "not hearth", 10, NULL, 0), 0);
        return NULL;
    }
    int n = hello_recv(f->socket_fd, buffer, sizeof(buffer), NULL, 0, NULL, 0);
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(hello_check_hello(buffer, (size_t)n, &f->hello, err, sizeof(err)), 0);
    if (f->refuse)
        ck_assert_int_eq(hello_send_refuse(f->socket_fd, f->refuse, f->refuse_line), 0);
    else if (f->hello.slots == 0)
        welcome_without_slots(f);
    else
        welcome(f);
    return NULL;
}

void fake_start(struct fake_daemon *f)
{
    ck_assert_int_eq(pthread_create(&f->thread, NULL, serve, f), 0);
}

void fake_join(struct fake_daemon *f)
{
    ck_assert_int_eq(pthread_join(f->thread, NULL), 0);
}

int fake_answer_status(struct fake_daemon *f, const char *text)
{
    char buffer[512];
    int n = hello_recv(f->socket_fd, buffer, sizeof(buffer), NULL, 0, NULL, 0);
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(hello_kind(buffer, (size_t)n), HELLO_STATUS_ASK);
    return hello_send_status(f->socket_fd, hello_number(buffer), text, strlen(text));
}

/* ---- rings ----------------------------------------------------------------------------------- */

int fake_take(struct fake_daemon *f, struct submit_cell *ret)
{
    int rc = ring_peek(&f->submit, ret);
    ck_assert_int_ge(rc, 0);
    if (rc)
        ring_release(&f->submit, 1);
    return rc;
}

void fake_tokens(struct fake_daemon *f, uint32_t slot, uint32_t generation, uint32_t position,
                 const uint32_t *tokens, uint32_t n)
{
    ck_assert_int_eq(event_put_tokens(&f->events[slot], generation, position, tokens, n), 0);
}

void fake_bytes(struct fake_daemon *f, uint32_t slot, uint32_t generation, uint32_t position,
                const char *text)
{
    for (; *text; text++, position++) {
        uint32_t token = FAKE_BYTE + (unsigned char)*text;
        fake_tokens(f, slot, generation, position, &token, 1);
    }
}

void fake_done(struct fake_daemon *f, uint32_t slot, uint32_t generation, uint32_t reason,
               uint32_t output)
{
    struct event_done d = {.reason = reason,
                           .prompt = 3,
                           .cached = 2,
                           .prefix_break = 1,
                           .output = output,
                           .passes = 7,
                           .prefill_ns = 1000,
                           .decode_ns = 2000,
                           .model = {0xab},
                           .request_hash = {0x12},
                           .output_hash = {0x34},
                           .numerics = "portable-1"};
    if (reason == DONE_ERROR) {
        d.error = -ENOSPC;
        strcpy(d.text, "no room: ask for less");
    }
    ck_assert_int_eq(event_put_done(&f->events[slot], generation, 3 + output, &d), 0);
}

int fake_wake(struct fake_daemon *f)
{
    bell_fence();
    int way = bell_due(&f->waker);
    if (way == BELL_FUTEX)
        bell_wake(f->waker.wake);
    else if (way == BELL_NOTIFY)
        bell_notify(f->notify_fd);
    return way;
}
