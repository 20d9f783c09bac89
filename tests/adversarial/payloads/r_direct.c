/* Reads the file argv[1] past the page cache, all of it in one call that cannot be interrupted, or through it where that is refused;
 * argv[2] is its size in MiB.
 * One buffer serves the whole read, so memory does not bound it. Then stays until standard input ends. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 4) return 90;
    int fd = open(argv[1], O_RDONLY | O_DIRECT), count = atoi(argv[2]);
    if (fd < 0) fd = open(argv[1], O_RDONLY);
    if (fd < 0 || count > 64) return 91;
    void *buffer;
    if (posix_memalign(&buffer, 4096, 1 << 20)) return 92;
    struct iovec pieces[64];
    for (int i = 0; i < count; i++) pieces[i] = (struct iovec){buffer, 1 << 20};
    puts("reading");
    fflush(stdout);
    printf("read %zd\n", preadv(fd, pieces, count, 0));
    fflush(stdout);
    char sink;
    return read(0, &sink, 1) != 0;
}
