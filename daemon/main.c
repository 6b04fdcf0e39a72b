/* main.c: hearthd reads its options, loads the model, starts the engine thread, and serves as the
 * control thread. Every failure is one line on stderr and an exit code of sysexits(3), as the
 * README lists them. */
#include "daemon/config.h"
#include "daemon/control/control.h"
#include "daemon/control/signals.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/waker.h"
#include "daemon/log.h"
#include "daemon/model/loaded_model.h"
#include "daemon/model/report.h"
#include "daemon/overflow_uid.h"
#include "daemon/policy/fault.h"
#include "daemon/store/store.h"
#include "ipc/bell.h"
#include "ipc/hello.h"
#include "ipc/listen.h"
#include "ipc/segment.h"
#include "ipc/service.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

enum {
    PARAMS_BYTES = 2 << 20, /* the grammar of 64 tools with 4 KiB of schema each, and more */
    MAILBOX_CELLS = 8192
};

struct daemon {
    struct config config;
    struct loaded_model loaded;
    struct store *store; /* NULL: there is none */
    struct engine *engine;
    struct ctl *ctl;
    int ctl_fd, listen_fd, signal_fd;
    bool own_socket; /* bound here, not passed by the service manager: removed at the end */
    struct mailbox to_engine, to_control;
    pthread_t thread;
    char path[HELLO_PATH_BYTES]; /* config.socket where no option gave it */
};

/* Maps a failure to an exit code: README.md, "Exit codes"; sysexits(3). */
static int exit_code(int error)
{
    switch (error) {
    case 0:
        return 0;
    case -EINVAL:
        return EX_USAGE;
    case -EBADMSG:
    case -ENOTSUP:
        return EX_DATAERR;
    case -ENOENT:
    case -ENOTDIR:
    case -EACCES:
    case -EISDIR:
        return EX_NOINPUT;
    case -EPIPE:
        return EX_IOERR;
    case -EADDRINUSE:
        return EX_TEMPFAIL;
    case -ENOTSOCK:
        return EX_CANTCREAT;
    default:
        return EX_OSERR;
    }
}

/* If the parent closed stdin, stdout or stderr, opens /dev/null there, so that a socket or segment
 * cannot end up as one of them. */
static void hold_standard_fds(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Flushes stdout and reports a failure (a full disk, for instance). */
static int flush_output(char *err, size_t err_bytes)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    snprintf(err, err_bytes, "cannot write to standard output: %s", strerror(errno));
    return -EPIPE;
}

static void *engine_thread(void *arg)
{
    return (void *)(intptr_t)engine_run(arg);
}

static void log_option(const char *text)
{
    log_debug("option %s", text);
}

/* Stores the path of a socket that the service manager passed, for the log and `hearth status`. */
static int take_path(struct daemon *daemon)
{
    struct sockaddr_un address = {0};
    socklen_t bytes = sizeof(address) - 1; /* leaves room for the terminating zero */
    if (getsockname(daemon->listen_fd, (struct sockaddr *)&address, &bytes) < 0)
        return -errno;
    snprintf(daemon->path, sizeof(daemon->path), "%s", address.sun_path);
    daemon->config.socket = daemon->path;
    return 0;
}

/* Maps an error of opening the socket: its path may be wrong, but -ENOENT must not read as a
 * missing input file. */
static int socket_error(int error)
{
    switch (error) {
    case -EADDRINUSE:
        return error;
    case -ENAMETOOLONG:
        return -EINVAL;
    case -ENOTSOCK:
    case -ENOENT:
    case -ENOTDIR:
    case -EACCES:
    case -EROFS:
        return -ENOTSOCK; /* the socket cannot be created there */
    default:
        return -EIO;
    }
}

/* One user gets half of the slots where the manager's socket lets other users in; our own does not. */
static void share_slots(struct daemon *daemon)
{
    struct config *config = &daemon->config;
    struct stat st;
    if (stat(config->socket, &st) == 0 && (st.st_mode & (S_IRWXG | S_IRWXO)) == 0)
        return;
    if (config->user_slots == 0)
        config->user_slots = (config->slots + 1) / 2;
}

static void share_store(struct daemon *daemon)
{
    const struct config *config = &daemon->config;
    if (daemon->store && config->user_slots > 0 && config->user_slots < config->slots)
        store_share(daemon->store);
}

static int open_socket(struct daemon *daemon, char *err, size_t err_bytes)
{
    daemon->listen_fd = service_listen_fd(err, err_bytes);
    if (daemon->listen_fd >= 0) {
        int rc = take_path(daemon);
        share_slots(daemon);
        return rc;
    }
    if (daemon->listen_fd != -ENOENT)
        return daemon->listen_fd;
    if (!daemon->config.socket) {
        int rc = hello_socket_path(daemon->path, err, err_bytes);
        if (rc < 0)
            return socket_error(rc);
        daemon->config.socket = daemon->path;
    }
    daemon->listen_fd =
        listen_open(daemon->config.socket, SOCK_SEQPACKET, "--socket", err, err_bytes);
    daemon->own_socket = daemon->listen_fd >= 0;
    if (daemon->listen_fd >= 0)
        return 0;
    return socket_error(daemon->listen_fd);
}

static int open_shared(struct daemon *daemon, char *err, size_t err_bytes)
{
    int rc = segment_guard_init();
    if (rc < 0)
        return rc;
    daemon->ctl_fd = segment_ctl_open(&daemon->ctl, err, err_bytes);
    if (daemon->ctl_fd < 0)
        return daemon->ctl_fd;
    /* With a GPU one thread computes: it waits for the device. */
    daemon->ctl->threads = daemon->loaded.ops == &backend_cpu ? daemon->loaded.info.threads : 1;
    rc = mailbox_init(&daemon->to_engine, MAILBOX_CELLS);
    if (rc == 0)
        rc = mailbox_init(&daemon->to_control, MAILBOX_CELLS);
    return rc;
}

/* What pages and states depend on beside tokens. `layout`: where anything is in them (kernels/kv.h, kernels/state.h); it
 * changes with these, because they outlive the process. */
enum { STORE_LAYOUT = 1 };
struct store_seed {
    uint8_t fingerprint[MODEL_FINGERPRINT_BYTES];
    char numerics[64], kv_type[16], rope_scaling[64];
    uint64_t layout, page_bytes, window_page_bytes, state_bytes;
};

static void fill_seed(const struct daemon *daemon, struct store_seed *ret)
{
    const struct config *config = &daemon->config;
    const struct backend_info *info = &daemon->loaded.info;
    char kv_type[16];
    *ret = (struct store_seed){.layout = STORE_LAYOUT,
                               .page_bytes = info->page_bytes,
                               .window_page_bytes = info->window_page_bytes,
                               .state_bytes = info->state_bytes};
    memcpy(ret->fingerprint, daemon->loaded.fingerprint, sizeof(ret->fingerprint));
    snprintf(ret->numerics, sizeof(ret->numerics), "%s", info->numerics);
    config_choice("kv-type", config->kv_type, kv_type, sizeof(kv_type));
    snprintf(ret->kv_type, sizeof(ret->kv_type), "%s", kv_type);
    if (config->rope_scaling)
        snprintf(ret->rope_scaling, sizeof(ret->rope_scaling), "%s", config->rope_scaling);
}

/* Without a store that can be used hearthd serves all the same: it computes more. */
static void open_store(struct daemon *daemon)
{
    const struct config *config = &daemon->config;
    const struct backend_info *info = &daemon->loaded.info;
    struct store_seed seed;
    char model[STORE_MODEL_BYTES], err[4400];
    if (!config->kv_store || config->check)
        return;
    fill_seed(daemon, &seed);
    snprintf(model, sizeof(model), "%.80s (%.23s, %s)", daemon->loaded.name, seed.numerics,
             seed.kv_type);
    const struct store_options options = {
        .path = config->kv_store,
        .model = model,
        .seed = &seed,
        .seed_bytes = sizeof(seed),
        .class_bytes = {[STORE_PAGE] = info->page_bytes,
                        [STORE_WINDOW] = info->window_page_bytes,
                        [STORE_STATE] = info->state_bytes},
        .bytes = config->kv_store_bytes ? config->kv_store_bytes : STORE_BYTES,
        .day_bytes = config->kv_store_writes ? config->kv_store_writes : STORE_DAY_BYTES,
        .min_tokens = (uint32_t)config->kv_store_min,
        .plain = config->event_loop == LOOP_EPOLL,
    };
    if (store_open(&daemon->store, &options, err, sizeof(err)) < 0) {
        log_warning("KV store: %s: starting without", err);
        return;
    }
    struct store_counts counts;
    store_counts(daemon->store, &counts);
    log_info("KV store: %s has %llu records of this model, %llu MiB", config->kv_store,
             (unsigned long long)counts.records, (unsigned long long)counts.bytes >> 20);
}

static int open_engine(struct daemon *daemon, char *err, size_t err_bytes)
{
    const struct config *config = &daemon->config;
    struct engine_options options = {
        .loaded = &daemon->loaded,
        .store = daemon->store,
        .ctl = daemon->ctl,
        .inbox = &daemon->to_engine,
        .outbox = &daemon->to_control,
        .n_slots = (uint32_t)config->slots,
        .n_clients = (uint32_t)config->clients + 64,
        .params_bytes = PARAMS_BYTES,
        .pass_ns = config->pass_ms * 1000000,
        .linger_ns = config->linger_us * 1000,
        .rescan = config->rescan == 0,
        .loop = (enum loop_backend)config->event_loop,
        .now_ns = bell_now_ns,
        .cpu_ns = waker_cpu_ns,
    };
    return engine_open(&daemon->engine, &options, err, err_bytes);
}

static int serve(struct daemon *daemon, char *err, size_t err_bytes)
{
    struct control_options options = {
        .config = &daemon->config,
        .loaded = &daemon->loaded,
        .keep = &daemon->loaded,
        .ctl = daemon->ctl,
        .ctl_fd = daemon->ctl_fd,
        .vocab_fd = daemon->loaded.vocab_fd,
        .listen_fd = daemon->listen_fd,
        .passed = !daemon->own_socket,
        .signal_fd = daemon->signal_fd,
        .inbox = &daemon->to_control,
        .outbox = &daemon->to_engine,
        .loop = (enum loop_backend)daemon->config.event_loop,
        .params_bytes = PARAMS_BYTES,
        .now_ns = bell_now_ns,
    };
    void *engine_result;
    int rc = -pthread_create(&daemon->thread, NULL, engine_thread, daemon->engine);
    if (rc < 0) {
        snprintf(err, err_bytes, "cannot start the engine thread: %s", strerror(-rc));
        return rc;
    }
    report_ready(&daemon->config, &daemon->loaded, daemon->own_socket);
    (void)service_notify("READY=1\nSTATUS=serving");
    loaded_model_watch_weights(&daemon->loaded, signals_stop);
    rc = control_run(&options);
    pthread_join(daemon->thread, &engine_result);
    int kept = engine_save_slots(daemon->engine);
    if (kept < 0)
        log_warning("KV store: named slots are not kept: %s", strerror(-kept));
    if (rc < 0)
        snprintf(err, err_bytes, "stopped: %s", strerror(-rc));
    return rc < 0 ? rc : loaded_model_stop_weights(&daemon->loaded, err, err_bytes);
}

/* Everything startup does after opening the model file, except listening. */
static int load(struct daemon *daemon, char *err, size_t err_bytes)
{
    int rc = loaded_model_open_model(&daemon->loaded, daemon->config.model,
                                     daemon->config.rope_scaling, err, err_bytes);
    if (rc == 0)
        rc = loaded_model_open_draft(&daemon->loaded, &daemon->config, err, err_bytes);
    if (rc == 0)
        rc = loaded_model_open_backend(&daemon->loaded, &daemon->config, err, err_bytes);
    if (rc == 0)
        rc = open_shared(daemon, err, err_bytes);
#ifdef HEARTH_FAULTS
    if (rc == 0 && daemon->config.fault)
        rc = fault_parse(daemon->config.fault, (uint64_t)time(NULL), err, err_bytes);
#endif
    if (rc == 0) {
        open_store(daemon);
        rc = open_engine(daemon, err, err_bytes);
    }
    return rc;
}

/* --check: if it succeeds, a start succeeds. A valid GGUF file that does not claim to be a model is
 * reported as such. */
static int check_model(struct daemon *daemon, char *err, size_t err_bytes)
{
    int rc = loaded_model_open_file(&daemon->loaded, daemon->config.model, err, err_bytes);
    if (rc < 0)
        return rc;
    if (!gguf_find_key(daemon->loaded.gguf, "general.architecture")) {
        printf("%s: valid GGUF v%u with %llu keys and %llu tensors, but it holds no model\n",
               daemon->config.model, gguf_version(daemon->loaded.gguf),
               (unsigned long long)gguf_n_keys(daemon->loaded.gguf),
               (unsigned long long)gguf_n_tensors(daemon->loaded.gguf));
        return 0;
    }
    rc = load(daemon, err, err_bytes);
    if (rc == 0)
        rc = loaded_model_check_weights(&daemon->loaded, err, err_bytes);
    if (rc == 0)
        report_check(&daemon->loaded);
    return rc;
}

/* --describe: what --check says, as far as it can be told without loading. */
static int describe_model(struct daemon *daemon, char *err, size_t err_bytes)
{
    struct loaded_model *loaded = &daemon->loaded;
    loaded->without_grammars = true;
    int rc = loaded_model_open_file(loaded, daemon->config.model, err, err_bytes);
    if (rc == 0)
        rc = loaded_model_open_model(loaded, daemon->config.model, daemon->config.rope_scaling, err,
                                     err_bytes);
    if (rc == 0)
        rc = loaded_model_open_draft(loaded, &daemon->config, err, err_bytes);
    if (rc == 0)
        rc = loaded_model_plan(loaded, &daemon->config, err, err_bytes);
    if (rc == 0)
        rc = loaded_model_finish_vocab(loaded, err, err_bytes);
    if (rc == 0)
        report_describe(loaded);
    return rc;
}

/* Loads first and listens last, so that every client that can connect is served. */
static int start(struct daemon *daemon, char *err, size_t err_bytes)
{
    signal(SIGPIPE, SIG_IGN); /* write errors are reported by errno instead */
    service_raise_file_limit();
    (void)overflow_uid(); /* reads a file: none is opened while clients are served */
    int rc = loaded_model_open_file(&daemon->loaded, daemon->config.model, err, err_bytes);
    if (rc == 0)
        rc = load(daemon, err, err_bytes);
    if (rc == 0) {
        daemon->signal_fd = signals_open();
        rc = daemon->signal_fd < 0 ? daemon->signal_fd : 0;
    }
    if (rc == 0)
        rc = open_socket(daemon, err, err_bytes);
    if (rc == 0)
        share_store(daemon);
    if (rc == 0)
        rc = serve(daemon, err, err_bytes);
    return rc;
}

static void finish(struct daemon *daemon)
{
    /* A socket of ours is left open, for the process's exit to close, where TCP does not linger: a
     * connection that was never accepted may hold descriptors (closer.h). */
    if (daemon->own_socket)
        listen_close(daemon->config.socket, SOCK_SEQPACKET, daemon->listen_fd);
    else if (daemon->listen_fd >= 0)
        close(daemon->listen_fd);
    engine_close(daemon->engine);
    store_close(daemon->store);
    mailbox_fini(&daemon->to_engine);
    mailbox_fini(&daemon->to_control);
    if (daemon->ctl)
        segment_ctl_close(daemon->ctl, daemon->ctl_fd);
    if (daemon->signal_fd >= 0)
        close(daemon->signal_fd);
    loaded_model_close(&daemon->loaded);
    config_fini(&daemon->config);
}

int main(int argc, char **argv)
{
    static struct daemon daemon; /* static because it is large: it contains the tables */
    char err[4600] = "";
    hold_standard_fds();
    signal(SIGXFSZ,
           SIG_IGN); /* a file size limit also holds for shared memory: report it by errno */
    daemon.ctl_fd = daemon.listen_fd = daemon.signal_fd = -1;
    daemon.to_engine.event_fd = daemon.to_control.event_fd = -1;
    log_init(LOG_LEVEL_INFO);
    int rc = config_load(&daemon.config, argc, argv, err, sizeof(err));
    if (rc == 0 && daemon.config.help) {
        config_help(stdout);
    } else if (rc == 0 && daemon.config.version) {
        puts("hearthd " HEARTH_VERSION);
    } else if (rc == 0 && !daemon.config.model) {
        snprintf(err, sizeof(err), "no model: give --model FILE.gguf");
        rc = -EINVAL;
    } else if (rc == 0) {
        log_init((enum log_level)daemon.config.log_level);
        config_dump(&daemon.config, log_option);
        rc = daemon.config.check      ? check_model(&daemon, err, sizeof(err))
             : daemon.config.describe ? describe_model(&daemon, err, sizeof(err))
                                      : start(&daemon, err, sizeof(err));
    }
    if (rc == 0)
        rc = flush_output(err, sizeof(err));
    if (rc < 0)
        log_error("%s", *err ? err : strerror(-rc));
    finish(&daemon);
    return exit_code(rc);
}
