/* F01: looks for a way to one file of the host, whose absolute path is argv[1]; argv[2] is a process to follow. The test watches that file for being opened. */
#include "probe.h"
#include <dirent.h>

static const char *canary, *target = "1";

static long read_at(int dirfd, const char *path)
{
    char byte;
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    long n = read(fd, &byte, 1);
    close(fd);
    return n;
}

static long below(const char *prefix)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", prefix, canary + 1);
    return read_at(AT_FDCWD, path);
}

/* The classic: a second chroot below the working directory, then up and out. */
static long chroot_out(void)
{
    mkdir("jail", 0755);
    int here = open(".", O_RDONLY | O_DIRECTORY);
    long done = chroot("jail");
    if (done == 0 && here >= 0 && fchdir(here) == 0) {
        for (int i = 0; i < 64; i++)
            if (chdir("..") < 0)
                break;
        done = chroot(".");
    }
    int saved = errno;
    if (here >= 0)
        close(here);
    rmdir("jail");
    errno = saved;
    return done;
}

static void probe(void)
{
    char path[512], dots[256] = "";
    say("absolute", read_at(AT_FDCWD, canary));
    for (int i = 0; i < 40; i++)
        strcat(dots, "/..");
    say("dot-dot", below(dots));
    say("self-root", below("/proc/self/root"));
    say("self-root-up", below("/proc/self/root/.."));
    say("self-cwd-up", below("/proc/self/cwd/../../.."));
    snprintf(path, sizeof path, "/proc/%s/root", target);
    say("target-root", below(path));
    snprintf(path, sizeof path, "/proc/%s/cwd", target);
    say("target-cwd", below(path));
    say("thread-root", below("/proc/thread-self/root"));
    /* An old root that was moved aside but not detached would be one of the directories here. */
    static const char *const tops[] = { "/", "/task", "/tmp", "/dev", "/mnt", "/run" };
    long found = -1;
    for (unsigned i = 0; i < sizeof tops / sizeof *tops; i++) {
        DIR *dir = opendir(tops[i]);
        struct dirent *entry;
        while (dir && (entry = readdir(dir))) {
            snprintf(path, sizeof path, "%s/%s", tops[i], entry->d_name);
            if (strcmp(entry->d_name, ".") && below(path) >= 0)
                found = 0;
        }
        if (dir)
            closedir(dir);
    }
    line("old-root", found < 0 ? "none" : "found");
    /* A directory of the host that was left open. */
    found = -1;
    for (int fd = 3; fd < 256; fd++)
        if (read_at(fd, canary + 1) >= 0)
            found = 0;
    line("kept-dirfd", found < 0 ? "none" : "found");
    say("pivot-root", syscall(SYS_pivot_root, ".", "."));
    pid_t child = fork();
    if (child == 0) {
        if (chdir("/tmp") < 0)
            line("chdir", "failed");
        say("chroot", chroot_out());
        say("after-chroot", read_at(AT_FDCWD, canary));
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    canary = argv[1];
    if (argc > 2)
        target = argv[2];
    everywhere(probe);
    hold();
    return 0;
}
