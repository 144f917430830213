/* Sends while signal handlers leave calls by longjmp, and while the process forks: stress PORT. It ends, or it hangs. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in to = {.sin_family = AF_INET};
static sigjmp_buf back;
static volatile int stop;

static void leave(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static int sends(int fd) {
    return sendto(fd, "stress", 6, 0, (struct sockaddr *)&to, sizeof to) == 6;
}

static void *thread(void *argument) {
    (void)argument;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    while (!stop)
        if (!sends(fd)) abort();
    close(fd);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    to.sin_port = htons(atoi(argv[1])), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    /* The first signals come before the first datagram. */
    volatile int jumps = 0;
    struct itimerval each = {{0, 300}, {0, 300}}, none = {{0, 0}, {0, 0}};
    signal(SIGALRM, leave);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (sigsetjmp(back, 1)) jumps++;
    if (jumps == 0) setitimer(ITIMER_REAL, &each, NULL);
    while (jumps < 1000)
        if (!sends(fd)) return 1;
    signal(SIGALRM, SIG_IGN);
    setitimer(ITIMER_REAL, &none, NULL);

    /* Children of a process whose threads are in the middle of sending. */
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, thread, NULL) != 0) return 1;
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (child == 0) exit(sends(fd) ? 0 : 1);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) return 1;
    }
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("done\n");
    return 0;
}
