/* Memory that is not its own: fills the receive queues of many sockets, which the kernel holds. argv: udp|tcp|unix, sockets
 * per process, processes. Says how many bytes it put there, and stays. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char block[32768];
static struct shared {
    atomic_long bytes;
    atomic_int finished;
} *shared;

static long fill_udp(void) {
    int in = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), out = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    if (in < 0 || out < 0 || bind(in, (void *)&at, size) || getsockname(in, (void *)&at, &size)) return -1;
    long sent = 0;
    for (int i = 0; i < 12; i++) {
        ssize_t n = sendto(out, block, sizeof block, 0, (void *)&at, size);
        if (n < 0) break;
        sent += n;
    }
    close(out);
    return sent;
}

static long fill_pair(int tcp) {
    int pair[2];
    if (!tcp) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair)) return -1;
    } else {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof at;
        if (listener < 0 || bind(listener, (void *)&at, size) || getsockname(listener, (void *)&at, &size)) return -1;
        listen(listener, 1);
        pair[0] = socket(AF_INET, SOCK_STREAM, 0);
        if (pair[0] < 0 || connect(pair[0], (void *)&at, size)) return -1;
        pair[1] = accept(listener, NULL, NULL);
        close(listener);
        fcntl(pair[0], F_SETFL, O_NONBLOCK);
    }
    long sent = 0;
    for (ssize_t n; (n = write(pair[0], block, sizeof block)) > 0;) sent += n;
    return sent;
}

int main(int argc, char **argv) {
    if (argc < 5) return 90;
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 91;
    int processes = atoi(argv[3]), first = 1;
    alarm(30);
    for (int p = 0; p < processes; p++) {
        pid_t child = fork();
        if (child != 0) continue;
        first = 0;
        alarm(30);
        for (int i = 0; i < atoi(argv[2]); i++) {
            long n = argv[1][1] == 'd' ? fill_udp() : fill_pair(argv[1][0] == 't');
            if (n < 0) break;
            atomic_fetch_add(&shared->bytes, n);
        }
        atomic_fetch_add(&shared->finished, 1);
        break;
    }
    if (first) {
        /* All have done what they could, or none can go on for want of memory. */
        long last = -1;
        for (int still = 0; atomic_load(&shared->finished) < processes && still < 30; still++) {
            long bytes = atomic_load(&shared->bytes);
            if (bytes != last) still = 0;
            last = bytes;
            usleep(100000);
        }
        last = atomic_load(&shared->bytes);
        printf("holds %ld\n", last);
        fflush(stdout);
    }
    for (;;) pause();
}
