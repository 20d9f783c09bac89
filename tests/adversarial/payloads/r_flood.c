/* Floods stdout with up to N MiB: `lines` (a newline each 64 bytes) or `line` (none at all). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 4) return 90;
    static char block[1 << 16];
    memset(block, 'f', sizeof block);
    if (!strcmp(argv[1], "lines"))
        for (size_t i = 63; i < sizeof block; i += 64) block[i] = '\n';
    alarm(30);
    for (long left = atol(argv[2]) << 20; left > 0;) {
        ssize_t n = write(1, block, sizeof block);
        if (n <= 0) return 91;
        left -= n;
    }
    return 0;
}
