/* C05: makes groups below one, a storm of them, turns them to threads, moves its threads, and takes the bounds off.
 * argv[1]: a directory of the v2 hierarchy. */
#include "probe.h"

static void put(const char *name, const char *dir, const char *file, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        say(name, fd);
        return;
    }
    say(name, write(fd, text, strlen(text)));
    close(fd);
}

int main(int argc, char **argv)
{
    char path[512], last[512] = "";
    int made = 0;
    if (argc < 2)
        return 2;
    snprintf(path, sizeof path, "%s/nest", argv[1]);
    say("mkdir", mkdir(path, 0755));
    for (int i = 0; i < 200; i++) {
        snprintf(last, sizeof last, "%s/storm-%d", argv[1], i);
        made += mkdir(last, 0755) == 0;
    }
    say_value("storm", made);
    put("type", path, "cgroup.type", "threaded");
    put("threads", path, "cgroup.threads", "0");
    put("own-type", argv[1], "cgroup.type", "threaded");
    put("descendants", argv[1], "cgroup.max.descendants", "max");
    put("controllers", argv[1], "cgroup.subtree_control", "+pids");
    put("kill", argv[1], "cgroup.kill", "0");
    say("unshare-cgroup", unshare(CLONE_NEWCGROUP));
    hold();
    return 0;
}
