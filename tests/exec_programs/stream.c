/* Sends datagrams of 1000 bytes as fast as it may: stream PORT MILLISECONDS, or without an end for 0. Prints how many calls succeeded. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), milliseconds = atoi(argv[2]);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) return 1;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    char bytes[1000] = {0};
    unsigned long sent = 0;
    do {
        sent += send(fd, bytes, sizeof bytes, 0) == sizeof bytes;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (milliseconds == 0 ||
             (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < milliseconds);
    printf("%lu\n", sent);
    return 0;
}
