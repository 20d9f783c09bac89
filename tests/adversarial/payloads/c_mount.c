/* Mounts control group file systems by the old and the new interface, on /tmp. One line per attempt, then waits. */
#include <errno.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *what, long result) {
    printf("%s %s\n", what, result < 0 ? strerrorname_np(errno) : "OK");
}

int main(int argc, char **argv) {
    const char *at = argc > 2 ? argv[1] : "/tmp";
    char line[64];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 90;
    say("cgroup2", mount("none", at, "cgroup2", 0, NULL));
    say("cgroup", mount("none", at, "cgroup", 0, "memory"));
    say("named", mount("none", at, "cgroup", 0, "none,name=advmount"));
    say("fsopen", syscall(SYS_fsopen, "cgroup2", 0));
    say("open_tree", syscall(SYS_open_tree, -100, "/", 1 /* OPEN_TREE_CLONE */));
    puts("done");
    fflush(stdout);
    alarm(30);
    for (;;) pause();
}
