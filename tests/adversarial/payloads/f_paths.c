/* F04, F20: for each argument opens the path and tries one byte. `r:PATH` reads, `w:PATH=TEXT` writes TEXT. */
#include "probe.h"

static int count;
static char **paths;

static void probe(void)
{
    char byte, path[512];
    for (int i = 1; i < count; i++) {
        snprintf(path, sizeof path, "%s", paths[i] + 2);
        if (paths[i][0] == 'r') {
            int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
            if (fd < 0) {
                say(paths[i], -1);
                continue;
            }
            long n = read(fd, &byte, 1);
            if (n == 0)
                line(paths[i], "empty");
            else
                say(paths[i], n);
            close(fd);
        } else {
            char *text = strchr(path, '=');
            if (!text)
                continue;
            *text++ = 0;
            int fd = open(path, O_WRONLY | O_CLOEXEC);
            say(paths[i], fd < 0 ? -1 : write(fd, text, strlen(text)));
            if (fd >= 0)
                close(fd);
        }
    }
}

int main(int argc, char **argv)
{
    count = argc;
    paths = argv;
    everywhere(probe);
    hold();
    return 0;
}
