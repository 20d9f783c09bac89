/* A cycle of two Unix sockets that carry each other, our standard output, and a file of argv[2] MiB that was made in argv[1]
 * and has no name: once we exit, nobody holds any of them, and all of them live. */
#include "r_rights.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 4) return 90;
    static char block[1 << 20];
    memset(block, 'c', sizeof block);
    int pair[2], file = open(argv[1], O_TMPFILE | O_RDWR, 0600);
    if (file < 0 || socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) return 91;
    for (int i = atoi(argv[2]); i > 0; i--)
        if (write(file, block, sizeof block) != sizeof block) return 92;
    int fds[4] = {pair[0], pair[1], 1, file};
    if (send_rights(pair[0], fds, 4)) return 93;
    return write(1, "sent\n", 5) != 5;
}
