/* Sends N UDP packets of 120 bytes to a host, each after the work of a program: put that of yours into work(). The planner wants to
 * know what a packet costs:
 *
 *   cc -O2 -o send docs/lab/send.c
 *   txq sim cost -- ./send 10.9.9.2 {}
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static char data[120];

static void work(void)
{
    /* A program that does nothing but send. */
}

int main(int argc, char **argv)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
        fprintf(stderr, "usage: %s ADDRESS PACKETS\n", argv[0]);
        return 2;
    }
    if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof to)) {
        perror("connect");
        return 1;
    }
    for (long n = atol(argv[2]); n > 0; n--) {
        work();
        if (send(s, data, sizeof data, 0) < 0) {
            perror("send");
            return 1;
        }
    }
    return 0;
}
