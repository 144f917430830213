/* Calls at the edge of what the kernel accepts, and prints the results: edges CASE PORT. The output is the same with and without txq. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#define PAGE 65536

static struct sockaddr_in to;
static int udp;

/* Prints the result of a call. */
#define TELL(call)                                                        \
    do {                                                                  \
        errno = 0;                                                        \
        long result = (call);                                             \
        printf("%s = %ld %s\n", #call, result, result < 0 ? strerrorname_np(errno) : ""); \
    } while (0)

static int made(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0 || send(fd, "first", 5, 0) != 5) exit(1);
    return fd;
}

/* A system call that no library sees. */
static long hidden(long number, long a, long b, long c) {
#if defined __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
#elif defined __aarch64__
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#else
    return syscall(number, a, b, c);
#endif
}

/* The compiler refuses to compile such calls of `writev` itself. */
static ssize_t (*volatile vector)(int, const struct iovec *, int) = writev;

/* The numbers from 500 on are free, and the program's as soon as it uses them. */
static void numbers(void) {
    int pair[2], error;
    socklen_t len = sizeof error;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) exit(1);
    TELL(close(500));
    TELL(write(500, "x", 1));
    TELL(send(500, "x", 1, 0));
    TELL(sendmmsg(500, NULL, 0, 0));
    TELL(vector(500, NULL, -1));
    TELL(getsockopt(500, SOL_SOCKET, SO_TYPE, &error, &len));
    TELL(connect(500, (struct sockaddr *)&to, sizeof to));
    TELL(dup(500));
    TELL(dup2(500, 400));
    TELL(syscall(SYS_close, 500));
    TELL(send(udp, "still", 5, 0));
    TELL(dup2(-1, 500));
    TELL(dup2(pair[0], 500));
    TELL(send(udp, "not for the stream", 18, 0));
    char bytes[100];
    TELL(read(pair[1], bytes, sizeof bytes));
    TELL(write(500, "stream", 6));
    TELL(read(pair[1], bytes, sizeof bytes));
    TELL(close(udp));
    TELL(fcntl(500, F_GETFD));
    udp = made();
    TELL(dup3(pair[0], 501, O_CLOEXEC));
    TELL(dup3(pair[0], 502, 0));
    TELL(send(udp, "third", 5, 0));
    TELL(close(501));
    TELL(close(501));
    TELL(write(500, "stream", 6));
}

/* All descriptors are closed, and the program goes on. */
static void ranges(void) {
    TELL(close_range(3, ~0u, 0));
    TELL(send(udp, "closed", 6, 0));
    int again = made();
    printf("%d\n", again);
    TELL(close_range(400, 300, 0));
    TELL(close_range(3, ~0u, 64));
    closefrom(3);
    TELL(write(again, "closed", 6));
    again = made();
    TELL(close_range(again, again, 0));
    TELL(write(again, "closed", 6));
    again = made();
    printf("%d\n", again);
}

/* The same by system calls that no library sees. */
static void unseen(void) {
    int pair[2];
    char bytes[100];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) exit(1);
    TELL(hidden(SYS_dup3, pair[0], 500, 0));
    TELL(send(udp, "not for the stream", 18, 0));
    /* Time to leave late, too. */
    usleep(20000);
    TELL(read(pair[1], bytes, sizeof bytes));
    TELL(hidden(SYS_close_range, 3, ~0u, 0));
    udp = made();
    TELL(send(udp, "again", 5, 0));
    TELL(hidden(SYS_close_range, 3, ~0u, 0));
}

static void *sender(void *arg) {
    for (int i = 0; i < 3; i++)
        if (send(udp, "small stack", 11, 0) != 11) return NULL;
    close(made());
    return arg;
}

static void handler(int signal) {
    (void)signal;
    if (sender(&udp) != &udp) _exit(3);
}

/* Little stacks: of a thread, and of a signal handler. The program's very first datagram is sent on one. */
static void stacks(void) {
    pthread_attr_t little;
    pthread_t thread;
    void *result;
    pthread_attr_init(&little);
    TELL(pthread_attr_setstacksize(&little, 16384));
    TELL(pthread_create(&thread, &little, sender, &udp));
    pthread_join(thread, &result);
    printf("%d\n", result == &udp);
    static char space[16384];
    stack_t stack = {.ss_sp = space, .ss_size = sizeof space};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    TELL(sigaltstack(&stack, NULL));
    sigaction(SIGUSR1, &action, NULL);
    TELL(raise(SIGUSR1));
}

/* Memory that is not there. */
static void pointers(void) {
    char *half = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *end = half + PAGE, *bad = (char *)16;
    mprotect(end, PAGE, PROT_NONE);
    struct sockaddr *name = (struct sockaddr *)&to;
    TELL(send(udp, bad, 5, 0));
    TELL(send(udp, NULL, 5, 0));
    TELL(send(udp, NULL, 0, 0));
    TELL(send(udp, bad, 0, 0));
    TELL(send(udp, (char *)-5, 0, 0));
    TELL(write(udp, (char *)-5, 0));
    TELL(write(udp, (char *)INTPTR_MIN, 0));
    TELL(write(udp, end, 0));
    TELL(send(udp, end - 3, 3, 0));
    TELL(send(udp, end - 3, 4, 0));
    TELL(send(udp, half, -1, 0));
    TELL(send(udp, half, 1ul << 63, 0));
    TELL(send(udp, half, 65508, 0));
    TELL(write(udp, end, 1));
    TELL(write(udp, half, (size_t)1 << 62));
    TELL(sendto(udp, "x", 1, 0, (struct sockaddr *)bad, sizeof to));
    TELL(sendto(udp, "x", 1, 0, (struct sockaddr *)(end - 8), sizeof to));
    TELL(sendto(udp, "x", 1, 0, name, 129));
    TELL(sendto(udp, "x", 1, 0, name, -1));
    TELL(sendto(udp, "x", 1, 0, name, 1));
    TELL(sendto(udp, "x", 1, 0, name, 0));
    TELL(sendto(udp, "x", 1, 0, NULL, 77));
    TELL(sendto(udp, "x", 1, 0, NULL, 0));
    TELL(sendmsg(udp, NULL, 0));
    TELL(sendmsg(udp, (struct msghdr *)bad, 0));
    TELL(sendmsg(udp, (struct msghdr *)(end - 8), 0));
    struct iovec part = {bad, 7}, two[2] = {{half, (size_t)1 << 63}, {half, (size_t)1 << 63}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    TELL(sendmsg(udp, &message, 0));
    message.msg_iov = (struct iovec *)bad;
    TELL(sendmsg(udp, &message, 0));
    message.msg_iov = two, message.msg_iovlen = 2;
    TELL(sendmsg(udp, &message, 0));
    message.msg_iovlen = (size_t)1 << 60;
    TELL(sendmsg(udp, &message, 0));
    message.msg_iovlen = 0;
    TELL(sendmsg(udp, &message, 0));
    TELL(vector(udp, two, 2));
    TELL(vector(udp, two, -1));
    TELL(vector(udp, (struct iovec *)bad, 1));
    TELL(vector(udp, &part, 1025));
    part.iov_base = half;
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = bad, message.msg_controllen = 24;
    TELL(sendmsg(udp, &message, 0));
    message.msg_control = end - 16, message.msg_controllen = 24;
    TELL(sendmsg(udp, &message, 0));
    message.msg_control = half, message.msg_controllen = (size_t)-1;
    TELL(sendmsg(udp, &message, 0));
    message.msg_control = NULL;
    TELL(sendmsg(udp, &message, 0));
    message.msg_controllen = 24;
    TELL(sendmsg(udp, &message, 0));
    message.msg_controllen = 0;
    struct mmsghdr *many = (struct mmsghdr *)end - 3;
    for (int i = 0; i < 3; i++) many[i].msg_hdr = message;
    TELL(sendmmsg(udp, many, 3, 0));
    printf("%u %u\n", many[0].msg_len, many[2].msg_len);
    TELL(sendmmsg(udp, many, 4, 0));
    TELL(sendmmsg(udp, NULL, 0, 0));
    TELL(sendmmsg(udp, NULL, 1, 0));
    TELL(sendmmsg(-1, NULL, 0, 0));
    many[1].msg_hdr.msg_iov = (struct iovec *)bad;
    TELL(sendmmsg(udp, many, 3, 0));
    many[1].msg_hdr = message;
    mprotect(half, PAGE, PROT_READ);
    TELL(sendmmsg(udp, many, 3, 0));
}

/* As many parts as there may be, and more than that; behind the last one is no memory. */
static void parts(void) {
    static const size_t numbers[] = {0, 1, 1023, 1024, 1025, 1u << 16, INT_MAX, 1u << 31, UINT_MAX, (size_t)1 << 60, (size_t)1 << 63, -2, -1};
    static const size_t lengths[] = {0, 1, 63, 64, (size_t)1 << 54, -1};
    static char byte[64];
    size_t space = (1025 * sizeof(struct iovec) + PAGE - 1) / PAGE * PAGE;
    char *memory = mmap(NULL, space + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec *end = (struct iovec *)(memory + space), *all = end - 1025;
    mprotect(end, PAGE, PROT_NONE);
    for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
        for (int i = 0; i < 1025; i++) all[i] = (struct iovec){byte, lengths[j]};
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            /* Those that are there, and one more. */
            for (int beyond = 0; beyond < 2; beyond++) {
                struct iovec *first = numbers[i] <= 1025 ? end - numbers[i] + beyond : all;
                struct msghdr message = {.msg_iov = first, .msg_iovlen = numbers[i]};
                printf("%zu parts of %zu bytes, %d beyond\n", numbers[i], lengths[j], beyond);
                TELL(sendmsg(udp, &message, 0));
                message.msg_name = &to, message.msg_namelen = sizeof to;
                struct mmsghdr many[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
                /* The send buffer may hold one long message. */
                TELL(sendmmsg(udp, many, lengths[j] < 63 ? 2 : 1, 0));
                printf("%u %u\n", many[0].msg_len, many[1].msg_len);
                TELL(vector(udp, first, numbers[i]));
            }
        }
    }
}

/* Control messages with lengths of every kind. */
static void control(void) {
    static const size_t lengths[] = {0, 1, 15, 16, 17, 18, 19, 20, 21, 24, 25, 40, 1u << 31, (size_t)1 << 62, (size_t)1 << 63, -8, -1};
    static const int types[][2] = {{SOL_UDP, UDP_SEGMENT}, {IPPROTO_IP, IP_TOS}, {IPPROTO_IP, IP_PKTINFO}, {SOL_SOCKET, 61}};
    for (size_t type = 0; type < 4; type++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (size_t space = 8; space <= 48; space += 8) {
                _Alignas(8) char bytes[48] = {0};
                struct iovec part = {"payload", 7};
                struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = bytes, .msg_controllen = space};
                struct cmsghdr *header = (struct cmsghdr *)bytes;
                header->cmsg_level = types[type][0], header->cmsg_type = types[type][1], header->cmsg_len = lengths[i];
                bytes[16] = 4;
                errno = 0;
                long result = sendmsg(udp, &message, 0);
                printf("%zu %zx %zu: %ld %s\n", type, lengths[i], space, result, result < 0 ? strerrorname_np(errno) : "");
            }
}

/* Messages that the kernel is to cut: bytes, and the length of each datagram. */
static void segments(void) {
    static char bytes[100000];
    static const struct { int bytes, segment; } all[] = {
        {64 * 1320, 1320}, {49 * 1320, 1320}, {65507, 1400}, {65508, 1400}, {30000, 65535}, {65507, 65535}, {1000, 65535},
        {1000, 1000}, {1000, 500}, {0, 500}, {65507, 65508}, {2000, 0}};
    struct sockaddr_in none = {.sin_family = AF_UNSPEC};
    for (int way = 0; way < 4; way++) {
        int option = 0;
        if (way == 2) TELL(connect(udp, (struct sockaddr *)&none, sizeof none));
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            _Alignas(8) char space[CMSG_SPACE(2)] = {0};
            struct iovec part = {bytes, all[i].bytes};
            struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
            if (way >= 2) message.msg_name = &to, message.msg_namelen = sizeof to;
            option = way % 2 == 0 ? 0 : all[i].segment;
            setsockopt(udp, SOL_UDP, UDP_SEGMENT, &option, sizeof option);
            if (way % 2 == 0) {
                message.msg_control = space, message.msg_controllen = sizeof space;
                struct cmsghdr *header = CMSG_FIRSTHDR(&message);
                header->cmsg_level = SOL_UDP, header->cmsg_type = UDP_SEGMENT, header->cmsg_len = CMSG_LEN(2);
                *(unsigned short *)CMSG_DATA(header) = all[i].segment;
            }
            errno = 0;
            long result = sendmsg(udp, &message, 0);
            printf("%d: %d by %d: %ld %s\n", way, all[i].bytes, all[i].segment, result, result < 0 ? strerrorname_np(errno) : "");
        }
    }
}

/* Only what the program itself needs is allowed; any other call kills it. */
static void filtered(int by_prctl) {
    static const int allowed[] = {SYS_sendto, SYS_write, SYS_close, SYS_exit_group};
    struct sock_filter code[2 + 2 * 4] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (int i = 0; i < 4; i++) {
        code[1 + 2 * i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        code[2 + 2 * i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[9] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {10, code};
    TELL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0));
    TELL(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
    TELL(send(udp, "still shaped", 12, 0));
    TELL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    fflush(stdout);
    long set = by_prctl ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0)
                        : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    int good = set == 0 && send(udp, "filtered", 8, 0) == 8 && send(udp, "filtered", 8, 0) == 8 && close(udp) == 0;
    write(1, good ? "good\n" : "bad\n", good ? 5 : 4);
    if (by_prctl) _exit(0);
    exit(0);
}

/* Children that send and end by _exit. */
static void children(void) {
    for (int i = 0; i < 30; i++) {
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (send(udp, "child", 5, 0) != 5) _exit(1);
            if (i % 3 == 0) _exit(0);
            if (i % 3 == 1) _Exit(0);
            syscall(SYS_exit_group, 0);
        }
        waitpid(child, &status, 0);
        if (status != 0) printf("%d: %d\n", i, status);
    }
}

/* A child that the C library does not know of. */
static void copied(void) {
    int status = -1;
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(send(udp, "copied", 6, 0) == 6 && close(made()) == 0 ? 7 : 1);
    waitpid(child, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
    TELL(send(udp, "parent", 6, 0));
}

/* A datagram for which the kernel never has memory, and later ones. The kernel says so at once, and txq later. */
static void refused(void) {
    static char bytes[65508];
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = to.sin_port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_DGRAM, 0), least = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&six, sizeof six) != 0) return;
    TELL(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least));
    errno = 0;
    if (send(fd, bytes, sizeof bytes, 0) < 0 && errno != ENOBUFS) printf("%s\n", strerrorname_np(errno));
    for (int i = 0; i < 10; i++) TELL(send(udp, "goes on", 7, 0));
}

/* Bytes of a stream, which is not txq's. */
static void stream(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    TELL(connect(fd, (struct sockaddr *)&to, sizeof to));
    TELL(send(fd, "stream", 6, 0));
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 3) return 2;
    to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(argv[2])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (strcmp(argv[1], "stream") == 0) return stream(), 0;
    if (strcmp(argv[1], "stacks") != 0) udp = made();
    else if ((udp = socket(AF_INET, SOCK_DGRAM, 0)) < 0 || connect(udp, (struct sockaddr *)&to, sizeof to) != 0) return 1;
    if (strcmp(argv[1], "numbers") == 0) numbers();
    else if (strcmp(argv[1], "ranges") == 0) ranges();
    else if (strcmp(argv[1], "unseen") == 0) unseen();
    else if (strcmp(argv[1], "stacks") == 0) stacks();
    else if (strcmp(argv[1], "pointers") == 0) pointers();
    else if (strcmp(argv[1], "parts") == 0) parts();
    else if (strcmp(argv[1], "control") == 0) control();
    else if (strcmp(argv[1], "segments") == 0) segments();
    else if (strcmp(argv[1], "filtered") == 0) filtered(1);
    else if (strcmp(argv[1], "filtered_all") == 0) filtered(0);
    else if (strcmp(argv[1], "children") == 0) children();
    else if (strcmp(argv[1], "copied") == 0) copied();
    else if (strcmp(argv[1], "refused") == 0) refused();
    else return 2;
    printf("end\n");
    return 0;
}
