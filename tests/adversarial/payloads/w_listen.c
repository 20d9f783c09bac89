/* W01: the host's listener in a network namespace of the test: says a line for each connection and each datagram on PORT. */
#include "probe.h"
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

static int listener(int type, int port)
{
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
    int fd = socket(AF_INET, type, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (void *)&any, sizeof any) < 0 || (type == SOCK_STREAM && listen(fd, 64) < 0))
        exit(2);
    return fd;
}

int main(int argc, char **argv)
{
    char bytes[64];
    int port = argc > 1 ? atoi(argv[1]) : 0;
    struct pollfd fds[] = { { 0, POLLIN, 0 }, { listener(SOCK_STREAM, port), POLLIN, 0 }, { listener(SOCK_DGRAM, port), POLLIN, 0 } };
    line("state", "ready");
    while (poll(fds, 3, -1) > 0) {
        if (fds[0].revents && read(0, bytes, sizeof bytes) <= 0)
            break;
        if (fds[1].revents) {
            close(accept(fds[1].fd, NULL, NULL));
            line("heard", "tcp");
        }
        if (fds[2].revents && recv(fds[2].fd, bytes, sizeof bytes, 0) >= 0)
            line("heard", "udp");
    }
    return 0;
}
