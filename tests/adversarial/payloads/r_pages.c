/* The page cache of the host's file argv[1], which has argv[2] MiB.
 * `drop`, `ahead` and `direct` ask to drop it, to read it ahead and to read past it. `queue` has all of it read at once: children wait
 * for parts of it, and the first process has the rest read without waiting. */
#include "probe.h"
#include <sys/mman.h>
#include <sys/uio.h>

static const char *file;
static size_t size;

static void advise(void)
{
    int fd = open(file, O_RDONLY);
    if (fd < 0)
        _exit(91);
    say("dontneed", syscall(SYS_fadvise64, fd, 0, 0, POSIX_FADV_DONTNEED));
    say("dontneed-high", syscall(SYS_fadvise64, fd, 0, 0, 0x100000000ul | POSIX_FADV_DONTNEED));
    close(fd);
}

static void direct(void)
{
    int fd = open(file, O_RDONLY);
    say_fd("direct", open(file, O_RDONLY | O_DIRECT));
    say_fd("direct-at", syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_DIRECT));
    say_fd("direct-at2", syscall(SYS_openat2, AT_FDCWD, file, &(uint64_t[3]){ O_RDONLY | O_DIRECT }, 24));
    say("direct-later", fcntl(fd, F_SETFL, O_DIRECT));
    close(fd);
}

static void ahead(void)
{
    int fd = open(file, O_RDONLY);
    char *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    say("willneed", syscall(SYS_fadvise64, fd, 0, size, POSIX_FADV_WILLNEED));
    say("readahead", syscall(SYS_readahead, fd, 0, size));
    say("map-willneed", madvise(map, size, MADV_WILLNEED));
    close(fd);
}

/* All of the file in one call: only a read that is larger than the kernel's window gets a whole window. One buffer serves it all. */
static void read_from(int fd, size_t at, int flags)
{
    static char buffer[1 << 20];
    struct iovec pieces[64];
    int count = 0;
    while (count < 64)
        pieces[count++] = (struct iovec){ buffer, sizeof buffer };
    (void)!preadv2(fd, pieces, count, at, flags);
}

static void queue(void)
{
    int fd = open(file, O_RDONLY);
    for (size_t at = 0; at < size; at += 1 << 20) {
        pid_t child = fork();
        if (child == 0) {
            read_from(fd, at, 0);
            _exit(0);
        }
        if (child < 0)
            break;
    }
    for (size_t at = 0; at < size; at += 128 << 10)
        read_from(fd, at, RWF_NOWAIT);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 90;
    file = argv[2];
    size = (size_t)atoi(argv[3]) << 20;
    if (strcmp(argv[1], "drop") == 0)
        everywhere(advise);
    else if (strcmp(argv[1], "direct") == 0)
        everywhere(direct);
    else if (strcmp(argv[1], "ahead") == 0)
        ahead();
    else
        queue();
    hold();
    return 0;
}
