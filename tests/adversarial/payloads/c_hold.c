/* C20: an account of the host waits for the lock of a directory, and keeps it. argv: the directory. */
#include "probe.h"
#include <sys/file.h>

int main(int argc, char **argv)
{
    int dir = argc > 1 ? (int)say("open", open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) : -1;
    if (dir < 0)
        return 1;
    say("flock", flock(dir, LOCK_EX));
    sleep(60);
    return 0;
}
