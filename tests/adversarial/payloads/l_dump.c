/* L01, L05: prints everything of other processes and of the file system's names that it can read; the test searches the
 * text. With `proc` as argument it names each file of /proc outside processes that can be read instead (L02). */
#include "probe.h"
#include <dirent.h>

static void dump(const char *path)
{
    char bytes[4096];
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    long n;
    if (fd < 0)
        return;
    printf("\n== %s\n", path);
    for (int i = 0; i < 64 && (n = read(fd, bytes, sizeof bytes)) > 0; i++)
        fwrite(bytes, 1, n, stdout);
    close(fd);
}

static void names(const char *path, int depth)
{
    char below[1024], target[1024];
    struct dirent *entry;
    DIR *dir = opendir(path);
    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        printf("%s", below);
        long n = readlink(below, target, sizeof target - 1);
        if (n > 0)
            printf(" -> %.*s", (int)n, target);
        printf("\n");
        if (depth > 0 && entry->d_type == DT_DIR)
            names(below, depth - 1);
    }
    closedir(dir);
}

/* Names every file below that gives at least one byte. */
static void readable(const char *path, int top)
{
    char below[1024], byte;
    struct dirent *entry;
    DIR *dir = opendir(path);
    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || entry->d_type == DT_LNK)
            continue;
        if (top && entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
            continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR) {
            readable(below, 0);
            continue;
        }
        int fd = open(below, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && read(fd, &byte, 1) == 1)
            printf("main readable %s\n", below);
        if (fd >= 0)
            close(fd);
    }
    closedir(dir);
}

int main(int argc, char **argv)
{
    static const char *const of_process[] = { "cmdline", "environ", "auxv", "comm", "status", "mountinfo", "cgroup", "limits",
                                              "sched", "stack", "wchan", "maps", "net/unix", "net/tcp", "net/route", "loginuid" };
    static const char *const of_system[] = { "/proc/mounts", "/proc/net/unix", "/proc/keys", "/proc/locks", "/proc/sysvipc/shm",
                                             "/proc/sysvipc/msg", "/proc/sysvipc/sem", "/proc/sched_debug", "/proc/timer_list",
                                             "/etc/passwd", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf" };
    static const char *const tops[] = { "/", "/task", "/tmp", "/dev", "/run", "/var", "/home", "/root", "/mnt", "/etc", "/proc/self/fd" };
    char path[512];
    struct dirent *entry;
    if (argc > 1 && !strcmp(argv[1], "proc")) {
        readable("/proc", 1);
        fflush(stdout);
        hold();
        return 0;
    }
    for (unsigned i = 0; i < sizeof of_system / sizeof *of_system; i++)
        dump(of_system[i]);
    for (unsigned i = 0; i < sizeof tops / sizeof *tops; i++)
        names(tops[i], i ? 3 : 0);
    DIR *dir = opendir("/proc");
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        for (unsigned i = 0; i < sizeof of_process / sizeof *of_process; i++) {
            snprintf(path, sizeof path, "/proc/%s/%s", entry->d_name, of_process[i]);
            dump(path);
        }
        snprintf(path, sizeof path, "/proc/%s/fd", entry->d_name);
        names(path, 0);
        snprintf(path, sizeof path, "/proc/%s/cwd", entry->d_name);
        names(path, 0);
    }
    printf("\n");
    fflush(stdout);
    hold();
    return 0;
}
