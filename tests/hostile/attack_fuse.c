/* attack_fuse: a file system of the attacker's, whose files take their time to be closed: close()
 * waits for the answer to a flush. */
#include "tests/hostile/attack.h"

#include "tests/e2e/raw_client.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FLUSH_US = 50000, FILES = 4, NODE = 2 };

static int device = -1, root = -1;

static void answer(const struct fuse_in_header *in, int error, const void *body, size_t bytes)
{
    uint8_t out[512];
    struct fuse_out_header head = {
        .len = (uint32_t)(sizeof(head) + bytes), .error = error, .unique = in->unique};

    memcpy(out, &head, sizeof(head));
    if (bytes)
        memcpy(out + sizeof(head), body, bytes);
    if (write(device, out, head.len) < 0)
        return; /* the request was interrupted */
}

static struct fuse_attr attr_of(uint64_t node)
{
    return (struct fuse_attr){
        .ino = node, .mode = node == NODE ? S_IFREG | 0666 : S_IFDIR | 0777, .nlink = 1};
}

static void serve_one(const struct fuse_in_header *in)
{
    const struct fuse_init_out init = {
        .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
    const struct fuse_entry_out entry = {.nodeid = NODE, .attr = attr_of(NODE)};
    const struct fuse_attr_out attr = {.attr = attr_of(in->nodeid)};
    const struct fuse_open_out opened = {.fh = 1};

    switch (in->opcode) {
    case FUSE_INIT:
        answer(in, 0, &init, sizeof(init));
        break;
    case FUSE_LOOKUP:
        answer(in, 0, &entry, sizeof(entry));
        break;
    case FUSE_GETATTR:
        answer(in, 0, &attr, sizeof(attr));
        break;
    case FUSE_OPEN:
        answer(in, 0, &opened, sizeof(opened));
        break;
    case FUSE_FLUSH:
        attack_sleep_us(FLUSH_US);
        answer(in, 0, NULL, 0);
        break;
    case FUSE_RELEASE:
        answer(in, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        answer(in, -ENOSYS, NULL, 0);
    }
}

static void *serve(void *arg)
{
    static uint64_t request[(FUSE_MIN_READ_BUFFER + 4096) / 8];

    while (read(device, request, sizeof(request)) > 0 || errno == EINTR || errno == ENOENT)
        serve_one((const struct fuse_in_header *)(const void *)request);
    return arg;
}

/* The file system is taken out of the tree at once: this process alone has it, by its root. */
static int mount_detached(void)
{
    char folder[] = "/tmp/hearth-fuse-XXXXXX", options[128];
    int fd = -1;

    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
             device);
    if (!mkdtemp(folder))
        return -1;
    if (mount("hearth", folder, "fuse", MS_NOSUID | MS_NODEV, options) == 0) {
        fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        umount2(folder, MNT_DETACH);
    }
    rmdir(folder);
    return fd;
}

void attack_fuse_prepare(void)
{
    pthread_t thread;

    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    root = device < 0 ? -1 : mount_detached();
    if (root >= 0 && pthread_create(&thread, NULL, serve, NULL) == 0)
        return;
    printf("skip: FUSE: no file system can be mounted here\n");
    fflush(stdout);
    _exit(0);
}

void attack_fuse(struct attack_state *a)
{
    struct hello hello;

    for (int i = 0; i < FILES; i++) {
        int file = openat(root, "file", O_RDWR | O_CLOEXEC),
            to = hello_connect(a->socket, -1, NULL, 0);
        if (file < 0)
            _exit(5);
        hello_prep_hello(&hello, 1, 0, NULL);
        attack_send_fds(to, &hello, sizeof(hello), file, (uint32_t)i + 1);
        close(file);
        close(to);
        atomic_fetch_add(&a->done, 1);
    }
}
