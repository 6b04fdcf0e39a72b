/* hello.h: the handshake and the other messages on a client's SOCK_SEQPACKET socket.
 *
 *   client                                      daemon (control thread)
 *   HELLO   version, slots, name, flags   ->
 *                                         <-    WELCOME  limits, model, sizes, descriptors
 *                                         or    REFUSE   code, one line
 *   STATUS_ASK                            ->
 *                                         <-    STATUS   JSON text
 *   either side hangs up: a connection ends in no other way
 *
 * One message is one packet of fixed size (STATUS: the size of its text). The first 16 bytes, and
 * all of REFUSE, are the same in every version, so that two versions that cannot talk can still say
 * so. Every field is checked by a pure function (hello_check_...) on a private copy; hello_send and
 * hello_recv are the only system calls. Only WELCOME carries descriptors; the daemon does not
 * receive a packet that brings any, and hangs up. Nothing blocks unless the socket does.
 *
 * Daemon:
 *   n = hello_recv(fd, buffer, sizeof(buffer), NULL, 0, NULL, MSG_DONTWAIT);
 *   switch (n > 0 ? hello_kind(buffer, (size_t)n) : n) {
 *   case HELLO_HELLO:
 *       rc = hello_check_hello(buffer, (size_t)n, &hello, line, sizeof(line));
 *       rc == 0 ? hello_prep_welcome(), hello_send(fd, &welcome, ..., fds, n_fds)
 *               : hello_send_refuse(fd, rc, line);
 * Client:
 *   fd = hello_connect(path, timeout_ms, err...);
 *   hello_prep_hello(&hello, ...); hello_send(fd, &hello, ...);
 *   hello_recv_answer(fd, &welcome, fds, timeout_ms, err...); */
#ifndef HEARTH_IPC_HELLO_H
#define HEARTH_IPC_HELLO_H

#include "ipc/layout.h"

#define HELLO_MAGIC 0x48545248u /* "HRTH" */
#define HELLO_NAME_BYTES 64u
#define HELLO_LINE_BYTES 232u
#define HELLO_STATUS_MAX 65536u /* bytes of a STATUS message, its head included */
#define HELLO_PATH_BYTES 108u   /* sun_path */

enum hello_kind {
    HELLO_HELLO = 1,
    HELLO_WELCOME = 2,
    HELLO_REFUSE = 3,
    HELLO_STATUS_ASK = 4,
    HELLO_STATUS = 5,
};

/* The same in every version. */
struct hello_head {
    uint32_t magic;
    uint16_t version; /* IPC_VERSION of the sender */
    uint16_t kind;
    uint32_t bytes;  /* of the whole message */
    uint32_t number; /* of a STATUS_ASK, repeated in its STATUS; else 0 */
};

enum hello_flag {
    HELLO_NOTIFY = 1u << 0, /* the client wants a pollable descriptor */
    HELLO_FLAGS = HELLO_NOTIFY,
};

struct hello {
    struct hello_head head;
    uint32_t slots; /* wanted, 0 .. LIMIT_SLOTS_MAX; 0: only the vocabulary and the counters */
    uint32_t flags; /* enum hello_flag */
    uint32_t zeroes[2];
    char name[HELLO_NAME_BYTES]; /* of slot 0: bytes 0x21-0x7e, zero-padded; or all zero */
};

/* The descriptors of WELCOME, in this order. A client without slots gets the first two;
 * HELLO_FD_NOTIFY is included when asked for. */
enum hello_fd {
    HELLO_FD_CTL,
    HELLO_FD_VOCAB,
    HELLO_FDS_SHARED, /* what every client gets */
    HELLO_FD_UP = HELLO_FDS_SHARED,
    HELLO_FD_DOWN,
    HELLO_FD_BELL,
    HELLO_FD_NOTIFY,
    HELLO_FDS,
};

struct hello_welcome {
    struct hello_head head;
    struct ipc_limits limits; /* slots granted: at most the slots wanted */
    uint32_t n_fds;           /* HELLO_FDS, or one less; HELLO_FDS_SHARED without slots */
    uint32_t n_vocab;
    uint32_t daemon_pid;
    uint64_t vocab_bytes;
    uint8_t fingerprint[16]; /* of the model */
    char numerics[NUMERICS_BYTES];
    char model[64];  /* the model's name, zero-ended, printable */
    char daemon[32]; /* "hearthd 0.1.0", zero-ended */
};

struct hello_refuse {
    struct hello_head head;
    /* -errno: -EPROTONOSUPPORT, -EINVAL, -EBUSY, -ENOMEM, ...; -ESHUTDOWN: this daemon is stopping, and
     * another one will answer at the same socket: say hello again. */
    int32_t code;
    uint32_t zero;
    char line[HELLO_LINE_BYTES]; /* zero-ended, printable */
};

LAYOUT_SIZE(hello_head, 16);
LAYOUT_FIELD(hello_head, magic, 0, 4);
LAYOUT_FIELD(hello_head, version, 4, 2);
LAYOUT_FIELD(hello_head, kind, 6, 2);
LAYOUT_FIELD(hello_head, bytes, 8, 4);
LAYOUT_FIELD(hello_head, number, 12, 4);
LAYOUT_SIZE(hello, 96);
LAYOUT_FIELD(hello, slots, 16, 4);
LAYOUT_FIELD(hello, flags, 20, 4);
LAYOUT_FIELD(hello, zeroes, 24, 8);
LAYOUT_FIELD(hello, name, 32, 64);
LAYOUT_SIZE(hello_welcome, 192);
LAYOUT_FIELD(hello_welcome, limits, 16, 20);
LAYOUT_FIELD(hello_welcome, n_fds, 36, 4);
LAYOUT_FIELD(hello_welcome, n_vocab, 40, 4);
LAYOUT_FIELD(hello_welcome, daemon_pid, 44, 4);
LAYOUT_FIELD(hello_welcome, vocab_bytes, 48, 8);
LAYOUT_FIELD(hello_welcome, fingerprint, 56, 16);
LAYOUT_FIELD(hello_welcome, numerics, 72, 24);
LAYOUT_FIELD(hello_welcome, model, 96, 64);
LAYOUT_FIELD(hello_welcome, daemon, 160, 32);
LAYOUT_SIZE(hello_refuse, 256);
LAYOUT_FIELD(hello_refuse, code, 16, 4);
LAYOUT_FIELD(hello_refuse, zero, 20, 4);
LAYOUT_FIELD(hello_refuse, line, 24, 232);

/* ---- pure: bytes in, verdict out ------------------------------------------------------------- */

/* Returns the kind of a message whose head is well-formed and states its real length; else -EPROTO.
 * Does not look at the version. */
int hello_kind(const void *message, size_t bytes);

/* The number of a STATUS_ASK. */
uint32_t hello_number(const void *message);

/* Each returns 0 and a checked copy, or -errno and one line: -EPROTONOSUPPORT for a version we do
 * not speak (the line names both), -EINVAL for a field out of range, -EPROTO for what is not a
 * handshake message. */
int hello_check_hello(const void *message, size_t bytes, struct hello *ret, char *err,
                      size_t err_bytes);
int hello_check_welcome(const void *message, size_t bytes, struct hello_welcome *ret, char *err,
                        size_t err_bytes);
int hello_check_refuse(const void *message, size_t bytes, struct hello_refuse *ret);

/* Fill a message. `name` may be NULL. hello_prep_hello() returns -EINVAL for a name that the daemon
 * would refuse; hello_prep_welcome() fills in the head only. */
int hello_prep_hello(struct hello *ret, uint32_t slots, uint32_t flags, const char *name);
void hello_prep_welcome(struct hello_welcome *w);
void hello_prep_refuse(struct hello_refuse *ret, int code, const char *line);

/* ---- socket ---------------------------------------------------------------------------------- */

/* $HEARTH_SOCKET, else $XDG_RUNTIME_DIR/hearth/hearth.sock, else /run/hearth/hearth.sock. Returns
 * 0, or -ENAMETOOLONG with one line. ret_path: [HELLO_PATH_BYTES]. */
int hello_socket_path(char *ret_path, char *err, size_t err_bytes);

/* Where a client looks: the same, but if HEARTH_SOCKET is not set and this user has no socket, the
 * machine's socket if it exists (`machine`: HELLO_MACHINE_SOCKET). */
#define HELLO_MACHINE_SOCKET "/run/hearth/hearth.sock"
int hello_find_socket(const char *machine, char *ret_path, char *err, size_t err_bytes);

/* Connects (blocking, CLOEXEC). Returns the socket, or -errno with one line that names the path:
 * -ETIMEDOUT after timeout_ms (-1: without limit) where the backlog is full. */
int hello_connect(const char *path, int timeout_ms, char *err, size_t err_bytes);

/* The same without ever blocking (-EAGAIN from a daemon that does not accept); the socket is
 * non-blocking, too. */
int hello_connect_now(const char *path, char *err, size_t err_bytes);

/* Sends one packet, with descriptors if n_fds > 0; MSG_DONTWAIT | MSG_NOSIGNAL. Returns 0 or
 * -errno. */
int hello_send(int socket_fd, const void *message, size_t bytes, const int *fds, uint32_t n_fds);
int hello_send_refuse(int socket_fd, int code, const char *line);
int hello_send_status(int socket_fd, uint32_t number, const char *text,
                      size_t bytes); /* -EMSGSIZE beyond HELLO_STATUS_MAX */

/* Receives one packet and at most max_fds descriptors (CLOEXEC); `flags` as for recvmsg, e.g.
 * MSG_DONTWAIT. Unless the return value is positive no descriptor is left open. Returns the bytes;
 * 0 when the other side hung up; -EPROTO when the packet was truncated or carried more descriptors
 * than allowed; -errno. ret_fds may be NULL when max_fds is 0: then a packet with descriptors, or a
 * longer one, stays in the socket, and no descriptor is ever taken or closed. */
int hello_recv(int socket_fd, void *buffer, size_t bytes, int *ret_fds, uint32_t max_fds,
               uint32_t *ret_n_fds, int flags);

/* Client: waits for WELCOME or REFUSE, at most timeout_ms (-1: without limit). ret_fds:
 * [HELLO_FDS], unused ones -1. Returns 0, or -errno with one line: the daemon's own when it
 * refused. */
int hello_recv_answer(int socket_fd, struct hello_welcome *ret, int *ret_fds, int timeout_ms,
                      char *err, size_t err_bytes);

/* Client: asks for STATUS and waits for the answer of that number; others came after their time and
 * are dropped. ret_text: zero-terminated, [text_bytes]. Returns its length or -errno. */
int hello_status(int socket_fd, uint32_t number, char *ret_text, size_t text_bytes, int timeout_ms);

#endif
