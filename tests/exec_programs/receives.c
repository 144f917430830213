/* Receives by each call, and checks what it returns. It knows nothing of txq: without it, all checks hold, too. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { LONG = 20000 };

static union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} to, mine;
static socklen_t to_len;
static int in, out;

static void timeout(int fd, long micros) {
    struct timeval patience = {micros / 1000000, micros % 1000000};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
}

static void option(int fd, int level, int name, int value) {
    CHECK(setsockopt(fd, level, name, &value, sizeof value) == 0);
}

/* Opens a socket that receives on the loopback address of a family, and one that sends. */
static void begin(int family) {
    in = socket(family, SOCK_DGRAM, 0), out = socket(family, SOCK_DGRAM, 0);
    CHECK(in >= 0 && out >= 0);
    memset(&to, 0, sizeof to);
    to.any.sa_family = family;
    to_len = family == AF_INET ? sizeof to.v4 : sizeof to.v6;
    if (family == AF_INET) to.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else to.v6.sin6_addr = in6addr_loopback;
    mine = to;
    CHECK(bind(in, &to.any, to_len) == 0 && bind(out, &mine.any, to_len) == 0);
    socklen_t len = to_len;
    CHECK(getsockname(in, &to.any, &len) == 0 && getsockname(out, &mine.any, &len) == 0);
    timeout(in, LONG * 1000L);
}

static void end(void) { close(in), close(out); }

static void give(const char *text) { CHECK(sendto(out, text, strlen(text), 0, &to.any, to_len) == (ssize_t)strlen(text)); }

static long millis(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int is_mine(const union address *from) {
    return to_len == sizeof mine.v4
               ? from->v4.sin_family == AF_INET && from->v4.sin_port == mine.v4.sin_port &&
                     from->v4.sin_addr.s_addr == mine.v4.sin_addr.s_addr
               : from->v6.sin6_family == AF_INET6 && from->v6.sin6_port == mine.v6.sin6_port &&
                     memcmp(&from->v6.sin6_addr, &mine.v6.sin6_addr, 16) == 0 && from->v6.sin6_scope_id == 0;
}

/* Each call that receives, on one family. */
static void calls(int family) {
    char bytes[64] = {0};
    union address from;
    socklen_t len = sizeof from;
    begin(family);

    errno = 77;
    give("recv");
    CHECK(recv(in, bytes, sizeof bytes, 0) == 4 && memcmp(bytes, "recv", 4) == 0 && errno == 77);
    give("read");
    CHECK(read(in, bytes, 0) == 0);
    CHECK(read(in, bytes, sizeof bytes) == 4 && memcmp(bytes, "read", 4) == 0);

    struct iovec parts[3] = {{bytes, 2}, {bytes + 10, 0}, {bytes + 20, 10}};
    give("parts");
    CHECK(readv(in, parts, 3) == 5 && memcmp(bytes, "pa", 2) == 0 && memcmp(bytes + 20, "rts", 3) == 0);

    memset(&from, 0xee, sizeof from);
    give("recvfrom");
    CHECK(recvfrom(in, bytes, sizeof bytes, 0, &from.any, &len) == 8 && is_mine(&from) && len == to_len);
    CHECK(((unsigned char *)&from)[to_len] == 0xee || to_len == sizeof from);
    /* A short address is cut, and its length is that of the whole. */
    memset(&from, 0xee, sizeof from), len = 5;
    give("short");
    CHECK(recvfrom(in, bytes, sizeof bytes, 0, &from.any, &len) == 5 && len == to_len);
    CHECK(((unsigned char *)&from)[4] != 0xee && ((unsigned char *)&from)[5] == 0xee);
    give("none");
    CHECK(recvfrom(in, bytes, sizeof bytes, 0, NULL, NULL) == 4);
    give("");
    CHECK(recv(in, bytes, sizeof bytes, 0) == 0);

    /* What does not fit is cut. */
    give("truncated");
    CHECK(recv(in, bytes, 3, 0) == 3 && memcmp(bytes, "tru", 3) == 0);
    give("truncated");
    CHECK(recv(in, bytes, 3, MSG_TRUNC) == 9);
    give("peeked");
    CHECK(recv(in, bytes, 2, MSG_PEEK) == 2 && recv(in, bytes, 2, MSG_PEEK | MSG_TRUNC) == 6);
    int queued = -1;
    CHECK(ioctl(in, FIONREAD, &queued) == 0 && queued == 6);
    CHECK(recv(in, bytes, sizeof bytes, 0) == 6 && memcmp(bytes, "peeked", 6) == 0);
    CHECK(ioctl(in, FIONREAD, &queued) == 0 && queued == 0);

    struct msghdr message = {0};
    message.msg_name = &from, message.msg_namelen = sizeof from;
    message.msg_iov = parts, message.msg_iovlen = 3;
    message.msg_flags = -1;
    give("recvmsg");
    CHECK(recvmsg(in, &message, 0) == 7 && is_mine(&from) && message.msg_namelen == to_len);
    CHECK(message.msg_flags == 0 && message.msg_controllen == 0);
    give("recvmsg of more");
    CHECK(recvmsg(in, &message, 0) == 12 && message.msg_flags == MSG_TRUNC);
    struct iovec many[100];
    for (int i = 0; i < 100; i++) many[i] = (struct iovec){bytes + i % 50, i % 2};
    struct msghdr of_many = {.msg_iov = many, .msg_iovlen = 100};
    give("parts of one byte");
    CHECK(recvmsg(in, &of_many, 0) == 17 && bytes[1] == 'p' && bytes[33] == 'e');
    CHECK(of_many.msg_namelen == 0);

    struct mmsghdr all[8] = {0};
    char text[8][8];
    struct iovec each[8];
    for (int i = 0; i < 8; i++) {
        each[i] = (struct iovec){text[i], sizeof text[i]};
        all[i].msg_hdr.msg_iov = &each[i], all[i].msg_hdr.msg_iovlen = 1;
    }
    for (int i = 0; i < 5; i++) give("12345" + i);
    CHECK(recvmmsg(in, all, 3, 0, NULL) == 3);
    for (int i = 0; i < 3; i++) CHECK(all[i].msg_len == 5u - i && text[i][0] == '1' + i);
    CHECK(recvmmsg(in, all, 1, 0, NULL) == 1 && text[0][0] == '4');
    CHECK(recvmmsg(in, all, 8, MSG_WAITFORONE, NULL) == 1 && text[0][0] == '5');
    struct timespec soon = {0, 1};
    give("x"), give("y");
    CHECK(recvmmsg(in, all, 8, 0, &soon) == 1 && soon.tv_sec == 0 && soon.tv_nsec == 0 && text[0][0] == 'x');
    CHECK(recv(in, bytes, 1, 0) == 1 && bytes[0] == 'y');

    /* As libuv does. */
    give("syscall");
    CHECK(syscall(SYS_recvfrom, in, bytes, sizeof bytes, 0, NULL, NULL) == 7);
    end();
}

/* Nothing to receive. */
static volatile sig_atomic_t handled;

static void handler(int number) { handled = number; }

/* Again and again, as a busy machine may not be in the call at the first one; 0 for no more. */
static void alarms(long micros) {
    struct itimerval in_a_while = {{0, micros}, {0, micros}};
    handled = 0;
    CHECK(setitimer(ITIMER_REAL, &in_a_while, NULL) == 0);
}

static void *give_late(void *argument) {
    struct timespec left = {0, 50000000};
    while (nanosleep(&left, &left) != 0) {}
    give("late");
    return argument;
}

static void waiting(void) {
    char bytes[8];
    begin(AF_INET);
    CHECK(recv(in, bytes, sizeof bytes, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    CHECK(fcntl(in, F_SETFL, O_NONBLOCK) == 0);
    CHECK(read(in, bytes, sizeof bytes) == -1 && errno == EAGAIN);
    CHECK(fcntl(in, F_SETFL, 0) == 0);
    timeout(in, 30000);
    long before = millis();
    CHECK(recv(in, bytes, sizeof bytes, 0) == -1 && errno == EAGAIN && millis() - before >= 29);

    /* A signal ends a wait, unless its handler says otherwise or there is a time limit. */
    timeout(in, 0);
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarms(30000);
    CHECK(recv(in, bytes, sizeof bytes, 0) == -1 && errno == EINTR && handled);
    alarms(0);
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarms(20000);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, give_late, NULL) == 0);
    CHECK(recv(in, bytes, sizeof bytes, 0) == 4 && handled);
    pthread_join(thread, NULL);
    timeout(in, LONG * 1000L);
    alarms(20000);
    CHECK(recv(in, bytes, sizeof bytes, 0) == -1 && errno == EINTR);
    alarms(0);
    CHECK(fcntl(in, F_SETFL, O_NONBLOCK) == 0);
    give("again");
    struct pollfd one = {.fd = in, .events = POLLIN};
    CHECK(poll(&one, 1, LONG) == 1 && one.revents == POLLIN);
    CHECK(recv(in, bytes, sizeof bytes, 0) == 5);
    CHECK(poll(&one, 1, 0) == 0 && one.revents == 0);
    end();
}

/* What the kernel refuses. */
static void errors(void) {
    char bytes[8], *wall = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(wall != MAP_FAILED && mprotect(wall + 4096, 4096, PROT_NONE) == 0);
    begin(AF_INET);
    give("a");
    CHECK(recv(in, wall + 4096, 8, 0) == -1 && errno == EFAULT);
    give("long enough");
    CHECK(recv(in, wall + 4092, 11, 0) == -1 && errno == EFAULT);
    give("c");
    CHECK(recv(in, wall + 4095, 4, 0) == 1 && wall[4095] == 'c');
    socklen_t len = sizeof to;
    give("d");
    CHECK(recvfrom(in, bytes, sizeof bytes, 0, (struct sockaddr *)(wall + 4096), &len) == -1 && errno == EFAULT);
    static struct iovec bad[1025];
    bad[0] = (struct iovec){wall + 4096, 8};
    struct msghdr message = {.msg_iov = (struct iovec *)(wall + 4096), .msg_iovlen = 1};
    CHECK(recvmsg(in, &message, 0) == -1 && errno == EFAULT);
    CHECK(recvmsg(in, (struct msghdr *)(wall + 4096), 0) == -1 && errno == EFAULT);
    static const struct msghdr constant __attribute__((section(".rodata"))) = {0};
    give("e");
    CHECK(recvmsg(in, (struct msghdr *)&constant, 0) == -1 && errno == EFAULT);
    message.msg_iov = bad, message.msg_iovlen = 1025;
    CHECK(recvmsg(in, &message, 0) == -1 && errno == EMSGSIZE);
    CHECK(readv(in, bad, 1025) == -1 && errno == EINVAL);
    CHECK(recv(in, bytes, sizeof bytes, MSG_OOB | MSG_DONTWAIT) == -1);
    CHECK(recv(in, bytes, sizeof bytes, MSG_ERRQUEUE) == -1 && errno == EAGAIN);
    CHECK(recv(-1, bytes, sizeof bytes, 0) == -1 && errno == EBADF);
    /* The next datagram is there whatever came before. */
    while (recv(in, bytes, sizeof bytes, MSG_DONTWAIT) >= 0) {}
    give("z");
    CHECK(recv(in, bytes, sizeof bytes, 0) == 1 && bytes[0] == 'z');

    /* Nobody listens at the peer. */
    int closed = socket(AF_INET, SOCK_DGRAM, 0);
    union address there = {.v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}};
    len = sizeof there.v4;
    CHECK(bind(closed, &there.any, len) == 0 && getsockname(closed, &there.any, &len) == 0 && close(closed) == 0);
    CHECK(connect(out, &there.any, len) == 0);
    timeout(out, LONG * 1000L);
    CHECK(send(out, "x", 1, 0) == 1);
    CHECK(recv(out, bytes, sizeof bytes, 0) == -1 && errno == ECONNREFUSED);
    struct pollfd one = {.fd = out, .events = POLLIN};
    CHECK(poll(&one, 1, 0) == 0);
    end();
}

static int has(struct msghdr *message, int level, int type) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == level && c->cmsg_type == type) return 1;
    return 0;
}

static void *data(struct msghdr *message, int level, int type) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == level && c->cmsg_type == type) return CMSG_DATA(c);
    fprintf(stderr, "no control message %d, %d\n", level, type);
    exit(1);
}

static int count(struct msghdr *message) {
    int n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) n++;
    return n;
}

/* Control messages: those that the program asks for, and no others. */
static void control(int family) {
    int is_v4 = family == AF_INET, level = is_v4 ? IPPROTO_IP : IPPROTO_IPV6;
    int report = is_v4 ? IP_RECVTOS : IPV6_RECVTCLASS, service = is_v4 ? IP_TOS : IPV6_TCLASS;
    char bytes[64], space[256] __attribute__((aligned(8)));
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    begin(family);
    option(out, level, service, 0x29);
    give("plain");
    CHECK(recvmsg(in, &message, 0) == 5 && message.msg_controllen == 0 && message.msg_flags == 0);
    int value = -1;
    socklen_t len = sizeof value;
    CHECK(getsockopt(in, level, report, &value, &len) == 0 && value == 0);
    option(in, level, report, 1);
    CHECK(getsockopt(in, level, report, &value, &len) == 0 && value != 0);
    message.msg_controllen = sizeof space;
    give("service");
    CHECK(recvmsg(in, &message, 0) == 7 && count(&message) == 1);
    CHECK(*(unsigned char *)data(&message, level, service) == 0x29);
    option(in, level, report, 0);
    CHECK(getsockopt(in, level, report, &value, &len) == 0 && value == 0);
    message.msg_controllen = sizeof space;
    give("plain");
    CHECK(recvmsg(in, &message, 0) == 5 && message.msg_controllen == 0);

    option(in, level, report, 1);
    option(in, level, is_v4 ? IP_PKTINFO : IPV6_RECVPKTINFO, 1);
    option(in, level, is_v4 ? IP_RECVTTL : IPV6_RECVHOPLIMIT, 1);
    option(in, SOL_SOCKET, SO_TIMESTAMPNS, 1);
    option(out, level, is_v4 ? IP_TTL : IPV6_UNICAST_HOPS, 7);
    message.msg_controllen = sizeof space;
    struct timespec before, after, *at;
    clock_gettime(CLOCK_REALTIME, &before);
    give("all");
    CHECK(recvmsg(in, &message, 0) == 3 && count(&message) == 4 && message.msg_flags == 0);
    clock_gettime(CLOCK_REALTIME, &after);
    at = data(&message, SOL_SOCKET, SCM_TIMESTAMPNS);
    CHECK(at->tv_sec >= before.tv_sec - 1 && at->tv_sec <= after.tv_sec + 1);
    CHECK(*(unsigned char *)data(&message, level, service) == 0x29);
    CHECK(*(int *)data(&message, level, is_v4 ? IP_TTL : IPV6_HOPLIMIT) == 7);
    if (is_v4) {
        struct in_pktinfo *info = data(&message, level, IP_PKTINFO);
        CHECK(info->ipi_ifindex == 1 && info->ipi_addr.s_addr == htonl(INADDR_LOOPBACK));
        CHECK(info->ipi_spec_dst.s_addr == htonl(INADDR_LOOPBACK));
    } else {
        struct in6_pktinfo *info = data(&message, level, IPV6_PKTINFO);
        CHECK(info->ipi6_ifindex == 1 && memcmp(&info->ipi6_addr, &in6addr_loopback, 16) == 0);
    }
    /* Too little space, and none. */
    message.msg_controllen = 40;
    give("some");
    CHECK(recvmsg(in, &message, 0) == 4 && message.msg_flags == MSG_CTRUNC && message.msg_controllen <= 40);
    CHECK(has(&message, SOL_SOCKET, SCM_TIMESTAMPNS));
    message.msg_controllen = 0;
    give("none");
    CHECK(recvmsg(in, &message, 0) == 4 && message.msg_flags == MSG_CTRUNC && message.msg_controllen == 0);
    end();
}

/* A socket of IPv6 that receives from IPv4. */
static void mapped(void) {
    begin(AF_INET);
    int both = socket(AF_INET6, SOCK_DGRAM, 0), none = 0;
    CHECK(setsockopt(both, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof none) == 0);
    union address from, at = {.v6 = {.sin6_family = AF_INET6}};
    socklen_t len = sizeof at.v6;
    CHECK(bind(both, &at.any, len) == 0 && getsockname(both, &at.any, &len) == 0);
    to.v4.sin_port = at.v6.sin6_port;
    give("mapped");
    char bytes[8];
    len = sizeof from;
    timeout(both, LONG * 1000L);
    CHECK(recvfrom(both, bytes, sizeof bytes, 0, &from.any, &len) == 6 && len == sizeof from.v6);
    CHECK(from.v6.sin6_family == AF_INET6 && from.v6.sin6_port == mine.v4.sin_port);
    CHECK(IN6_IS_ADDR_V4MAPPED(&from.v6.sin6_addr) && memcmp(from.v6.sin6_addr.s6_addr + 12, &mine.v4.sin_addr, 4) == 0);
    close(both);
    end();
}

/* A message that the kernel has joined: with UDP_GRO a program gets its parts, together or one by one. */
static void joined(void) {
    char bytes[64];
    int all = 0;
    begin(AF_INET);
    option(in, IPPROTO_UDP, UDP_GRO, 1);
    option(out, IPPROTO_UDP, UDP_SEGMENT, 3);
    give("aaabbbcc");
    while (all < 8) {
        ssize_t n = recv(in, bytes + all, sizeof bytes - all, 0);
        CHECK(n > 0);
        all += n;
    }
    CHECK(all == 8 && memcmp(bytes, "aaabbbcc", 8) == 0);
    end();
}

static void *shut(void *argument) {
    (void)argument;
    usleep(50000);
    shutdown(in, SHUT_RD);
    return NULL;
}

/* Another thread ends the receiving, as servers do to stop. */
static void ended(void) {
    char bytes[8];
    begin(AF_INET);
    timeout(in, 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, shut, NULL) == 0);
    CHECK(recv(in, bytes, sizeof bytes, 0) == 0);
    pthread_join(thread, NULL);
    struct pollfd one = {.fd = in, .events = POLLIN};
    CHECK(poll(&one, 1, LONG) == 1 && one.revents & POLLIN);
    end();
}

/* Several names of one socket, and numbers that are used again. */
static void numbers(void) {
    char bytes[8];
    begin(AF_INET);
    give("one");
    CHECK(recv(in, bytes, sizeof bytes, 0) == 3);
    int copy = dup(in);
    give("two");
    CHECK(recv(copy, bytes, sizeof bytes, 0) == 3 && bytes[0] == 't');
    CHECK(close(in) == 0);
    give("three");
    CHECK(recv(copy, bytes, sizeof bytes, 0) == 5);
    in = copy;
    int pipes[2];
    CHECK(pipe(pipes) == 0 && write(pipes[1], "pipe", 4) == 4);
    CHECK(dup2(pipes[0], in) == in);
    CHECK(read(in, bytes, sizeof bytes) == 4 && bytes[0] == 'p');
    /* By a call that no library sees. */
    CHECK(syscall(SYS_close, in) == 0);
    int next = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(next >= 0 && bind(next, &to.any, to_len) == 0);
    timeout(next, LONG * 1000L);
    give("next");
    CHECK(recv(next, bytes, sizeof bytes, 0) == 4 && bytes[0] == 'n');
    close(pipes[0]), close(pipes[1]), close(next), close(out);
}

/* A child receives what its parent does not, from a socket that both have. */
static void forks(void) {
    char bytes[8];
    begin(AF_INET);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(recv(in, bytes, sizeof bytes, 0) == 5 && bytes[0] == 'c');
        exit(0);
    }
    give("child");
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    give("parent");
    CHECK(recv(in, bytes, sizeof bytes, 0) == 6 && bytes[0] == 'p');
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int own = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t len = sizeof at;
        CHECK(bind(own, (struct sockaddr *)&at, len) == 0 && getsockname(own, (struct sockaddr *)&at, &len) == 0);
        CHECK(sendto(own, "self", 4, 0, (struct sockaddr *)&at, len) == 4);
        CHECK(recv(own, bytes, sizeof bytes, 0) == 4);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    end();
}

/* Event loops: what is reported is there, and what is there is reported. */
static int epoll;

static void set(int op, unsigned events) {
    struct epoll_event event = {.events = events, .data.u64 = 0x1234567800000000u};
    CHECK(epoll_ctl(epoll, op, in, &event) == 0);
}

static int reported(int limit) {
    struct epoll_event event;
    int n = epoll_wait(epoll, &event, 1, limit);
    CHECK(n >= 0 && (n == 0 || (event.data.u64 == 0x1234567800000000u && event.events & EPOLLIN)));
    return n;
}

static void loops(void) {
    char bytes[8];
    begin(AF_INET);
    CHECK(fcntl(in, F_SETFL, O_NONBLOCK) == 0);
    epoll = epoll_create1(0);
    set(EPOLL_CTL_ADD, EPOLLIN);
    CHECK(reported(0) == 0);
    give("one"), give("two");
    CHECK(reported(LONG) == 1 && recv(in, bytes, sizeof bytes, 0) == 3);
    CHECK(reported(LONG) == 1 && recv(in, bytes, sizeof bytes, 0) == 3);
    CHECK(reported(0) == 0 && recv(in, bytes, sizeof bytes, 0) == -1);
    /* An edge for each datagram, read or not. */
    set(EPOLL_CTL_MOD, EPOLLIN | EPOLLET);
    give("three");
    CHECK(reported(LONG) == 1 && reported(0) == 0);
    give("four");
    CHECK(reported(LONG) == 1 && reported(0) == 0);
    CHECK(recv(in, bytes, sizeof bytes, 0) == 5 && recv(in, bytes, sizeof bytes, 0) == 4);
    set(EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
    give("five");
    CHECK(reported(LONG) == 1 && reported(0) == 0);
    set(EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
    CHECK(reported(LONG) == 1 && recv(in, bytes, sizeof bytes, 0) == 4);
    set(EPOLL_CTL_MOD, 0);
    give("six");
    CHECK(reported(20) == 0);
    set(EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
    struct epoll_event event;
    int seen = 0;
    while (!(seen & EPOLLIN)) {
        CHECK(epoll_wait(epoll, &event, 1, LONG) == 1);
        seen |= event.events;
    }
    CHECK(recv(in, bytes, sizeof bytes, 0) == 3);
    set(EPOLL_CTL_DEL, 0);
    give("seven");
    CHECK(reported(20) == 0);
    close(epoll);

    int other[2];
    CHECK(pipe(other) == 0);
    struct pollfd all[100];
    for (int i = 0; i < 100; i++) all[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    all[3] = (struct pollfd){.fd = in, .events = POLLIN};
    all[99] = (struct pollfd){.fd = other[0], .events = POLLIN};
    CHECK(poll(all, 100, LONG) == 1 && all[3].revents == POLLIN && all[99].revents == 0 && all[3].events == POLLIN);
    CHECK(write(other[1], "x", 1) == 1);
    CHECK(poll(all, 100, LONG) == 2 && all[99].revents == POLLIN);
    CHECK(recv(in, bytes, sizeof bytes, 0) == 5);
    CHECK(poll(all, 100, LONG) == 1 && all[3].revents == 0);
    all[3].events = POLLIN | POLLOUT;
    CHECK(poll(all, 100, LONG) == 2 && all[3].revents == POLLOUT);

    fd_set set;
    FD_ZERO(&set);
    FD_SET(in, &set);
    struct timeval limit = {0, 20000};
    CHECK(select(in + 1, &set, NULL, NULL, &limit) == 0 && !FD_ISSET(in, &set));
    give("eight");
    FD_SET(in, &set), FD_SET(other[0], &set);
    CHECK(select(FD_SETSIZE, &set, NULL, NULL, NULL) >= 1);
    FD_ZERO(&set);
    FD_SET(in, &set);
    CHECK(select(in + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(in, &set));
    CHECK(recv(in, bytes, sizeof bytes, 0) == 5);
    close(other[0]), close(other[1]);
    FD_ZERO(&set);
    FD_SET(in, &set), FD_SET(other[0], &set);
    CHECK(select(FD_SETSIZE, &set, NULL, NULL, NULL) == -1 && errno == EBADF);
    end();
}

/* Threads that receive from one socket get each datagram once. */
static int received;

static void *take(void *argument) {
    char bytes[8];
    while (recv(in, bytes, sizeof bytes, 0) == 1 && bytes[0] == 'x') __atomic_add_fetch(&received, 1, __ATOMIC_RELAXED);
    return argument;
}

static void threads(void) {
    enum { THREADS = 4, DATAGRAMS = 2000 };
    pthread_t all[THREADS];
    begin(AF_INET);
    option(in, SOL_SOCKET, SO_RCVBUF, 4 << 20);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&all[i], NULL, take, NULL) == 0);
    for (int i = 0; i < DATAGRAMS; i++) {
        give("x");
        if (i % 20 == 0) usleep(1000);
    }
    long before = millis();
    while (__atomic_load_n(&received, __ATOMIC_RELAXED) < DATAGRAMS && millis() - before < LONG) usleep(1000);
    CHECK(received == DATAGRAMS);
    for (int i = 0; i < THREADS; i++) give("y");
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(all[i], NULL) == 0);
    end();
}

int main(void) {
    for (int i = 0; i < 2; i++) calls(i ? AF_INET6 : AF_INET), control(i ? AF_INET6 : AF_INET);
    waiting(), errors(), mapped(), joined(), ended(), numbers(), forks(), loops(), threads();
    printf("all received\n");
    return 0;
}
