/* Names itself another user in the audit log: sets its own login uid to argv[1]. */
#include "probe.h"

static const char *user;

static void probe(void)
{
    int fd = open("/proc/self/loginuid", O_WRONLY);
    if (fd < 0) {
        say("loginuid", fd);
        return;
    }
    say("loginuid", write(fd, user, strlen(user)));
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    user = argv[1];
    probe();
    hold();
    return 0;
}
