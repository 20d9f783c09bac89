/* Fills a directory: `bytes DIR MIB` with one file after another, `inodes DIR N` with empty files, `sparse DIR MIB` through
 * a mapping. Stops at the first error or at the bound, says which, and stays. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 5) return 90;
    static char block[1 << 16];
    char path[4096];
    long bound = atol(argv[3]), done = 0;
    int error = 0;
    memset(block, 'x', sizeof block);
    for (long i = 0; done < bound && !error; i++) {
        snprintf(path, sizeof path, "%s/adv-%ld", argv[2], i);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0) {
            error = errno;
            break;
        }
        if (!strcmp(argv[1], "inodes")) done++;
        else
            for (int n = 0; n < 16 && !error; n++)
                if (write(fd, block, sizeof block) != sizeof block) error = errno ? errno : ENOSPC;
        if (strcmp(argv[1], "inodes") && !error) done++;
        close(fd);
    }
    printf("filled %ld %s\n", done, error ? strerrorname_np(error) : "OK");
    fflush(stdout);
    if (argc > 5 && !strcmp(argv[4], "leave")) return 0;
    alarm(30);
    for (;;) pause();
}
