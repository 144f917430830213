/* Sends a datagram to each port of 127.0.0.1 that is named, from one socket. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    for (int i = 1; i < argc; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[i])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
        if (sendto(fd, argv[i], 1, 0, (struct sockaddr *)&to, sizeof to) != 1) return 1;
    }
    return 0;
}
