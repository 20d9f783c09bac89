/* The release agent: a v1 hierarchy names a program that the kernel runs as root, on the host, when a group empties.
 * argv: mount point, program, its argument's group name. Says where it got to; the program's deed is the proof. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int put(const char *dir, const char *file, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int failed = write(fd, text, strlen(text)) != (ssize_t)strlen(text);
    close(fd);
    return failed ? -1 : 0;
}

static int stuck(const char *where) {
    printf("%s %s\n", where, strerrorname_np(errno));
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 5) return 90;
    char group[4096];
    const char *at = argv[1], *program = argv[2];
    char options[256];
    snprintf(options, sizeof options, "none,name=%s", argv[3]);
    snprintf(group, sizeof group, "%s/%s", at, "empty");
    if (mount("none", at, "cgroup", 0, options)) return stuck("mount");
    if (mkdir(group, 0755)) return stuck("mkdir");
    if (put(at, "release_agent", program)) return stuck("release_agent");
    if (put(group, "notify_on_release", "1")) return stuck("notify_on_release");
    pid_t child = fork();
    if (child == 0) _exit(put(group, "cgroup.procs", "0") ? 1 : 0);
    waitpid(child, NULL, 0);
    puts("released");
    fflush(stdout);
    for (int i = 0; i < 2000 && rmdir(group); i++) usleep(1000);
    umount(at);
    return 0;
}
