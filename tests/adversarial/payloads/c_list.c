/* C20: an account of the host lists a directory without pause, and opens each directory in it as soon as it is there.
 * argv: the directory, and what the names begin with. A minute at most. */
#include "probe.h"
#include <dirent.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    int dir = argc > 2 ? (int)say("lists", open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) : -1;
    if (dir < 0)
        return 1;
    static char entries[65536];
    long length;
    for (double end = now() + 60; now() < end;) {
        lseek(dir, 0, SEEK_SET);
        while ((length = syscall(SYS_getdents64, dir, entries, sizeof entries)) > 0)
            for (long at = 0; at < length;) {
                struct dirent64 *entry = (void *)(entries + at);
                at += entry->d_reclen;
                if (entry->d_type != DT_DIR || strncmp(entry->d_name, argv[2], strlen(argv[2])))
                    continue;
                int fd = openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd >= 0) {
                    line("opened", entry->d_name);
                    return 0;
                }
            }
    }
    return 0;
}
