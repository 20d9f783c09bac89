/* Tries to leave its control group: writes itself into each file it is given, and into every cgroup.procs and tasks
 * below each cgroup mount it can see. One line per attempt on a found file, then "done", then waits. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void attempt(const char *path) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int failed = fd < 0 || write(fd, "0", 1) != 1;
    printf("%s %s\n", failed ? strerrorname_np(errno) : "OK", path);
    if (fd >= 0) close(fd);
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    const char *name = path + at->base;
    if (kind == FTW_F && (!strcmp(name, "cgroup.procs") || !strcmp(name, "tasks")) && at->level < 3) attempt(path);
    return 0;
}

int main(int argc, char **argv) {
    char line[4096], point[4096];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 90;
    for (int i = 1; i < argc - 1; i++) attempt(argv[i]);
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    while (mounts && fgets(line, sizeof line, mounts))
        if (strstr(line, " - cgroup") && sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1)
            nftw(point, visit, 16, FTW_PHYS | FTW_MOUNT);
    puts("done");
    fflush(stdout);
    alarm(30);
    for (;;) pause();
}
