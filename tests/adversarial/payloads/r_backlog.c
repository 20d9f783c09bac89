/* Connections that nobody accepts, and what was sent to them, are charged to nobody. argv: listeners, connections to each. */
#include "probe.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
    static char block[4096];
    long queued = 0;
    if (argc < 4)
        return 2;
    for (int many = atoi(argv[1]); many > 0; many--) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t size = sizeof at;
        if (s < 0 || bind(s, (void *)&at, size) || getsockname(s, (void *)&at, &size) || listen(s, 1 << 16))
            return 91;
        for (int i = atoi(argv[2]); i > 0; i--) {
            int c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            /* Over the loopback this is done when it returns, or the queue is full. */
            connect(c, (void *)&at, size);
            int sent = write(c, block, sizeof block) > 0;
            close(c);
            if (!sent)
                break;
            queued++;
        }
    }
    say_value("queued", queued);
    hold();
    return 0;
}
