/* Sends frames through a running txq: socket_send PATH COUNT [LENGTH [PRIORITY [TAG]]].
 *
 * A client on the C library alone, after docs/socket.md. Build: cc -O2 -o socket_send socket_send.c
 *
 * Each frame is an Ethernet frame of the experimental type 0x88b5, with the tag, a number that counts up from 0, and bytes that follow
 * from the number. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAGIC = 0, VERSION = 4, SLOTS = 8, STRIDE = 12, DATA = 16, FRAME_MAX = 24, PRIORITY_MAX = 28 };
enum { PRODUCER = 128, PRODUCER_WAITS = 132, CONSUMER = 256, CONSUMER_WAITS = 260, DESCRIPTORS = 512 };

struct client {
    int socket;
    unsigned char *memory;
    uint32_t slots, stride, data, frame_max, head;
};

static void fail(const char *what)
{
    fprintf(stderr, "socket_send: %s: %s\n", what, errno ? strerror(errno) : "wrong");
    exit(1);
}

static _Atomic uint32_t *word(struct client *c, uint32_t at)
{
    return (_Atomic uint32_t *)(c->memory + at);
}

static uint32_t load(struct client *c, uint32_t at)
{
    return atomic_load_explicit(word(c, at), memory_order_acquire);
}

/* Receives the welcome, and maps the memory. */
static struct client connect_to(const char *path)
{
    struct client c = {.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (c.socket < 0 || strlen(path) >= sizeof at.sun_path)
        fail("socket");
    strcpy(at.sun_path, path);
    if (connect(c.socket, (struct sockaddr *)&at, sizeof at) != 0)
        fail(path);

    uint32_t welcome[4];
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec into = {.iov_base = welcome, .iov_len = sizeof welcome};
    struct msghdr message = {
        .msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(c.socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    if (n != sizeof welcome || memcmp(welcome, "TXQS", 4) != 0 || welcome[1] != 1)
        fail("welcome");
    if (welcome[2] != 0) {
        fprintf(stderr, "socket_send: refused: reason %u\n", welcome[2]);
        exit(1);
    }
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (!rights || rights->cmsg_type != SCM_RIGHTS)
        fail("no memory");
    int fd;
    memcpy(&fd, CMSG_DATA(rights), sizeof fd);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        fail("seals");
    c.memory = mmap(NULL, welcome[3], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (c.memory == MAP_FAILED)
        fail("mmap");
    close(fd);
    c.slots = load(&c, SLOTS);
    c.stride = load(&c, STRIDE);
    c.data = load(&c, DATA);
    c.frame_max = load(&c, FRAME_MAX);
    return c;
}

/* Sleeps until the server rings; ends the program if the server has ended. */
static void sleep_on_socket(struct client *c)
{
    struct pollfd fd = {.fd = c->socket, .events = POLLIN};
    unsigned char bytes[64];
    poll(&fd, 1, -1);
    ssize_t n = recv(c->socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] != 0) {
            fprintf(stderr, "socket_send: the server ended: reason %u\n", bytes[i]);
            exit(1);
        }
    }
    if (n <= 0) {
        fprintf(stderr, "socket_send: the server is gone\n");
        exit(1);
    }
}

static void wait_for_room(struct client *c)
{
    while (c->head - load(c, CONSUMER) >= c->slots) {
        atomic_store_explicit(word(c, PRODUCER_WAITS), 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        if (c->head - load(c, CONSUMER) < c->slots) {
            atomic_store_explicit(word(c, PRODUCER_WAITS), 0, memory_order_relaxed);
            return;
        }
        sleep_on_socket(c);
    }
}

static void send_frame(struct client *c, const unsigned char *frame, uint32_t length, uint32_t priority)
{
    wait_for_room(c);
    uint32_t slot = c->head & (c->slots - 1), offset = slot * c->stride;
    memcpy(c->memory + c->data + offset, frame, length);
    uint32_t descriptor[4] = {offset, length, priority, 0};
    memcpy(c->memory + DESCRIPTORS + 16 * slot, descriptor, sizeof descriptor);
    c->head++;
    atomic_store_explicit(word(c, PRODUCER), c->head, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(word(c, CONSUMER_WAITS), memory_order_relaxed)) {
        atomic_store_explicit(word(c, CONSUMER_WAITS), 0, memory_order_relaxed);
        send(c->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "use: socket_send PATH COUNT [LENGTH [PRIORITY [TAG]]]\n");
        return 2;
    }
    uint32_t count = strtoul(argv[2], NULL, 10);
    uint32_t length = argc > 3 ? strtoul(argv[3], NULL, 10) : 60;
    uint32_t priority = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
    unsigned char tag = argc > 5 ? strtoul(argv[5], NULL, 10) : 0;
    struct client c = connect_to(argv[1]);
    if (length < 23 || length > c.frame_max) {
        fprintf(stderr, "socket_send: a frame of %u bytes: use 23 to %u\n", length, c.frame_max);
        return 2;
    }
    unsigned char *frame = calloc(1, length);
    memcpy(frame, "\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x88\xb5", 14);
    frame[18] = tag;
    for (uint32_t n = 0; n < count; n++) {
        for (int i = 0; i < 4; i++)
            frame[14 + i] = n >> (24 - 8 * i);
        for (uint32_t at = 19; at < length; at++)
            frame[at] = n + at;
        send_frame(&c, frame, length, priority);
    }
    printf("%u frames\n", count);
    free(frame);
    return 0;
}
