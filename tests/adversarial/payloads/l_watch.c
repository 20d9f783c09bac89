/* The host's watch on a file: says a line whenever anyone opens or reads it, by whatever path or handle. */
#include "probe.h"
#include <poll.h>
#include <sys/inotify.h>

int main(int argc, char **argv)
{
    char events[4096];
    int watch = inotify_init1(IN_CLOEXEC);
    if (argc < 2 || inotify_add_watch(watch, argv[1], IN_OPEN | IN_ACCESS) < 0)
        return 2;
    line("state", "ready");
    struct pollfd fds[] = { { 0, POLLIN, 0 }, { watch, POLLIN, 0 } };
    while (poll(fds, 2, -1) > 0) {
        if (fds[1].revents && read(watch, events, sizeof events) > 0)
            line("touched", argv[1]);
        else if (fds[0].revents)
            break;
    }
    return 0;
}
