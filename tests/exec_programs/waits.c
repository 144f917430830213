/* Waits until a full socket has room: waits CALL, where CALL is poll, ppoll, many, select, pselect, level, edge or pwait2. A socket that
 * is reported as writable takes a datagram, a full one is not reported, and other descriptors are reported meanwhile. Prints "full" when
 * the first call found no room, and how many datagrams were sent at the end. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LONG = 100000, DATAGRAMS = 8 };
enum { ROOM = 1, INPUT = 2, PIPE = 4 };
static int fd, ends[2], epoll = -1;
static const char *call;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", call, what, strerror(errno));
    exit(1);
}

static void set(int op, int which, unsigned events) {
    struct epoll_event event = {.events = events, .data.u64 = 0x1234567800000000u | which};
    if (epoll_ctl(epoll, op, which, &event) != 0) fail("epoll_ctl");
}

static int is(const char *name) { return strcmp(call, name) == 0; }

/* Waits for at most `millis` until the socket has room or a datagram, or the pipe has a byte; returns which. */
static int ready(int millis) {
    struct timespec time = {millis / 1000, millis % 1000 * 1000000};
    int found = 0, n;
    if (epoll >= 0) {
        struct epoll_event events[8];
        if (!is("edge")) set(EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT);
        n = is("pwait2") ? epoll_pwait2(epoll, events, 8, &time, NULL) : epoll_wait(epoll, events, 8, millis);
        if (n < 0 && errno == ENOSYS && is("pwait2")) n = epoll_wait(epoll, events, 8, millis);
        if (n < 0) fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 >> 32 != 0x12345678) fail("data");
            if ((int)events[i].data.u64 == ends[0]) found |= PIPE;
            else if ((int)events[i].data.u64 != fd) fail("descriptor");
            else found |= (events[i].events & EPOLLOUT ? ROOM : 0) | (events[i].events & EPOLLIN ? INPUT : 0);
        }
        if (!is("edge")) set(EPOLL_CTL_MOD, fd, EPOLLIN);
        return found;
    }
    if (is("select") || is("pselect")) {
        fd_set in, out;
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(fd, &in);
        FD_SET(fd, &out);
        FD_SET(ends[0], &in);
        int above = (fd > ends[0] ? fd : ends[0]) + 1;
        struct timeval limit = {millis / 1000, millis % 1000 * 1000};
        n = is("select") ? select(above, &in, &out, NULL, &limit) : pselect(above, &in, &out, NULL, &time, NULL);
        if (n < 0) fail("select");
        if (n == 0 && is("select") && (limit.tv_sec != 0 || limit.tv_usec != 0)) fail("the time that is left");
        if (n != !!FD_ISSET(fd, &in) + !!FD_ISSET(fd, &out) + !!FD_ISSET(ends[0], &in)) fail("count");
        return (FD_ISSET(fd, &out) ? ROOM : 0) | (FD_ISSET(fd, &in) ? INPUT : 0) | (FD_ISSET(ends[0], &in) ? PIPE : 0);
    }
    /* The first entries are ignored. */
    static struct pollfd all[200];
    nfds_t count = is("many") ? 200 : 2;
    for (nfds_t i = 0; i < count; i++) all[i].fd = -1;
    struct pollfd *two = all + count - 2;
    two[0] = (struct pollfd){.fd = fd, .events = POLLIN | POLLOUT};
    two[1] = (struct pollfd){.fd = ends[0], .events = POLLIN};
    n = is("ppoll") ? ppoll(all, count, &time, NULL) : poll(all, count, millis);
    if (n < 0) fail("poll");
    if (n != (two[0].revents != 0) + (two[1].revents != 0)) fail("count");
    if (two[0].events != (POLLIN | POLLOUT)) fail("events");
    return (two[0].revents & POLLOUT ? ROOM : 0) | (two[0].revents & POLLIN ? INPUT : 0) | (two[1].revents ? PIPE : 0);
}

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    call = argv[1];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof to;
    int peer = socket(AF_INET, SOCK_DGRAM, 0), least = 1;
    if (bind(peer, (struct sockaddr *)&to, len) != 0 || getsockname(peer, (struct sockaddr *)&to, &len) != 0) fail("bind");
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (connect(fd, (struct sockaddr *)&to, len) != 0 || pipe(ends) != 0) fail("connect");
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) != 0) fail("SO_SNDBUF");
    if (is("level") || is("edge") || is("pwait2")) {
        epoll = epoll_create1(0);
        /* Before the first datagram, as an event loop does. */
        set(EPOLL_CTL_ADD, fd, is("edge") ? EPOLLIN | EPOLLOUT | EPOLLET : EPOLLIN);
        set(EPOLL_CTL_ADD, ends[0], EPOLLIN);
    }
    if (!(ready(LONG) & ROOM)) fail("an unused socket has no room");
    struct sockaddr_in own;
    if (getsockname(fd, (struct sockaddr *)&own, &len) != 0) fail("getsockname");
    char bytes[1000] = {0};
    int sent = 0, was_full = 0;
    while (sent < DATAGRAMS) {
        if (send(fd, bytes, sizeof bytes, 0) == sizeof bytes) {
            sent++;
            continue;
        }
        if (errno != EAGAIN) fail("send");
        int room = 0;
        if (!was_full) {
            was_full = 1;
            printf("full\n");
            fflush(stdout);
            long before = now();
            room = ready(30) & ROOM;
            if (!room && now() - before < 29) fail("a wait ended early");
            /* Past the qdisc, by a flag. */
            if (sendto(peer, "x", 1, MSG_DONTROUTE, (struct sockaddr *)&own, len) != 1) fail("sendto");
            int found = 0;
            /* It may take a while to arrive, and there may be room meanwhile. */
            for (long since = now(); !(found & INPUT) && now() - since < LONG;) found |= ready(LONG);
            if (!(found & INPUT)) fail("no input");
            room |= found & ROOM;
            if (recv(fd, bytes, sizeof bytes, 0) != 1) fail("recv");
            if (write(ends[1], "x", 1) != 1) fail("write");
            found = ready(LONG);
            if (!(found & PIPE) && (!(found & ROOM) || !(ready(LONG) & PIPE))) fail("no byte");
            room |= found & ROOM;
            if (read(ends[0], bytes, 1) != 1) fail("read");
        }
        if (!room && !((room = ready(LONG)) & ROOM)) fail("no room");
        /* What is reported holds. */
        if (send(fd, bytes, sizeof bytes, 0) != sizeof bytes) fail("a socket that was reported as writable");
        sent++;
    }
    if (!was_full) fail("never full");
    if (epoll >= 0) set(EPOLL_CTL_DEL, fd, 0);
    printf("%d\n", sent);
    return 0;
}
