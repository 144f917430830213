/* Sends by each call that libtxq_preload replaces, and checks what arrives. It knows nothing of txq: without it, all checks hold, too. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} to, from;
static socklen_t to_len;

/* Opens a socket that receives on the loopback address of a family. */
static int receiver(int family) {
    int fd = socket(family, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    memset(&to, 0, sizeof to);
    to.any.sa_family = family;
    to_len = family == AF_INET ? sizeof to.v4 : sizeof to.v6;
    if (family == AF_INET) to.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else to.v6.sin6_addr = in6addr_loopback;
    CHECK(bind(fd, &to.any, to_len) == 0);
    CHECK(getsockname(fd, &to.any, &to_len) == 0);
    int on = 1;
    CHECK(setsockopt(fd, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, family == AF_INET ? IP_RECVTOS : IPV6_RECVTCLASS, &on,
                     sizeof on) == 0);
    struct timeval patience = {20, 0};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    return fd;
}

/* Receives a datagram, and compares its text; returns its type of service. The sender's address is left in `from`. */
static int expect(int fd, const char *text) {
    char bytes[65536], control[256];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {0};
    message.msg_name = &from, message.msg_namelen = sizeof from;
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    ssize_t n = recvmsg(fd, &message, 0);
    CHECK(n >= 0);
    if ((size_t)n != strlen(text) || memcmp(bytes, text, n) != 0) {
        fprintf(stderr, "expected \"%s\", received \"%.*s\"\n", text, (int)n, bytes);
        exit(1);
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) return *(unsigned char *)CMSG_DATA(c);
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
            int value;
            memcpy(&value, CMSG_DATA(c), sizeof value);
            return value;
        }
    }
    return -1;
}

static int port(int fd) {
    socklen_t len = sizeof from;
    CHECK(getsockname(fd, &from.any, &len) == 0);
    return ntohs(from.any.sa_family == AF_INET ? from.v4.sin_port : from.v6.sin6_port);
}

static int from_port(void) {
    return ntohs(from.any.sa_family == AF_INET ? from.v4.sin_port : from.v6.sin6_port);
}

/* Each call that sends, on one family. */
static void calls(int family) {
    int in = receiver(family), out = socket(family, SOCK_DGRAM, 0);
    CHECK(out >= 0);
    errno = 77;
    CHECK(sendto(out, "sendto", 6, 0, &to.any, to_len) == 6);
    CHECK(errno == 77);
    expect(in, "sendto");
    CHECK(from_port() == port(out));
    CHECK(sendto(out, "", 0, MSG_DONTWAIT, &to.any, to_len) == 0);
    expect(in, "");

    struct iovec parts[3] = {{"se", 2}, {"", 0}, {"ndmsg", 5}};
    struct msghdr message = {0};
    message.msg_name = &to, message.msg_namelen = to_len;
    message.msg_iov = parts, message.msg_iovlen = 3;
    CHECK(sendmsg(out, &message, MSG_CONFIRM) == 7);
    expect(in, "sendmsg");

    struct mmsghdr many[40];
    for (int i = 0; i < 40; i++) many[i].msg_hdr = message;
    CHECK(sendmmsg(out, many, 40, 0) == 40);
    for (int i = 0; i < 40; i++) {
        CHECK(many[i].msg_len == 7);
        expect(in, "sendmsg");
    }

    CHECK(send(out, "x", 1, 0) == -1 && errno == EDESTADDRREQ);
    CHECK(write(out, "x", 1) == -1 && errno == EDESTADDRREQ);
    CHECK(connect(out, &to.any, to_len) == 0);
    CHECK(send(out, "send", 4, MSG_NOSIGNAL) == 4);
    expect(in, "send");
    CHECK(write(out, "write", 5) == 5);
    expect(in, "write");
    CHECK(writev(out, parts, 3) == 7);
    expect(in, "sendmsg");
    CHECK(send(out, "mo", 2, MSG_MORE) == 2 && send(out, "re", 2, 0) == 2);
    expect(in, "more");

    /* A new peer, and none. */
    int other = receiver(family);
    CHECK(connect(out, &to.any, to_len) == 0);
    CHECK(send(out, "other", 5, 0) == 5);
    expect(other, "other");
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    CHECK(connect(out, &none, sizeof none) == 0);
    CHECK(send(out, "x", 1, 0) == -1 && errno == EDESTADDRREQ);
    CHECK(sendto(out, "again", 5, 0, &to.any, to_len) == 5);
    expect(other, "again");
    CHECK(from_port() == port(out));

    /* Errors of the call are the kernel's. */
    char *large = calloc(1, 70000);
    CHECK(sendto(out, large, 70000, 0, &to.any, to_len) == -1 && errno == EMSGSIZE);
    memset(large, 'l', 60000);
    CHECK(sendto(out, large, 60000, 0, &to.any, to_len) == 60000);
    expect(other, large);
    free(large);

    close(in), close(out), close(other);
}

/* The type of service: of the socket, and of a message. */
static void service(int family) {
    int is_v4 = family == AF_INET, in = receiver(family), out = socket(family, SOCK_DGRAM, 0), tos = 0x20;
    int level = is_v4 ? IPPROTO_IP : IPPROTO_IPV6, option = is_v4 ? IP_TOS : IPV6_TCLASS;
    CHECK(sendto(out, "a", 1, 0, &to.any, to_len) == 1);
    CHECK(expect(in, "a") == 0);
    CHECK(setsockopt(out, level, option, &tos, sizeof tos) == 0);
    CHECK(sendto(out, "b", 1, 0, &to.any, to_len) == 1);
    CHECK(expect(in, "b") == 0x20);
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {"c", 1};
    struct msghdr message = {0};
    message.msg_name = &to, message.msg_namelen = to_len;
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = level, c->cmsg_type = option, c->cmsg_len = CMSG_LEN(sizeof(int));
    int value = 0x48;
    memcpy(CMSG_DATA(c), &value, sizeof value);
    CHECK(sendmsg(out, &message, 0) == 1);
    CHECK(expect(in, "c") == 0x48);
    close(in), close(out);
}

/* A stated source address, on one socket for both families. */
static void source(void) {
    int in = receiver(AF_INET), out = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = to.v4.sin_port};
    CHECK(inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr) == 1);
    CHECK(sendto(out, "mapped", 6, 0, (struct sockaddr *)&mapped, sizeof mapped) == 6);
    expect(in, "mapped");
    CHECK(from_port() == port(out));
    close(out);

    out = socket(AF_INET, SOCK_DGRAM, 0);
    char control[CMSG_SPACE(sizeof(struct in_pktinfo))] = {0};
    struct iovec part = {"source", 6};
    struct msghdr message = {0};
    message.msg_name = &to, message.msg_namelen = to_len;
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = IPPROTO_IP, c->cmsg_type = IP_PKTINFO, c->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
    struct in_pktinfo info = {0};
    info.ipi_spec_dst.s_addr = htonl(0x7f000002);
    memcpy(CMSG_DATA(c), &info, sizeof info);
    CHECK(sendmsg(out, &message, 0) == 6);
    expect(in, "source");
    CHECK(from.v4.sin_addr.s_addr == htonl(0x7f000002));
    close(in), close(out);
}

/* One message, which the kernel cuts. */
static void segments(int family) {
    int in = receiver(family), out = socket(family, SOCK_DGRAM, 0);
    char control[CMSG_SPACE(sizeof(unsigned short))] = {0};
    struct iovec part = {"aaabbbcccd", 10};
    struct msghdr message = {0};
    message.msg_name = &to, message.msg_namelen = to_len;
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = IPPROTO_UDP, c->cmsg_type = UDP_SEGMENT, c->cmsg_len = CMSG_LEN(sizeof(unsigned short));
    unsigned short segment = 3;
    memcpy(CMSG_DATA(c), &segment, sizeof segment);
    CHECK(sendmsg(out, &message, 0) == 10);
    const char *expected[] = {"aaa", "bbb", "ccc", "d"};
    for (int i = 0; i < 4; i++) expect(in, expected[i]);
    int option = 4;
    CHECK(setsockopt(out, IPPROTO_UDP, UDP_SEGMENT, &option, sizeof option) == 0);
    CHECK(sendto(out, "ffffgggg", 8, 0, &to.any, to_len) == 8);
    expect(in, "ffff"), expect(in, "gggg");
    close(in), close(out);
}

/* A datagram that waits in a queue is the one that the call was made for, whatever the program does to the socket next. */
static void changes(int family) {
    int is_v4 = family == AF_INET, one = receiver(family), tos = 0x20;
    int out = socket(family, SOCK_DGRAM, 0);
    CHECK(connect(out, &to.any, to_len) == 0);
    int two = receiver(family), mine = port(out);
    CHECK(send(out, "first", 5, 0) == 5);
    CHECK(connect(out, &to.any, to_len) == 0);
    CHECK(send(out, "second", 6, 0) == 6);
    CHECK(setsockopt(out, is_v4 ? IPPROTO_IP : IPPROTO_IPV6, is_v4 ? IP_TOS : IPV6_TCLASS, &tos, sizeof tos) == 0);
    CHECK(send(out, "third", 5, 0) == 5);
    CHECK(close(out) == 0);
    out = socket(family, SOCK_DGRAM, 0);
    CHECK(sendto(out, "fourth", 6, 0, &to.any, to_len) == 6);
    CHECK(expect(one, "first") == 0 && from_port() == mine);
    CHECK(expect(two, "second") == 0 && from_port() == mine);
    CHECK(expect(two, "third") == 0x20 && from_port() == mine);
    CHECK(expect(two, "fourth") == 0 && from_port() == port(out));
    close(one), close(two), close(out);
}

/* Numbers of descriptors that are used again, duplicates, and what only has the number of a socket. */
static void numbers(void) {
    int in = receiver(AF_INET), out = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(sendto(out, "a", 1, 0, &to.any, to_len) == 1);
    int copy = dup(out), old = port(out);
    CHECK(close(out) == 0);
    CHECK(sendto(copy, "b", 1, 0, &to.any, to_len) == 1);
    expect(in, "a"), expect(in, "b");
    CHECK(from_port() == old);

    /* A pipe gets the number. */
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    CHECK(dup2(pipes[1], copy) == copy);
    CHECK(write(copy, "pipe", 4) == 4);
    char bytes[8];
    CHECK(read(pipes[0], bytes, sizeof bytes) == 4 && memcmp(bytes, "pipe", 4) == 0);

    /* And another socket, by a call that no library sees. */
    int next = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(sendto(next, "c", 1, 0, &to.any, to_len) == 1);
    expect(in, "c");
    int last = port(next);
    CHECK(syscall(SYS_close, next) == 0);
    CHECK(socket(AF_INET, SOCK_DGRAM, 0) == next);
    CHECK(sendto(next, "d", 1, 0, &to.any, to_len) == 1);
    expect(in, "d");
    CHECK(from_port() == port(next) && from_port() != last);

    /* The port of a closed socket is free. */
    int mine = port(next);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(mine)};
    CHECK(close(next) == 0);
    next = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(next, (struct sockaddr *)&address, sizeof address) == 0);
    close(in), close(next), close(copy), close(pipes[0]), close(pipes[1]);
}

/* Nobody listens: the error comes with a later call. */
static void refused(void) {
    int in = receiver(AF_INET), out = socket(AF_INET, SOCK_DGRAM, 0);
    close(in);
    CHECK(connect(out, &to.any, to_len) == 0);
    int met = 0;
    for (int i = 0; i < 2000 && !met; i++) {
        met = send(out, "x", 1, 0) < 0 ? errno : 0;
        usleep(1000);
    }
    CHECK(met == ECONNREFUSED);
    close(out);
}

struct sender {
    int fd, n;
};

static void *thread(void *argument) {
    struct sender *sender = argument;
    for (int i = 0; i < sender->n; i++) CHECK(sendto(sender->fd, "thread", 6, 0, &to.any, to_len) == 6);
    return NULL;
}

/* Threads that end, more than the library has senders, on one socket and on their own. */
static void threads(void) {
    int in = receiver(AF_INET), shared = socket(AF_INET, SOCK_DGRAM, 0);
    for (int round = 0; round < 5; round++) {
        pthread_t all[20];
        struct sender senders[20];
        for (int i = 0; i < 20; i++) {
            senders[i] = (struct sender){i % 2 ? shared : socket(AF_INET, SOCK_DGRAM, 0), 3};
            CHECK(pthread_create(&all[i], NULL, thread, &senders[i]) == 0);
        }
        for (int i = 0; i < 20; i++) {
            CHECK(pthread_join(all[i], NULL) == 0);
            if (senders[i].fd != shared) close(senders[i].fd);
        }
        for (int i = 0; i < 60; i++) expect(in, "thread");
    }
    close(in), close(shared);
}

/* A child has a device of its own, and its parent's goes on. */
static void forks(void) {
    int in = receiver(AF_INET), out = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(sendto(out, "before", 6, 0, &to.any, to_len) == 6);
    expect(in, "before");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(sendto(out, "child", 5, 0, &to.any, to_len) == 5);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    expect(in, "child");
    child = fork();
    if (child == 0) _exit(3);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    CHECK(sendto(out, "parent", 6, 0, &to.any, to_len) == 6);
    expect(in, "parent");
    close(in), close(out);
}

int main(void) {
    int v6 = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int has_v6 = v6 >= 0 && bind(v6, (struct sockaddr *)&loopback, sizeof loopback) == 0;
    close(v6);
    for (int i = 0; i <= has_v6; i++) {
        calls(i ? AF_INET6 : AF_INET);
        service(i ? AF_INET6 : AF_INET);
        segments(i ? AF_INET6 : AF_INET);
        changes(i ? AF_INET6 : AF_INET);
    }
    if (has_v6) source();
    numbers();
    refused();
    threads();
    forks();
    printf("all arrived%s\n", has_v6 ? "" : ", without IPv6");
    return 0;
}
