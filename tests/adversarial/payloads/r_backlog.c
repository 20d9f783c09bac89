/* Connections that nobody accepts, and what was sent to them, are charged to nobody. argv: listeners, connections to each, bytes sent on
 * each, and in how many processes. */
#include "probe.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* So many wait, of all processes. */
static unsigned long *queued;

/* Each process listens at an address of its own: the ports of one are 28,000. */
static int fill(int process, int listeners, int connections, size_t bytes)
{
    static char block[65536];
    while (listeners-- > 0) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + process) };
        socklen_t size = sizeof at;
        if (s < 0 || bind(s, (void *)&at, size) || getsockname(s, (void *)&at, &size) || listen(s, 1 << 16))
            return 91;
        for (int i = connections; i > 0; i--) {
            int c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            /* Over the loopback this is done when it returns, or the queue is full. */
            connect(c, (void *)&at, size);
            int sent = write(c, block, bytes) > 0;
            close(c);
            if (!sent)
                break;
            __atomic_fetch_add(queued, 1, __ATOMIC_RELAXED);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    queued = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc < 5 || queued == MAP_FAILED)
        return 2;
    int listeners = atoi(argv[1]), connections = atoi(argv[2]), bytes = atoi(argv[3]), processes = atoi(argv[4]);
    int made = 1, ended = 0;
    for (; made < processes; made++) {
        int pid = fork();
        if (pid < 0)
            break;
        if (!pid) {
            fill(made, listeners, connections, bytes);
            raise(SIGSTOP);
            for (;;)
                pause();
        }
    }
    int failed = fill(0, listeners, connections, bytes);
    if (failed && processes == 1)
        return failed;
    while (++ended < made)
        waitpid(-1, NULL, WUNTRACED);
    say_value("queued", *queued);
    hold();
    return 0;
}
