/* Receives on a port of the loopback address: sink HOW [MARKS], where HOW is call, loop (an epoll), hidden (an epoll that no library sees) or
 * restrict (an epoll, and after the first datagram a filter of system calls that allows all). Prints the port, and at the datagram "end" how many
 * others there were, and how many of them had the mark of congestion. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void check(int good, const char *what) {
    if (good) return;
    perror(what);
    exit(1);
}

static long hidden(long number, long a, long b, long c, long d) {
#ifdef __x86_64__
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b, c, d);
#endif
}

/* Waits on a socket of its own while the program restricts itself. */
static int waits_on = -1;

static void *wait_meanwhile(void *argument) {
    char byte;
    check(recv(waits_on, &byte, 1, 0) == 1, "recv of a thread");
    return argument;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    pthread_t thread;
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1, epoll = -1, is_hidden = strcmp(argv[1], "hidden") == 0, space = 8 << 20;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    check(bind(fd, (struct sockaddr *)&at, len) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0, "bind");
    check(setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on) == 0, "IP_RECVTOS");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &space, sizeof space);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 42};
    if (strcmp(argv[1], "call") != 0) {
        epoll = epoll_create1(0);
        long set = is_hidden ? hidden(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, (long)&event)
                             : epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
        check(set == 0, "epoll_ctl");
    }
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (long all = 0, marked = 0;; all++) {
        if (epoll >= 0) {
            long n = is_hidden ? hidden(SYS_epoll_pwait, epoll, (long)&event, 1, -1) : epoll_wait(epoll, &event, 1, -1);
            check(n == 1 && event.data.u64 == 42, "epoll_wait");
        }
        char bytes[2048], control[64];
        struct iovec part = {bytes, sizeof bytes};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(fd, &message, epoll >= 0 ? MSG_DONTWAIT : 0);
        check(n >= 0, "recvmsg");
        if (n == 3 && memcmp(bytes, "end", 3) == 0) {
            printf("%ld %ld\n", all, marked);
            return 0;
        }
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        check(c != NULL && c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS, "the type of service");
        marked += (*(unsigned char *)CMSG_DATA(c) & 3) == 3;
        if (all == 0 && strcmp(argv[1], "restrict") == 0) {
            waits_on = socket(AF_INET, SOCK_DGRAM, 0);
            check(bind(waits_on, (struct sockaddr *)&there, len) == 0, "bind");
            check(getsockname(waits_on, (struct sockaddr *)&there, &len) == 0, "getsockname");
            check(pthread_create(&thread, NULL, wait_meanwhile, NULL) == 0, "pthread_create");
            usleep(50000);
            struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
            struct sock_fprog filter = {1, &allow};
            check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
            check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0, "PR_SET_SECCOMP");
            check(sendto(fd, "x", 1, 0, (struct sockaddr *)&there, len) == 1, "sendto");
            check(pthread_join(thread, NULL) == 0, "pthread_join");
            printf("restricted\n");
            fflush(stdout);
        }
    }
}
