/* Fills a slow queue: full PORT. A socket that does not block gets EAGAIN, a blocking one with a time limit, too, after that time.
 * Prints how many datagrams were accepted; the last one is "end". */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), sent = 0;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) return 1;
    /* The kernel's least: room for a few. */
    int least = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) != 0) return 1;
    char bytes[1000] = {0};
    for (int round = 0; round < 3; round++) {
        int flags = round == 0 ? MSG_DONTWAIT : 0;
        struct timeval limit = {0, round == 2 ? 300000 : 0};
        if (round == 1) fcntl(fd, F_SETFL, O_NONBLOCK);
        if (round == 2) fcntl(fd, F_SETFL, 0), setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        long before = now();
        for (int i = 0; i < 100; i++) {
            before = now();
            if (send(fd, bytes, sizeof bytes, flags) != sizeof bytes) break;
            sent++;
        }
        if (errno != EAGAIN) {
            fprintf(stderr, "round %d: %s\n", round, strerror(errno));
            return 1;
        }
        if (round == 2 && now() - before < 299) {
            fprintf(stderr, "waited only %ld ms\n", now() - before);
            return 1;
        }
        errno = 0;
    }
    /* Without a limit, a blocking socket waits for room. */
    struct timeval none = {0, 0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
    if (send(fd, "end", 3, 0) != 3) return 1;
    close(fd);
    printf("%d\n", sent + 1);
    return 0;
}
