/* L21: asks to be told when anyone opens or reads in the directory argv[1], by inotify and by dnotify, and counts. */
#include "probe.h"
#include <poll.h>
#include <sys/inotify.h>

static const char *directory;
static volatile int signals;
static int watch;

static void count(int sig)
{
    (void)sig;
    signals++;
}

static void probe(void)
{
    say("inotify-open", inotify_add_watch(watch, directory, IN_OPEN | IN_MASK_ADD));
    say("inotify-access", inotify_add_watch(watch, directory, IN_ACCESS | IN_MASK_ADD));
    say("inotify-close", inotify_add_watch(watch, directory, IN_CLOSE_NOWRITE | IN_MASK_ADD));
    say("inotify-all", inotify_add_watch(watch, directory, IN_ALL_EVENTS | IN_MASK_ADD));
    /* The mask is 32 bits to the kernel. */
    say("inotify-high", syscall(SYS_inotify_add_watch, watch, directory, 0x100000000ul | IN_OPEN | IN_MASK_ADD));
    say("inotify-modify", inotify_add_watch(watch, directory, IN_MODIFY | IN_CREATE | IN_DELETE | IN_MASK_ADD));
    int fd = open(directory, O_RDONLY | O_DIRECTORY);
    say("dnotify", fcntl(fd, F_NOTIFY, DN_ACCESS | DN_MULTISHOT));
    say("dnotify-high", syscall(SYS_fcntl, fd, 0x100000000ul | F_NOTIFY, DN_ACCESS | DN_MULTISHOT));
}

int main(int argc, char **argv)
{
    char events[65536];
    long n, seen = 0;
    if (argc < 2)
        return 2;
    directory = argv[1];
    signal(SIGIO, count);
    watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    everywhere(probe);
    /* Its own doings are not counted. */
    while (read(watch, events, sizeof events) > 0)
        ;
    signals = 0;
    hold();
    while ((n = read(watch, events, sizeof events)) > 0)
        seen += n;
    say_value("inotify-bytes", seen);
    say_value("dnotify-signals", signals);
    return 0;
}
