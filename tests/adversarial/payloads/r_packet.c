/* Turns its standard output into a pipe of packets, if it may, and writes one of 4096 bytes: a reader that asks for less loses the rest.
 * argv: attack|control. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3) return 90;
    static char block[4096];
    memset(block, 'p', sizeof block);
    if (!strcmp(argv[1], "control")) {
        int pipes[2];
        if (pipe2(pipes, O_NONBLOCK) || fcntl(pipes[1], F_SETFL, O_DIRECT)) return 91;
        if (write(pipes[1], block, sizeof block) != sizeof block) return 92;
        ssize_t first = read(pipes[0], block, 10), rest = read(pipes[0], block, sizeof block);
        printf("read %zd then %zd\n", first, rest);
        return 0;
    }
    fcntl(1, F_SETFL, O_DIRECT);
    if (write(1, block, sizeof block) != sizeof block) return 92;
    usleep(200000);
    return 0;
}
