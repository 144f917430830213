/* Sends a datagram to a port of the loopback address and waits for the answer, for ever: pings PORT. Prints the microseconds of each round. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) return 1;
    for (;;) {
        struct timespec before, after;
        char byte = 'x';
        clock_gettime(CLOCK_MONOTONIC, &before);
        if (send(fd, &byte, 1, 0) != 1 || recv(fd, &byte, 1, 0) != 1) return 1;
        clock_gettime(CLOCK_MONOTONIC, &after);
        printf("%ld\n", (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000);
        fflush(stdout);
    }
}
